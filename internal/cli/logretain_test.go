package cli

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
)

// TestLogRetain runs a job whose log keeps 256 steps, with a mirror that is checked all the time
// and a planner on another machine that stands by. The first planner is killed at a cut:
// the other one goes on, and cuts. A token of above the cut leads to the same batches again, one
// of below it is refused.
func TestLogRetain(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	mirror := "file://" + filepath.Join(dir, "mirror")
	planner := func(log, address string, more ...string) *exec.Cmd {
		args := []string{"planner", "job.yaml", "--log-dir", log, "--log-mirror", mirror, "--log-retain", "256", "--listen", address}
		return command(context.WithoutCancel(t.Context()), dir, append(args, more...)...)
	}
	first, second := start(t, planner("log1", freeAddress(t))), freeAddress(t)
	both := &server{address: first.address + "," + second}
	launch(t, planner("log2", second, "--standby"))
	for _, role := range []string{"loader", "constructor"} {
		launch(t, command(context.WithoutCancel(t.Context()), dir, role, "--planner", both.address))
	}
	checked := checkMirrorLive(t, dir, mirror)
	ranks := openRanks(t, both, 4, nil)
	tokens := map[int64][]byte{}
	steps := func(to int64) {
		for ranks[0].Step() < to {
			if failed := takeStep(t, ranks); failed != nil {
				t.Fatalf("step %d: %v", ranks[0].Step(), failed)
			}
		}
		tokens[to], _ = stateOf(t, ranks)
	}
	steps(100)
	steps(256 + 256 + 20) // of all but the last few all ranks are done: the first cut is made about now
	if err := first.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	steps(700)
	steps(900)
	steps(1100)
	checked()
	checkReference(t, dir, ranks[0])
	_, want := stateOf(t, ranks)

	goOn := func(at int64) error {
		for dp := range 2 {
			c, err := open(t, both, client.Options{Rank: client.Rank{DP: dp}, Token: tokens[at]})
			if err != nil {
				return err
			}
			ranks[dp].Close()
			ranks[dp] = c
		}
		return nil
	}
	for _, below := range []int64{100, 700} {
		if err := goOn(below); err == nil || !strings.Contains(err.Error(), "--log-retain") || !strings.Contains(err.Error(), "first step is 768") {
			t.Errorf("the token of step %d is below the cut: %v", below, err)
		}
	}
	steps(1101) // nobody was moved by that
	if err := goOn(900); err != nil {
		t.Fatal(err)
	}
	steps(1100)
	if _, got := stateOf(t, ranks); got != want {
		t.Errorf("the chain value of step 1100 is %x, and again %x", want, got)
	}
	steps(1102)
	checkReference(t, dir, ranks[0])
	for _, c := range ranks {
		c.Close()
	}
	for most, where := range map[int][]string{256: {"--log-dir", "log1"}, 768: {"--log-mirror", mirror}} {
		got := firstHeld(t, dir, where...)
		for end := time.Now().Add(hangs); most == 768 && got == 0 && time.Now().Before(end); { // the mirror is cut beside the steps
			time.Sleep(100 * time.Millisecond)
			got = firstHeld(t, dir, where...)
		}
		if got > most || most == 768 && got == 0 {
			t.Errorf("%v begins with step %d, want one up to %d that has a key frame, and not the first one of the job after step 1024", where, got, most)
		}
		millrace(t, dir, append([]string{"log", "check"}, where...)...).expect(t, 0)
	}
	millrace(t, dir, "verify", "job.yaml", "--log-dir", "log1").expect(t, 0)
}

// TestLogRetainUsage refuses what would retain too little, or of no log.
func TestLogRetainUsage(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, verb := range []string{"serve", "planner"} {
		for _, n := range []string{"1", "255", "-1"} {
			millrace(t, dir, verb, "job.yaml", "--log-dir", "log", "--log-retain="+n).expect(t, exitUsage, "--log-retain is "+n, "256 or more", "256 steps at a time")
		}
		millrace(t, dir, verb, "job.yaml", "--log-retain", "256").expect(t, exitUsage, "--log-dir")
	}
}

// TestUnusedFlags refuses what is said of what is not there.
func TestUnusedFlags(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, verb := range []string{"serve", "planner"} {
		millrace(t, dir, verb, "job.yaml", "--shadow-mode", "hot").expect(t, exitUsage, "give --shadows, too")
	}
	millrace(t, dir, "planner", "job.yaml", "--mirror-proved", "--log-dir", "log").expect(t, exitUsage, "of --log-mirror: give both")
}

func stateOf(t *testing.T, ranks []*client.Client) (token []byte, digest [32]byte) {
	t.Helper()
	for _, c := range ranks {
		var err error
		if token, digest, err = c.State(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return token, digest
}

var stepLine = regexp.MustCompile(`(?m)^ *(?:\d+  )?step +step (\d+) `)

// firstHeld is the first step that `log read` prints.
func firstHeld(t *testing.T, dir string, where ...string) int {
	t.Helper()
	r := millrace(t, dir, append([]string{"log", "read"}, where...)...)
	if r.code == exitUser && strings.Contains(r.stderr, "let go of its oldest steps while they were read: read it again") {
		return firstHeld(t, dir, where...)
	}
	r.expect(t, 0)
	m := stepLine.FindStringSubmatch(r.stdout)
	if m == nil {
		t.Fatalf("log read %v prints no step:\n%.400s", where, r.stdout)
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// checkMirrorLive checks a mirror again and again while it is written, until the returned function
// is called, which says what was wrong.
func checkMirrorLive(t *testing.T, dir, mirror string) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			out, err := command(context.WithoutCancel(ctx), dir, "log", "check", "--log-mirror", mirror).CombinedOutput()
			if ctx.Err() != nil || err != nil && !strings.Contains(string(out), "there is no mirror") {
				if ctx.Err() != nil && n > 0 {
					err = nil
				}
				if err != nil {
					err = fmt.Errorf("the check no. %d: %w: %s", n, err, out)
				}
				done <- err
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
