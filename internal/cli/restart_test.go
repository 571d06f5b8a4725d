package cli

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/faultproxy"
)

// roles are a service of processes that were each started by hand.
type roles struct {
	planner *server
	others  []*exec.Cmd
}

// startRoles starts a planner at an address, and a loader and two constructors for it.
func startRoles(t testing.TB, dir, address string) *roles {
	t.Helper()
	r := &roles{planner: startPlanner(t, dir, address)}
	for _, role := range []string{"loader", "constructor", "constructor"} {
		r.add(t, dir, role)
	}
	return r
}

// add starts one more role, at an address of its own.
func (r *roles) add(t testing.TB, dir, role string) {
	t.Helper()
	cmd := command(context.WithoutCancel(t.Context()), dir, role, "--planner", r.planner.address)
	launch(t, cmd)
	r.others = append(r.others, cmd)
}

func startPlanner(t testing.TB, dir, address string) *server {
	t.Helper()
	return start(t, command(context.WithoutCancel(t.Context()), dir, "planner", "job.yaml", "--listen", address, "--log-dir", "log", "--constructors", "2"))
}

// killPlanner kills the planner, as a machine that dies does.
func (r *roles) killPlanner() {
	r.planner.cmd.Process.Kill()
	<-r.planner.exited
}

// killAll kills the whole service. Whoever started a role sees it end.
func (r *roles) killAll() {
	r.killPlanner()
	for _, cmd := range r.others {
		cmd.Process.Kill()
	}
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

// TestServiceRestarts kills all roles of a running job and starts them again, the planner at
// the same address with the same log. Ranks that have the token of where they are join again
// and go on, with the bytes that the reference says.
func TestServiceRestarts(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startRoles(t, dir, freeAddress(t))
	var log lockedBuffer
	ranks := openRanks(t, r.planner, -1, slog.New(slog.NewTextHandler(&log, nil)))
	for step := range 12 {
		if step == 4 {
			for _, c := range ranks {
				if _, _, err := c.State(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			r.killAll()
			r = startRoles(t, dir, r.planner.address)
		}
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatal(failed)
		}
	}
	checkReference(t, dir, ranks[0])
	for _, want := range []string{"a request was lost, trying again", "the rank joined again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the ranks' log does not say %q:\n%s", want, log.String())
		}
	}
}

// TestRestartedWithDamagedLog kills the planner of a running job, damages its log and starts it again. Its loader and
// constructors go on without it, as they know an epoch and it has none; ranks, those that wait and those that join, and the
// status hear what is wrong with the log. With the log as it was all go on.
func TestRestartedWithDamagedLog(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startRoles(t, dir, freeAddress(t))
	ranks := openRanks(t, r.planner, 1, nil)
	for range 8 {
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatal(failed)
		}
	}
	token, _, err := ranks[0].State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.killPlanner()
	mark := filepath.Join(dir, "log", "HIGHWATER")
	whole, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "log/HIGHWATER", slices.Repeat([]byte{0x55}, len(whole)))
	r.planner = startPlanner(t, dir, r.planner.address)
	const words = "is damaged"
	if status := millrace(t, dir, "status", r.planner.address).stdout; !strings.Contains(status, "failed") || !strings.Contains(status, words) {
		t.Errorf("the status is\n%s", status)
	}
	_, err = open(t, r.planner, client.Options{Token: token})
	refused(t, err, words)
	var failed []error
	for step := 0; len(failed) < len(ranks); step++ {
		if step == 100 { // far more than were planned ahead
			t.Fatal("ranks go on without a planner")
		}
		failed = takeStep(t, ranks)
		for _, err := range failed {
			refused(t, err, words)
		}
	}
	for _, c := range ranks { // a step that one reads ahead is asked for again, which joins
		c.Close()
	}
	r.killPlanner()
	put(t, dir, "log/HIGHWATER", whole)
	r.planner = startPlanner(t, dir, r.planner.address)
	again := make([]*client.Client, 2)
	for dp := range again {
		if again[dp], err = open(t, r.planner, client.Options{Rank: client.Rank{DP: dp}, Token: token}); err != nil {
			t.Fatal(err)
		}
	}
	if failed := takeStep(t, again); failed != nil {
		t.Fatal(failed)
	}
	checkReference(t, dir, again[0])
}

// TestConstructorsAreLost kills one constructor, which another one stands in for, then starts
// one at another address, which takes the ranks over, and kills the one that was left, with a
// spare one there. The ranks go on at each, with the bytes that the reference says.
func TestConstructorsAreLost(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startRoles(t, dir, "127.0.0.1:0")
	ranks := openRanks(t, r.planner, 1, nil)
	status := func(wants ...string) {
		t.Helper()
		begin, text := time.Now(), ""
		for time.Since(begin) < hangs {
			text = millrace(t, dir, "status", r.planner.address).stdout
			if !slices.ContainsFunc(wants, func(want string) bool { return !regexp.MustCompile(want).MatchString(text) }) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Fatalf("the status does not say %q:\n%s", wants, text)
	}
	status(`\[0\]`, `\[1\]`)
	for step := range 16 {
		switch step {
		case 4:
			r.others[1].Process.Kill()
			status(`\[0 1\]`)
		case 8:
			r.add(t, dir, "constructor")
			status(`\[0\]`, `\[1\]`)
			r.add(t, dir, "constructor")
			status("spare")
		case 12:
			r.others[2].Process.Kill()
		}
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatal(failed)
		}
	}
	status(`\[0\]`, `\[1\]`)
	checkReference(t, dir, ranks[0])
}

