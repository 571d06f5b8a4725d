package cli

import (
	"context"
	"log/slog"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
)

// roles are a service of processes that were each started by hand.
type roles struct {
	planner *server
	others  []*exec.Cmd
}

// startRoles starts a planner at an address, and a loader and two constructors for it.
func startRoles(t testing.TB, dir, address string) *roles {
	t.Helper()
	r := &roles{planner: start(t, command(context.WithoutCancel(t.Context()), dir,
		"planner", "job.yaml", "--listen", address, "--log-dir", "log", "--constructors", "2"))}
	for _, role := range []string{"loader", "constructor", "constructor"} {
		cmd := command(context.WithoutCancel(t.Context()), dir, role, "--planner", r.planner.address)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { cmd.Wait(); close(ended) }()
		t.Cleanup(func() { cmd.Process.Kill(); <-ended })
		r.others = append(r.others, cmd)
	}
	return r
}

// killPlanner kills the planner, as a machine that dies does.
func (r *roles) killPlanner() {
	r.planner.cmd.Process.Kill()
	<-r.planner.exited
}

// takeStep has all ranks take their next step at once.
func takeStep(t testing.TB, ranks []*client.Client) (failed []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	errs := make(chan error)
	for _, c := range ranks {
		go func() {
			_, err := c.Next(ctx)
			errs <- err
		}()
	}
	for range ranks {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// openRanks joins both ranks of the job.
func openRanks(t testing.TB, s *server, prefetch int, log *slog.Logger) (ranks []*client.Client) {
	t.Helper()
	for dp := range 2 {
		c, err := open(t, s, client.Options{Rank: client.Rank{DP: dp}, Prefetch: prefetch, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, c)
	}
	return ranks
}

// TestPlannerRestarts kills the planner of a running job and starts the service again at
// the same address, with the same log. Ranks that have the token of where they are join
// again and go on, with the bytes that the reference says.
func TestPlannerRestarts(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startRoles(t, dir, "127.0.0.1:0")
	var log lockedBuffer
	ranks := openRanks(t, r.planner, -1, slog.New(slog.NewTextHandler(&log, nil)))
	for step := range 12 {
		if step == 4 {
			for _, c := range ranks {
				if _, _, err := c.State(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			r.killPlanner()
			r = startRoles(t, dir, r.planner.address)
		}
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatal(failed)
		}
	}
	_, digest, err := ranks[0].State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	printDigest(&got, ranks[0].Step(), digest)
	if want := millrace(t, dir, "reference", "job.yaml", "--steps", "12").digest(t); strings.TrimSpace(got.String()) != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
	for _, want := range []string{"a request was lost, trying again", "the rank joined again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the ranks' log does not say %q:\n%s", want, log.String())
		}
	}
}

// TestPlannerForgets does the same to ranks that read ahead and have saved nothing: no
// token says where they are. They hear so, and neither wait for each other nor for
// themselves.
func TestPlannerForgets(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startRoles(t, dir, "127.0.0.1:0")
	ranks := openRanks(t, r.planner, 0, nil)
	for range 8 { // more than are planned ahead
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatal(failed)
		}
	}
	r.killPlanner()
	startRoles(t, dir, r.planner.address)
	var failed []error
	for begin := time.Now(); len(failed) < len(ranks); failed = takeStep(t, ranks) { // what they read ahead comes first
		if time.Since(begin) > hangs {
			t.Fatal("the ranks go on without a service")
		}
	}
	for _, err := range failed {
		refused(t, err, "does not know the state of step", "started again", "restart all ranks from the same checkpoint")
	}
}

// TestSlowestRank has a rank that waits for the other one of its DP index: the status and
// its own error name the other one, and the error says how long it waited in all.
func TestSlowestRank(t *testing.T) {
	t.Parallel()
	dir := folder(t, "topology: {dp: 2}", "topology: {dp: 1, cp: 2}")
	s := serve(t, dir)
	var ranks [2]*client.Client
	for cp := range ranks {
		var err error
		if ranks[cp], err = open(t, s, client.Options{Rank: client.Rank{CP: cp}, Prefetch: -1, Deadline: 4 * time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		for _, c := range ranks {
			if _, err := c.Next(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var err error
	for err == nil {
		_, err = ranks[0].Next(t.Context())
	}
	slowest := "rank dp=0 cp=1 pp=0 tp=0 is at step 1"
	if !strings.Contains(err.Error(), slowest) {
		t.Errorf("the one who waits says %v", err)
	}
	if m := regexp.MustCompile(`waited (\d+) s`).FindStringSubmatch(err.Error()); m == nil || m[1] < "3" || m[1] > "4" {
		t.Errorf("after 4 s it says %v", err)
	}
	if r := millrace(t, dir, "status", s.address); !strings.Contains(r.stdout, "trainers: "+slowest) {
		t.Errorf("the status says\n%s", r.stdout)
	}
}
