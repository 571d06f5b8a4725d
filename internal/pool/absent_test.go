package pool

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/worker"
)

// TestAbsent: of a pool that is not there the log says each kind of error once, whatever times and ports are in its message,
// until it has been there; the status says the last one.
func TestAbsent(t *testing.T) {
	var log bytes.Buffer
	p := &pool{client: &Client{log: slog.New(slog.NewTextHandler(&log, nil))}, address: "10.0.0.9:7080"}
	env := new(worker.Environment)
	said := func(what string, want int) {
		t.Helper()
		if n := strings.Count(log.String(), "is not there"); n != want {
			t.Errorf("%s: %d lines, want %d\n%s", what, n, want, &log)
		}
		log.Reset()
	}
	ends := func() {
		for second := range 30 {
			p.gone(fault.Lostf("x509: certificate has expired or is not yet valid: current time 2030-01-02T03:04:%02dZ is after 2030-01-02T03:04:00Z", second))
			p.gone(fault.Lostf("read tcp 10.0.0.1:%d->10.0.0.9:7080: connection reset by peer", 40000+second))
		}
	}
	ends()
	said("two kinds", 2)
	if problem := p.usage(env).Problem; !strings.HasPrefix(problem, "read tcp 10.0.0.1:40029->") {
		t.Errorf("the status says %s", problem)
	}
	p.here(new(pb.PoolBeat))
	ends()
	said("after it was there", 2)
	for kind := range 100 {
		p.gone(fault.Lostf("an error%s", strings.Repeat("!", kind)))
	}
	said("many kinds", mostKinds-2)
	u := &use{env: env, open: &pb.OpenFunction{Function: "steps:f"}}
	for pid := range 30 {
		p.refuses(u, fmt.Sprintf("process %d ended", pid))
	}
	if n := strings.Count(log.String(), "does not serve"); n != 1 {
		t.Errorf("%d lines of a refusal", n)
	}
}
