package cli

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/pool"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/worker"
)

// TestWorkersTLS: a pool answers certificates of loaders only, and loaders take one for a pool only if it says that it is one.
func TestWorkersTLS(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	ours := newAuthority(t, dir, "ours")
	for _, name := range []string{"workers", "loader", "trainer", "service"} {
		ours.issue(t, dir, name, name, "127.0.0.1")
	}
	usage := func(s *server, cert string) pool.Usage {
		t.Helper()
		sec := rpc.Security{CertFile: filepath.Join(dir, cert+".pem"), KeyFile: filepath.Join(dir, cert+".key"), CAFile: filepath.Join(dir, "ours.pem")}
		c, err := pool.NewClient([]string{s.address}, sec, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for end := time.Now().Add(hangs); ; time.Sleep(10 * time.Millisecond) {
			if u := c.Usage(&worker.Environment{})[0]; u.Connected || u.Problem != "" {
				return u
			}
			if time.Now().After(end) {
				t.Fatalf("nothing is known of the pool at %s", s.address)
			}
		}
	}
	run := func(cert string) *server {
		return start(t, command(context.WithoutCancel(t.Context()), dir, append([]string{"workers", "--listen", "127.0.0.1:0"}, tlsArgs(cert, "ours")...)...))
	}
	s := run("workers")
	for _, cert := range []string{"loader", "service"} {
		if u := usage(s, cert); !u.Connected {
			t.Errorf("the certificate of %s: %+v", cert, u)
		}
	}
	if u := usage(s, "trainer"); u.Connected || !strings.Contains(u.Problem, "to call Workers/Serve: among its subject alternative names must be URI:millrace://role/loader") {
		t.Errorf("the certificate of a trainer: %+v", u)
	}
	if u := usage(run("service"), "loader"); u.Connected || !strings.Contains(u.Problem, "URI:millrace://role/workers") {
		t.Errorf("a pool with the certificate of a service: %+v", u)
	}
}

// TestWorkersRefused: what a pool cannot be started with.
func TestWorkersRefused(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--env", "python3"}, exitUser, "give NAME=INTERPRETER"},
		{[]string{"--env", "a=no/such/python"}, exitUser, "no/such/python"},
		{[]string{"--listen", "0.0.0.0:0"}, exitUser, "without TLS"},
		{[]string{"--workers=-1"}, exitUsage, "--workers is -1"},
		{[]string{"--worker-memory", "much"}, exitUsage, "--worker-memory"},
	} {
		millrace(t, dir, append([]string{"workers"}, c.args...)...).expect(t, c.code, c.want)
	}
	millrace(t, dir, "run", "job.yaml", "--steps", "1", "--worker-pools", "127.0.0.1:1").expect(t, 0) // the job has no functions
}
