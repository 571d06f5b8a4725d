// Package export shows a telemetry.Board to the world through OpenTelemetry: metrics on a Prometheus
// page and by OTLP, spans by OTLP, and whether the process is ready.
//
// It owns the providers, the exporters and the HTTP server, and reads the standard OTEL_* environment
// variables. It asks the board's parts when somebody collects, and never otherwise. It keeps no number
// of its own but those of the process, and says nothing of what the variables hold: they may be secret.
package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/telemetry"
)

// Options configure an exporter. The zero value exports what the environment asks for.
type Options struct {
	Address  string       // of /metrics, /healthz and /readyz, HOST:PORT; "" opens none
	Pprof    string       // of /debug/pprof/, HOST:PORT on loopback; "" opens none
	Security rpc.Security // of Address
	Role     string       // what the process is, such as loader
	ID       string       // which one of that role
	Version  string       // of the program
	Log      *slog.Logger // default: discard
}

// Exporter shows a board until Close.
type Exporter struct {
	board  *telemetry.Board
	log    *slog.Logger
	meters *metric.MeterProvider
	tracer *trace.TracerProvider // nil: nobody takes spans
	pages  []*pages
}

// closeTime is how long what was not yet sent may take at the end.
const closeTime = 2 * time.Second

// mostSeries of one metric are shown; the rest become one with the attribute otel.metric.overflow. It is
// above the ranks of the largest job that was measured, 4,096.
const mostSeries = 10_000

// Open starts the exporters that opts and the environment ask for, and returns the board that they show;
// a nil exporter and board if there are none. An error of class fault.User says which option or variable is wrong.
func Open(ctx context.Context, opts Options) (x *Exporter, board *telemetry.Board, err error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	env, err := environment(os.Getenv)
	if err != nil {
		return nil, nil, err
	}
	if opts.Address == "" && opts.Pprof == "" && !env.metrics && !env.traces {
		return nil, nil, nil
	}
	every, err := TraceEvery(os.Getenv) // before the exporters are made, which complain of what is wrong in their own words
	if err != nil {
		return nil, nil, err
	}
	x = &Exporter{log: opts.Log}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.Close())
			x, board = nil, nil
		}
	}()
	if env.metrics || env.traces {
		otel.SetErrorHandler(&complaints{log: opts.Log})
	}
	otel.SetLogger(logr.New(internal{opts.Log}))
	about, err := about(ctx, opts)
	if err != nil {
		return x, nil, err
	}
	if err := x.openTraces(ctx, env, about); err != nil {
		return x, nil, err
	}
	x.board = telemetry.NewBoard(x.spans(), every)
	page, err := x.openMetrics(ctx, env, about)
	if err != nil {
		return x, nil, err
	}
	if opts.Address != "" {
		if err := x.serve(opts.Address, opts.Security, "telemetry", x.telemetryPages(page)); err != nil {
			return x, nil, err
		}
	}
	if opts.Pprof != "" {
		if err := x.servePprof(opts.Pprof); err != nil {
			return x, nil, err
		}
	}
	return x, x.board, nil
}

// about describes the process, as OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have it before all else.
func about(ctx context.Context, opts Options) (*resource.Resource, error) {
	host, _ := os.Hostname() // without one the process is named by its number alone
	id := cmp.Or(opts.ID, fmt.Sprintf("%s:%d", host, os.Getpid()))
	r, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", "millrace"), attribute.String("service.namespace", "millrace"),
		attribute.String("service.version", opts.Version), attribute.String("service.instance.id", id),
		attribute.String("millrace.role", opts.Role), attribute.String("host.name", host),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fault.Userf("reading OTEL_RESOURCE_ATTRIBUTES: %w; give key=value pairs, separated by commas", err)
	}
	return r, nil
}

// Addresses are those of the pages: of metrics, and of profiles.
func (x *Exporter) Addresses() (all []net.Addr) {
	for _, p := range x.pages {
		all = append(all, p.listener.Addr())
	}
	return all
}

// Close sends what was not yet sent, for closeTime at most, and ends all pages. A nil exporter may be closed.
func (x *Exporter) Close() error {
	if x == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	var errs []error
	for _, p := range x.pages {
		errs = append(errs, p.close())
	}
	if x.tracer != nil {
		x.note("spans", x.tracer.Shutdown(ctx))
	}
	if x.meters != nil {
		x.note("metrics", x.meters.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// note logs that the last of something could not be sent: it ends nothing.
func (x *Exporter) note(what string, err error) {
	if err != nil {
		x.log.Warn("the last "+what+" did not reach their collector", "err", err)
	}
}
