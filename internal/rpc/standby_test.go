package rpc_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestStandsBy: the certificate of a planner that stands by ends. That is logged, the planner could not serve, and can when it is
// renewed.
func TestStandsBy(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		a, log := newIssuer(t), logged(t)
		sec := a.issue(t, dir, time.Hour).StandsBy()
		if err := sec.CheckPlanner("10.0.0.1:7070"); err != nil {
			t.Fatal(err)
		}
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			sec.WatchCertificate(done)
			close(ended)
		}()
		time.Sleep(59 * time.Minute)
		if text := log.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "ends soon") {
			t.Errorf("before the end it logs %q", text)
		}
		time.Sleep(time.Hour)
		if text := log.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "has ended") {
			t.Errorf("after the end it logs %q", text)
		}
		if err := sec.CheckPlanner("10.0.0.1:7070"); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "ended at") {
			t.Errorf("with a certificate that has ended: %v", err)
		}
		a.issue(t, dir, time.Hour)
		if err := sec.CheckPlanner("10.0.0.1:7070"); err != nil {
			t.Errorf("with a renewed one: %v", err)
		}
		close(done)
		<-ended
	})
}

// TestMakesKey: only a planner without TLS and without a key makes one.
func TestMakesKey(t *testing.T) {
	t.Setenv("MILLRACE_ACCESS_KEY", "")
	t.Setenv("MILLRACE_ACCESS_KEY_FILE", "")
	for _, c := range []struct {
		sec   rpc.Security
		makes bool
	}{{rpc.Security{}, true}, {rpc.Security{AccessKeyFile: "key"}, false}, {rpc.Security{CertFile: "own.pem"}, false}} {
		if c.sec.MakesKey() != c.makes {
			t.Errorf("%+v: %v", c.sec, !c.makes)
		}
	}
}
