package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

// twoSources is a job of which three quarters are words.
func twoSources(t testing.TB) *jobspec.Job {
	t.Helper()
	job, findings := jobspec.Parse("job.yaml", []byte(good), t.TempDir())
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return job
}

// progressTo is a progress that prints to a buffer, as on a terminal of some
// width, or as to a file if that is 0.
func progressTo(t testing.TB, width int) (*progress, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	return newProgress(&out, width, twoSources(t), 100, false), &out
}

// stepOf is step n: 400 tokens in room for 512.
func stepOf(n int64, wait time.Duration) trainer.Step {
	return trainer.Step{
		Step: n, Tokens: 400, Room: 512, Bytes: 1000, Wait: wait,
		Sources: map[string]int64{"words": 320, "notes": 80}, Digest: [32]byte{byte(n)},
	}
}

func TestProgressTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := progressTo(t, 0)
		time.Sleep(time.Hour) // start-up, which is no time of the run
		for n := range int64(4) {
			time.Sleep(250 * time.Millisecond)
			p.step(stepOf(n, 250*time.Millisecond))
		}
		time.Sleep(time.Hour) // shut-down
		if p.took() != time.Second {
			t.Errorf("4 steps of 250ms took %v", p.took())
		}
		if p.rate() != 1600 {
			t.Errorf("1600 tokens in 1s are %v a second", p.rate())
		}
	})
}

func TestProgressLines(t *testing.T) {
	const full = "step 4 of 100  1.60 k tokens/s  78.1 % full  words 80.0/75.0 %  notes 20.0/25.0 %"
	for _, c := range []struct {
		width int
		want  string
	}{
		{0, full + "\n"},
		{120, "\r\x1b[K" + full},
		{len(full) + 1, "\r\x1b[K" + full},
		{len(full), "\r\x1b[Kstep 4 of 100  1.60 k tokens/s  78.1 % full  words 80.0/75.0 %  +1 more"},
		{56, "\r\x1b[Kstep 4 of 100  1.60 k tokens/s  78.1 % full  +2 more"},
		{20, "\r\x1b[Kstep 4 of 100  1.60"},
		{1, "\r\x1b[K"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, out := progressTo(t, c.width)
			p.every = time.Second
			for n := range int64(4) {
				time.Sleep(250 * time.Millisecond)
				p.step(stepOf(n, 250*time.Millisecond))
			}
			if got := out.String(); got != c.want {
				t.Errorf("width %d: %q\nwant %q", c.width, got, c.want)
			}
		})
	}
}

func TestProgressResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := progressTo(t, 0)
		time.Sleep(time.Second)
		p.step(stepOf(40, time.Second))
		if got := p.line(); !strings.HasPrefix(got, "step 41 (1 of 100)  400 tokens/s") {
			t.Errorf("after a resume: %s", got)
		}
		p.steps = 0
		if got := p.line(); !strings.HasPrefix(got, "step 41  400 tokens/s") {
			t.Errorf("without an end: %s", got)
		}
	})
}

// TestWatch stalls: the line says what for, and a job that failed ends the run.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, out := progressTo(t, 80)
		var calls, failed atomic.Int64
		stop := p.watch(t.Context(), func(context.Context) (status.Service, error) {
			switch calls.Add(1) {
			case 1:
				return status.Service{WaitingFor: `source "words" to be indexed`}, nil
			case 2:
				return status.Service{}, errors.New("not there")
			}
			return status.Service{Error: "the disk is full", Class: "lost"}, nil
		}, func() { failed.Add(1) })
		time.Sleep(10 * watchEvery)
		stop()
		if got := out.String(); got != "\r\x1b[Kstep 0  waiting for source \"words\" to be indexed" {
			t.Errorf("a stalled run prints %q", got)
		}
		if failed.Load() != 1 || calls.Load() != 3 {
			t.Errorf("failed was called %d times, the status asked for %d times", failed.Load(), calls.Load())
		}
	})
}

// TestWaitingWhole: what a run waits for is shown whole, however long it is.
func TestWaitingWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, out := progressTo(t, 40)
		what := "block 0 to be read by loader-0; asking http://scorer:8000: connection refused"
		for range 2 {
			time.Sleep(time.Minute)
			p.told(status.Service{WaitingFor: what})
		}
		want := "\r\x1b[Kstep 0  waiting for " + what + "\n"
		if got := out.String(); got != want+want {
			t.Errorf("it prints %q, want %q twice", got, want)
		}
	})
}

// TestWatchMoving says nothing while steps come, and stops on request.
func TestWatchMoving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, out := progressTo(t, 80)
		stop := p.watch(t.Context(), func(context.Context) (status.Service, error) { return status.Service{WaitingFor: "trainers"}, nil },
			func() { t.Error("a job that runs has failed") })
		for n := range int64(50) {
			time.Sleep(100 * time.Millisecond)
			p.step(stepOf(n, 0))
		}
		stop()
		if strings.Contains(out.String(), "waiting") {
			t.Errorf("a run that moves prints %q", out.String())
		}
	})
}

func TestFailureOf(t *testing.T) {
	for class, want := range map[string]fault.Class{"user": fault.User, "lost": fault.Lost, "bug": fault.Bug} {
		err := failureOf(status.Service{Error: "it is broken", Class: class}, nil)
		if err == nil || err.Error() != "it is broken" || fault.ClassOf(err) != want {
			t.Errorf("a failure of class %s is %v of class %v", class, err, fault.ClassOf(err))
		}
	}
	if err := failureOf(status.Service{State: "running"}, nil); err != nil {
		t.Errorf("a job that runs has failed: %v", err)
	}
	if err := failureOf(status.Service{}, errors.New("nobody there")); err != nil {
		t.Errorf("nobody to ask is taken for a failure: %v", err)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 7.4: "7", 999: "999", 999.4: "999", 999.6: "1.00 k", 1234: "1.23 k", 12345: "12.3 k", 99950: "100 k",
		123456: "123 k", 999600: "1.00 M", 2.5e9: "2.50 G", 7.1e15: "7100 T",
	} {
		if got := short(v); got != want {
			t.Errorf("short(%v) is %q, want %q", v, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 12: "12", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) is %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		1234567: "1.23ms", 1500123456: "1.5s", 61*time.Second + 400*time.Millisecond: "1m1s",
	} {
		if got := fmt.Sprint(elapsed(d)); got != want {
			t.Errorf("elapsed(%d) is %s, want %s", d, got, want)
		}
	}
}

// TestReread: a run says why blocks were read more than once, if any were.
func TestReread(t *testing.T) {
	p, out := progressTo(t, 0)
	p.status.Loaders = []status.Loader{{ID: "a", BlocksRead: 9, DiskBytes: 5}}
	p.reread()
	if out.Len() > 0 {
		t.Errorf("nothing was read again: %s", out)
	}
	p.status.Loaders = []status.Loader{
		{ID: "a", BlocksRead: 9, Rereads: 2, BudgetBytes: 64 << 20, DiskBudget: 1 << 30},
		{ID: "b", BlocksRead: 9, Rereads: 3, DiskProblem: "no space left on device"},
	}
	p.reread()
	for _, want := range []string{"a read 2 of 9 blocks again", "loader_buffer (64.0 MiB) and loader_disk (1024.0 MiB)", "b read 3 of 9", "local disk: no space left on device"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the summary does not say %q:\n%s", want, out)
		}
	}
}
