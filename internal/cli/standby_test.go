package cli

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
)

// TestStandbyElsewhere has a planner with a folder of its own stand by for another one, by
// the mirror of its log. The other one is killed; or it is stopped until it was replaced, and
// continues then. The ranks go on, and who was replaced writes nothing more and says why.
func TestStandbyElsewhere(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			mirror := "file://" + filepath.Join(dir, "mirror")
			planner := func(log, address string, more ...string) *exec.Cmd {
				return command(context.WithoutCancel(t.Context()), dir, append([]string{"planner", "job.yaml", "--log-dir", log, "--log-mirror", mirror, "--listen", address}, more...)...)
			}
			first := start(t, planner("log1", "127.0.0.1:0"))
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
					if err := first.cmd.Process.Signal(signal); err != nil {
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
			if signal == syscall.SIGSTOP {
				checkDeposed(t, first)
			}
		})
	}
}

// checkDeposed continues a planner that was replaced while it was stopped: it ends.
func checkDeposed(t *testing.T, p *server) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(hangs):
		t.Fatal("a planner that was replaced does not end")
	}
	if text := p.stderr.String(); !strings.Contains(text, "another planner") {
		t.Errorf("a planner that was replaced says:\n%s", text)
	}
}
