package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/object/objecttest"
)

// TestStandbyElsewhere has a planner with a folder of its own stand by for another one, by
// the mirror of its log. The other one is killed, or loses its folder; or it is stopped until it was
// replaced, and continues then. The ranks go on, and who ends writes nothing more and says why.
func TestStandbyElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(planner *server, log string) error
		ends string // what the planner says then; "" if it says nothing
	}{
		"killed":      {func(p *server, _ string) error { return p.cmd.Process.Kill() }, ""},
		"stopped":     {func(p *server, _ string) error { return p.cmd.Process.Signal(syscall.SIGSTOP) }, "another planner"},
		"folder lost": {func(_ *server, log string) error { return os.RemoveAll(log) }, "its folder was deleted or replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			mirror := "file://" + filepath.Join(dir, "mirror")
			planner := func(log, address string, more ...string) *exec.Cmd {
				return command(context.WithoutCancel(t.Context()), dir, append([]string{"planner", "job.yaml", "--log-dir", log, "--log-mirror", mirror, "--listen", address}, more...)...)
			}
			first := start(t, planner("log1", freeAddress(t)))
			second := freeAddress(t)
			both := first.address + "," + second
			standby := planner("log2", second, "--standby")
			launch(t, standby)
			for _, role := range []string{"loader", "constructor"} {
				launch(t, command(context.WithoutCancel(t.Context()), dir, role, "--planner", both))
			}
			var ranks []*client.Client
			for dp := range 2 {
				c, err := open(t, &server{address: both}, client.Options{Rank: client.Rank{DP: dp}})
				if err != nil {
					t.Fatal(err)
				}
				ranks = append(ranks, c)
			}
			for step := range 24 {
				if step == 6 {
					if err := c.harm(first, filepath.Join(dir, "log1")); err != nil {
						t.Fatal(err)
					}
				}
				begin := time.Now()
				if failed := takeStep(t, ranks); failed != nil {
					t.Fatalf("step %d: %v", step, failed)
				}
				if d := time.Since(begin); d > 200*time.Millisecond {
					t.Logf("step %d came after %v", step, d.Round(time.Millisecond))
				}
			}
			checkReference(t, dir, ranks[0])
			if c.ends != "" {
				checkEnds(t, first, c.ends)
			}
		})
	}
}

// checkEnds continues a planner that was replaced, if it was stopped: it ends, with the class of a loss.
func checkEnds(t *testing.T, p *server, why string) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // it fails if it has ended
	select {
	case <-p.exited:
	case <-time.After(hangs):
		t.Fatal("a planner that was replaced does not end")
	}
	if text, code := p.stderr.String(), p.cmd.ProcessState.ExitCode(); !strings.Contains(text, why) || code != exitLost {
		t.Errorf("a planner that was replaced ends with exit code %d and says:\n%s", code, text)
	}
}

// TestMirrorDenied: the mirror denies access for a while, as when credentials expired. The planner goes on, and the
// ranks hear nothing of it. At the start it is refused at once.
func TestMirrorDenied(t *testing.T) {
	dir, mirror := folder(t), objecttest.NewFake(t)
	serve := []string{"serve", "job.yaml", "--listen", "127.0.0.1:0", "--log-dir", "log", "--log-mirror", mirror.URL}
	mirror.Denied.Store(true)
	begin := time.Now()
	millrace(t, dir, serve...).expect(t, exitUser, "trying the mirror of the log", "AWS_ACCESS_KEY_ID")
	if d := time.Since(begin); d > object.DefaultRetry/2 {
		t.Errorf("it was refused after %v", d)
	}
	mirror.Denied.Store(false)
	s := start(t, command(context.WithoutCancel(t.Context()), dir, serve...))
	ranks := openRanks(t, s, 0, nil)
	for step := range 24 {
		if step == 6 {
			mirror.Denied.Store(true)
			time.AfterFunc(3*time.Second, func() { mirror.Denied.Store(false) })
		}
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatalf("step %d: %v", step, failed)
		}
	}
	checkReference(t, dir, ranks[0])
}
