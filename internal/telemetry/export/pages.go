package export

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
)

// pages is an HTTP server and its end.
type pages struct {
	listener net.Listener
	server   *http.Server
	done     chan struct{}
}

// headerTime is how long a caller may take to say what it wants, and pageTime for a page to be written: a
// planner that is busy answers in 2 s, and a profile takes 30 s unless it is asked for a longer one.
const (
	headerTime = 5 * time.Second
	pageTime   = 10 * time.Second
)

// serve opens an address for a handler.
func (x *Exporter) serve(address string, sec rpc.Security, flag string, h http.Handler) error {
	l, err := rpc.ListenPages(address, sec, "--"+flag)
	if err != nil {
		return err
	}
	p := &pages{listener: l, server: &http.Server{Handler: h, ReadHeaderTimeout: headerTime}, done: make(chan struct{})}
	x.pages = append(x.pages, p)
	go func() {
		defer close(p.done)
		if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			x.log.Warn("telemetry pages ended", "address", address, "err", err)
		}
	}()
	x.log.Info(flag+" pages are served", "address", l.Addr().String())
	return nil
}

func (p *pages) close() error {
	err := p.server.Close()
	<-p.done
	return err
}

// telemetryPages are the metrics, whether the process lives, and whether it serves.
func (x *Exporter) telemetryPages(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", known(http.TimeoutHandler(metrics, pageTime, "the roles of this process did not say in time what they do\n")))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", x.ready)
	return mux
}

// known asks for a certificate where the service uses them. Probes of health have none.
func known(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil && len(r.TLS.VerifiedChains) == 0 {
			http.Error(w, "a certificate that the service's CA signed is needed", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// ready says what the process waits for before it can serve: 503, and a line for each role.
func (x *Exporter) ready(w http.ResponseWriter, _ *http.Request) {
	var waits []string
	parts := x.board.Parts()
	for _, p := range parts {
		if p.Ready == nil {
			continue
		}
		if why := p.Ready(); why != "" {
			waits = append(waits, strings.TrimSpace(p.Role+" "+p.ID)+" waits for "+why)
		}
	}
	if len(parts) == 0 {
		waits = append(waits, "no role is there yet")
	}
	if len(waits) > 0 {
		http.Error(w, strings.Join(waits, "\n"), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// servePprof opens the profiles of this process, on this machine only: they show its command line, its
// code paths and its memory by type, and cost time.
func (x *Exporter) servePprof(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || !rpc.Loopback(host) {
		return fault.Userf("--pprof %s: profiles are served on this machine only: give 127.0.0.1:PORT, and reach it by ssh -L or kubectl port-forward", address)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return x.serve(address, rpc.Security{}, "pprof", local(mux))
}

// local refuses requests that name another host than this one: a page in a browser of this machine could
// make them.
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !rpc.Loopback(host) {
			http.Error(w, "profiles are served to this machine only", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