// TestServiceRestartsWithoutTokens does the same to ranks that read ahead and have saved
// nothing: they say where they stand, which the log of the service leads to.
func TestServiceRestartsWithoutTokens(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := startRoles(t, dir, freeAddress(t))
	ranks := openRanks(t, r.planner, 0, nil)
	for step := range 16 {
		if step == 8 { // more than are planned ahead
			r.killAll()
			r = startRoles(t, dir, r.planner.address)
		}
		if failed := takeStep(t, ranks); failed != nil {
			t.Fatal(failed)
		}
	}
	checkReference(t, dir, ranks[0])
}

// checkReference compares what a rank was given so far with what the job defines.
func checkReference(t *testing.T, dir string, rank *client.Client) {
	t.Helper()
	_, digest, err := rank.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	printDigest(&got, rank.Step(), digest)
	if want := millrace(t, dir, "reference", "job.yaml", "--steps", strconv.FormatInt(rank.Step(), 10)).digest(t); strings.TrimSpace(got.String()) != want {
		t.Errorf("got %s, want %s", got.String(), want)
	}
}

// TestPlannerKilled kills the planner every few steps and starts it again; once another one
// stands by. Four ranks go on without an error, and without a word of another step.
func TestPlannerKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t, "topology: {dp: 2}", "topology: {dp: 2, cp: 2}")
	planner := func(more ...string) *exec.Cmd {
		return command(context.WithoutCancel(t.Context()), dir, append([]string{"planner", "job.yaml", "--log-dir", "log", "--constructors", "2", "--loaders", "3"}, more...)...)
	}
	first, second := freeAddress(t), freeAddress(t)
	p := start(t, planner("--listen", first))
	for _, role := range []string{"loader", "loader", "loader", "constructor", "constructor"} {
		launch(t, command(context.WithoutCancel(t.Context()), dir, role, "--planner", first+","+second))
	}
	var ranks []*client.Client
	for i := range 4 {
		c, err := open(t, &server{address: first + "," + second}, client.Options{Rank: client.Rank{DP: i / 2, CP: i % 2}})
		if err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, c)
	}
	var standby *exec.Cmd
	var over <-chan struct{} // the standby has ended
	for step := range 40 {
		if step%7 == 5 {
			if step == 19 {
				standby = planner("--listen", second, "--standby")
				over = launch(t, standby)
			}
			p.cmd.Process.Kill()
			<-p.exited
			if step != 19 {
				if standby != nil {
					standby.Process.Kill()
					<-over
					standby = nil
				}
				begin := time.Now()
				p = start(t, planner("--listen", first))
				t.Logf("step %d: a planner serves %v after the one before was killed", step, time.Since(begin).Round(time.Millisecond))
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
	if out := millrace(t, dir, "status", first, "--json").stdout; !strings.Contains(out, `"generation":0,`) && !strings.Contains(out, `"generation": 0,`) {
		t.Errorf("the job was moved:\n%s", out)
	}
}

// launch starts a role and ends it with the test.
func launch(t testing.TB, cmd *exec.Cmd) (over <-chan struct{}) {
	t.Helper()
	var said bytes.Buffer
	if cmd.Stderr == nil {
		cmd.Stderr = &said
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		if <-ended; t.Failed() {
			t.Logf("%s: %v\n%s", cmd, cmd.ProcessState, said.Bytes())
		}
	})
	return ended
}

// freeAddress is one that nobody listens on, and that no other process is given by chance while whoever listens there
// is started again.
func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := faultproxy.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// TestSlowestRank has a rank that waits for the other one of its DP index: the status and
// its own error name the other one, and the error says how long it waited in all.
func TestSlowestRank(t *testing.T) {
	t.Parallel()
	dir := folder(t, "topology: {dp: 2}", "topology: {dp: 1, cp: 2}")
	s := serve(t, dir)
	const deadline = 8 * time.Second // in which the job starts, too
	var ranks [2]*client.Client
	for cp := range ranks {
		var err error
		if ranks[cp], err = open(t, s, client.Options{Rank: client.Rank{CP: cp}, Prefetch: -1, Deadline: deadline}); err != nil {
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
	var took time.Duration
	for err == nil {
		begin := time.Now()
		_, err = ranks[0].Next(t.Context())
		took = time.Since(begin)
	}
	slowest := "rank dp=0 cp=1 pp=0 tp=0 is at step 1"
	if !strings.Contains(err.Error(), slowest) {
		t.Errorf("the one who waits says %v", err)
	}
	m := regexp.MustCompile(`waited (\d+) s`).FindStringSubmatch(err.Error())
	if m == nil {
		t.Fatalf("after %v it says %v", took, err)
	}
	if waited, _ := time.ParseDuration(m[1] + "s"); waited < deadline || waited > took.Round(time.Second) {
		t.Errorf("after %v it says %v", took, err)
	}
	if r := millrace(t, dir, "status", s.address); !strings.Contains(r.stdout, "trainers: "+slowest) {
		t.Errorf("the status says\n%s", r.stdout)
	}
}
