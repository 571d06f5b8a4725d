package cli

import (
	"context"
	"fmt"
	"os/exec"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/planner/status"
)

// TestSidecars: a planner and a sidecar on each of two nodes are a service. A sidecar serves the ranks of its
// node, whichever comes first; while one is dead the other one serves all, and the batches are the reference's.
func TestSidecars(t *testing.T) {
	t.Parallel()
	dir := folder(t, "topology: {dp: 2}", "topology: {dp: 4}")
	planner := start(t, command(context.WithoutCancel(t.Context()), dir, "planner", "job.yaml", "--listen", "127.0.0.1:0", "--ranks-per-node", "2", "--loaders", "2"))
	served := func(want map[string][]uint32) {
		t.Helper()
		var got map[string][]uint32
		for begin := time.Now(); !reflect.DeepEqual(got, want); time.Sleep(20 * time.Millisecond) {
			if time.Since(begin) > hangs {
				t.Fatalf("sidecars serve %v, not %v", got, want)
			}
			var s status.Service
			decode(t, millrace(t, dir, "status", planner.address, "--json").stdout, &s)
			got = map[string][]uint32{}
			for _, c := range s.Constructors {
				got[c.ID] = c.Buckets
			}
		}
	}
	sidecar := func(life string, node int) (*exec.Cmd, <-chan struct{}) {
		id := fmt.Sprintf("%s-%d", life, node)
		cmd := command(context.WithoutCancel(t.Context()), dir, "sidecar", "--planner", planner.address, "--id", id)
		cmd.Env = append(cmd.Environ(), "MILLRACE_NODE=", fmt.Sprint("SLURM_NODEID=", node)) // an empty one counts as not set
		return cmd, launch(t, cmd)
	}
	second, _ := sidecar("first", 1)
	served(map[string][]uint32{"first-1": {2, 3}})
	sidecar("first", 0)
	served(map[string][]uint32{"first-1": {2, 3}, "first-0": {0, 1}})
	var ranks []*client.Client
	for dp := range 4 {
		c, err := open(t, planner, client.Options{Rank: client.Rank{DP: dp}, Prefetch: 2})
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, c)
	}
	var third *exec.Cmd
	var ended <-chan struct{}
	for step := range 16 {
		switch step {
		case 4:
			second.Process.Kill()
		case 8:
			served(map[string][]uint32{"first-0": {0, 1, 2, 3}})
			third, ended = sidecar("second", 1)
			served(map[string][]uint32{"second-1": {2, 3}, "first-0": {0, 1}})
		case 12: // as when it is replaced by a newer build
			third.Process.Signal(syscall.SIGTERM)
			if <-ended; third.ProcessState.ExitCode() != 0 {
				t.Errorf("a sidecar that was stopped ended with %v", third.ProcessState)
			}
		}
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatalf("at step %d: %v", step, failed)
		}
	}
	for _, c := range ranks {
		checkReference(t, dir, c)
	}
}
