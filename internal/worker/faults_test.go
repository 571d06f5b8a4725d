package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// TestDeadlyRows: a row that ends its worker is found, and the others come out.
func TestDeadlyRows(t *testing.T) {
	opt := options(t)
	opt.Memory, opt.MemoryDecides, opt.TimeoutDecides = 256<<20, true, true
	e := open(t, opt)
	opt.Timeout = 500 * time.Millisecond
	quick := open(t, opt)
	for row, want := range map[string]string{
		"exit":               "its worker ended with exit status 3",
		"segv":               "its worker ended by signal 11 (segmentation fault)",
		"abrt":               "its worker ended by signal 6 (aborted)",
		"hang":               "it took longer than 500ms",
		"closes":             "it closed the connection of its worker, as os.closerange and os.exec do",
		"closes and goes on": "it closed the connection of its worker, as os.closerange and os.exec do",
		"hog":                "it held more memory than its limit of 256 MiB",
	} {
		in := e
		if row == "closes and goes on" && !canLimit { // nothing tells that its worker is still there
			continue
		}
		if row == "hang" {
			in = quick
		}
		got := called(t, function(t, in, "dies"), texts("a", "b", row, "c"))
		if len(got) != 4 || got[0] != `0:0 "a"` || got[1] != `1:10 "b"` || got[3] != `3:30 "c"` || !strings.HasPrefix(got[2], "2:20 user ") || !strings.Contains(got[2], want) {
			t.Errorf("%s gives\n\t%s", row, strings.Join(got, "\n\t"))
		}
	}
	if s := e.Status(); s.Restarts < 6 || s.LastDeath == "" || !strings.Contains(s.Runtime, ", NumPy ") || s.Busy != 0 || s.Waiting != 0 {
		t.Errorf("%+v after three rows that end workers", s)
	}
}

// TestLimits: a row that takes too long or too much memory stops the job, unless the limit is part of that.
func TestLimits(t *testing.T) {
	opt := options(t)
	opt.Memory = 256 << 20
	large := open(t, opt)
	opt.Timeout = 1500 * time.Millisecond
	quick := open(t, opt)
	for row, want := range map[string]string{
		"hang": "function steps:dies: row 10: it took longer than 1.5s: change the function, or give its step a limit in the spec, such as `timeout: 2`; a row",
		"hog":  "function steps:dies: row 10: it held more memory than its limit of 256 MiB: change the function, or give its step a limit in the spec, such as `memory: 512MiB`; a row",
	} {
		e := large
		if row == "hang" {
			e = quick
		}
		_, _, err := function(t, e, "dies").Call(t.Context(), texts("a", row))
		if err == nil || fault.ClassOf(err) != fault.User || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v (%v)", row, err, fault.ClassOf(err))
		}
	}
}

// TestLost: rows whose workers are lost to something else again and again end the call, once and for all.
func TestLost(t *testing.T) {
	_, _, err := function(t, open(t, options(t)), "dies").Call(format.WithFile(t.Context(), 3), texts("a", "kill", "b"))
	lost, ok := errors.AsType[*LostError](err)
	if !ok || fault.ClassOf(err) != fault.Lost || !errors.Is(err, fault.ErrTried) {
		t.Fatalf("%v (%v)", err, fault.ClassOf(err))
	}
	why := "its worker ended by signal 9 (killed); it last printed: so long"
	if want := (LostError{"steps:dies", "web", "transforms[1]", 3, 10, 10, outsideDeaths, why}); *lost != want {
		t.Errorf("%+v", *lost)
	}
	if want := "function steps:dies: row 10: 8 workers in a row were lost, the last one: " + why; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRest: no call waits for the end of the rest that workers have which die before they work.
func TestRest(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e := &Environment{called: make(chan struct{}, 1)}
	caller, end := context.WithCancel(ctx)
	var call sync.WaitGroup
	call.Go(func() { _, _ = e.acquire(caller, &Function{env: e}, 1, false) })
	if e.rest(ctx, time.Hour); ctx.Err() != nil {
		t.Error("a call waits for a worker that rests")
	}
	end()
	call.Wait()
}

// TestIdleMemory: the kernel is not asked for ever what a worker holds that does nothing.
func TestIdleMemory(t *testing.T) {
	if !canLimit {
		t.Skip("memory is not known on this system")
	}
	p := &process{pid: os.Getpid()}
	for range idleLooks {
		if p.own = -1; p.private() <= 0 {
			t.Error("a worker that worked just now is not looked at")
		}
	}
	if p.own = -1; p.private() != -1 {
		t.Error("a worker is looked at that has done nothing")
	}
	p.calls++
	if p.private() <= 0 {
		t.Error("a worker that worked again is not looked at")
	}
}

// TestPressed: what workers hold beyond their setup counts; under pressure one call runs at a time, batches are
// small, and idle workers that hold much make room for new ones. The rows are the same.
func TestPressed(t *testing.T) {
	e := open(t, options(t))
	f := function(t, e, "hoards")
	until := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %d MiB are held, %d workers were started again", what, e.Held()>>20, e.Status().Restarts)
			}
		}
	}
	expect(t, called(t, f, texts("a", "100", "b")), `0:0 "a"`, `1:10 "100"`, `2:20 "b"`)
	until("after a row that takes 100 MiB", func() bool { return e.Held() > 60<<20 })
	if e.Status().Restarts != 0 {
		t.Error("without pressure a worker was ended")
	}
	e.Press(t, true)
	until("under pressure", func() bool { return e.Held() == 0 && e.Status().Restarts > 0 && e.shift.Load() == mostShift })
	var calls sync.WaitGroup
	for range 6 {
		calls.Go(func() {
			if out, from, err := f.Call(t.Context(), texts("c", "d")); err != nil || len(said(out, from)) != 2 {
				t.Error(err)
			}
		})
	}
	most := 0
	until("one at a time", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		most = max(most, e.taken)
		return e.taken == 0 && len(e.waiting) == 0
	})
	calls.Wait()
	if most > 1 {
		t.Errorf("%d calls at a time", most)
	}
	e.Press(e, true)
	e.Press(t, false)
	e.Press(e, false)
	until("without pressure", func() bool { return e.shift.Load() == 0 })
	expect(t, called(t, f, texts("a")), `0:0 "a"`)
}

// TestJudge: what a death says of the rows that a worker had.
func TestJudge(t *testing.T) {
	own, used := &Death{Working: true, Fresh: true}, &Death{Working: true}
	slow, outside, other := &Death{Working: true, Slow: true, Fresh: true}, &Death{Working: true, Outside: true, Fresh: true}, &Death{}
	setup, late := &Death{Setup: true, Fresh: true}, &Death{Setup: true}
	times := func(n int, d *Death) (many []*Death) {
		for range n {
			many = append(many, d)
		}
		return many
	}
	for name, test := range map[string]struct {
		deaths []*Death
		many   verdict // of several rows
		alone  verdict // of one
	}{
		"once":                           {times(1, own), tryAgain, tryAgain},
		"twice":                          {times(2, own), divide, tryAgain},
		"three times":                    {times(3, own), divide, blame},
		"three times, after other work":  {times(3, used), divide, tryAgain},
		"the last time in a new worker":  {append(times(2, used), own), divide, blame},
		"never in a new worker":          {times(20, used), divide, tryAgain},
		"too slow":                       {times(1, slow), divide, tryAgain},
		"too slow again":                 {times(2, slow), divide, blame},
		"killed from outside":            {times(1, outside), tryAgain, tryAgain},
		"killed twice from outside":      {times(2, outside), divide, tryAgain},
		"killed from outside and itself": {append(times(6, outside), own), divide, tryAgain},
		"killed without end":             {times(outsideDeaths, outside), giveUp, giveUp},
		"for others":                     {times(otherDeaths-1, other), tryAgain, tryAgain},
		"for others without end":         {times(otherDeaths, other), giveUp, giveUp},
		"by setups":                      {times(ownDeaths, setup), setupFails, setupFails},
		"by a setup after other work":    {times(1, late), tryAgain, tryAgain},
		"by that in a new worker, too":   {[]*Death{late, setup}, setupFails, setupFails},
	} {
		for alone, want := range map[bool]verdict{false: test.many, true: test.alone} {
			var j trial
			got := tryAgain
			for i, d := range test.deaths {
				if got = j.judge(d, alone); got == divide && test.many == giveUp && i+1 < len(test.deaths) {
					continue // its parts would go on
				}
			}
			if got != want {
				t.Errorf("%s (alone: %t): %d, want %d", name, alone, got, want)
			}
		}
	}
}

// TestKills: whatever is killed from outside, the results are those of a quiet run.
func TestKills(t *testing.T) {
	e := open(t, options(t))
	e2opt := options(t)
	e2opt.Workers = 1
	e2 := open(t, e2opt) // another environment, which is left alone
	in := make([]*format.Batch, 40)
	want := make([][]string, len(in))
	for i := range in {
		var lines []string
		for j := range 50 {
			lines = append(lines, fmt.Sprintf("text %d of batch %d", j, i))
		}
		in[i] = texts(lines...)
		want[i] = called(t, function(t, e2, "drawn"), in[i])
	}
	f := function(t, e, "drawn") // before anything dies
	ctx, stop := context.WithCancel(t.Context())
	var killer sync.WaitGroup
	var since atomic.Int64 // kills since the last call that ended: on a slow machine nothing would end before the next kill
	kills := 0
	killer.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		for ctx.Err() == nil {
			if pids := e.pids(); len(pids) > 1 && since.Load() < 6 {
				pid := pids[random.IntN(len(pids))]
				if kills%6 == 5 {
					pid = pids[0] // the fork server
				}
				_ = unix.Kill(pid, []unix.Signal{unix.SIGKILL, unix.SIGABRT, unix.SIGTERM, unix.SIGINT}[random.IntN(4)])
				kills++
				since.Add(1)
			}
			sleep(ctx, 30*time.Millisecond)
		}
	})
	for end, round := time.Now().Add(3*time.Second), 0; time.Now().Before(end) || round < 2; round++ {
		var calls sync.WaitGroup
		for i := range in {
			calls.Go(func() {
				out, from, err := f.Call(format.WithFile(t.Context(), 1), in[i])
				since.Store(0)
				if err != nil {
					t.Errorf("batch %d: %v", i, err)
				} else if got := said(out, from); !reflect.DeepEqual(got, want[i]) {
					t.Errorf("batch %d is %q", i, got)
				}
			})
		}
		calls.Wait()
	}
	stop()
	killer.Wait()
	if s := e.Status(); kills < 5 || s.Restarts == 0 {
		t.Errorf("%d kills, %+v", kills, s)
	}
}

// pids are the fork server's number, then those of its workers.
func (e *Environment) pids() (pids []int) {
	e.mu.Lock()
	s := e.server
	e.mu.Unlock()
	if s == nil {
		return nil
	}
	pids = append(pids, s.cmd.Process.Pid)
	for _, p := range s.processes() {
		pids = append(pids, p.pid)
	}
	return pids
}

// TestNoNetwork: a function sees the loopback at the most.
func TestNoNetwork(t *testing.T) {
	e := open(t, options(t))
	if !e.Status().NoNetwork {
		t.Skip("this user may not take the network away")
	}
	expect(t, called(t, function(t, e, "network"), texts("a")), `0:0 "lo"`)
	for i, got := range called(t, function(t, e, "fetched"), texts("plain", "wrapped")) {
		if what := []string{"Network is unreachable", "RuntimeError: no answer"}[i]; !strings.Contains(got, what) || !strings.Contains(got, "write network: true") {
			t.Errorf("what comes of no network is %s", got)
		}
	}
	opt := options(t)
	opt.Network = true
	e = open(t, opt)
	if got := called(t, function(t, e, "network"), texts("a")); got[0] == `0:0 "lo"` {
		t.Skip("this machine has no network")
	}
}

// TestGarbage: memory that is overwritten is an error or a lost worker, never another result.
func TestGarbage(t *testing.T) {
	e := open(t, options(t))
	f := function(t, e, "spoils")
	for range 20 {
		out, from, err := f.Call(t.Context(), texts("garbage"))
		if err == nil {
			if got := said(out, from); len(got) != 1 || got[0] != `0:0 "garbage"` && !strings.HasPrefix(got[0], "0:0 user its worker ") {
				t.Errorf("%q", got)
			}
		} else if !strings.Contains(err.Error(), "function steps:spoils") || fault.ClassOf(err) == fault.Bug {
			t.Errorf("%v (%v)", err, fault.ClassOf(err))
		}
	}
}

// TestHugeRows: rows above a batch go alone, and their memory is given back.
func TestHugeRows(t *testing.T) {
	e := open(t, options(t))
	big := strings.Repeat("déjà vu ", 20<<20/10)
	in := texts("a", big, "b", strings.Repeat("x", 4<<20), "c")
	got := called(t, function(t, e, "upper"), in)
	if len(got) != 5 || got[1] != fmt.Sprintf("1:10 %q", strings.ToUpper(big)) || got[4] != `4:40 "C"` {
		t.Fatalf("%d rows", len(got))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.free {
		for _, m := range []*memory{s.in, s.out} {
			var st unix.Stat_t
			if err := unix.Fstat(int(m.file.Fd()), &st); err != nil || st.Blocks*512 > keptMemory+1<<20 {
				t.Errorf("a seat keeps %d bytes, %v", st.Blocks*512, err)
			}
		}
	}
}

// TestCancelled: a call whose context ends returns at once, and its seat comes back.
func TestCancelled(t *testing.T) {
	opt := options(t)
	opt.Workers, opt.Timeout = 1, 500*time.Millisecond
	e := open(t, opt)
	f := function(t, e, "dies")
	for tries := 1; ; tries++ { // a busy machine may stand still for as long as a call may take
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		begin := time.Now()
		_, _, err := f.Call(ctx, texts("hang"))
		took := time.Since(begin)
		if cancel(); err == nil || took > 400*time.Millisecond && tries == 10 {
			t.Errorf("%v after %v", err, took)
		}
		if err == nil || took <= 400*time.Millisecond || tries == 10 {
			break
		}
	}
	expect(t, called(t, f, texts("a")), `0:0 "a"`)
}

// TestSlow: a batch that takes too long is divided, and the next ones are small at once,
// until they take little again.
func TestSlow(t *testing.T) {
	opt := options(t)
	opt.Timeout, opt.BatchBytes = time.Second, 1<<15
	e := open(t, opt)
	f := function(t, e, "slow")
	of := func(word string) *format.Batch {
		lines := make([]string, 60)
		for i := range lines {
			lines[i] = word + strings.Repeat(" ", 500)
		}
		return texts(lines...)
	}
	for range 2 {
		if got := called(t, f, of("slow")); len(got) != 60 || strings.Contains(strings.Join(got, ""), "user") {
			t.Fatalf("%q", got)
		}
		if most := f.most.Load(); most >= int64(opt.BatchBytes) || most < 500 {
			t.Errorf("batches have %d bytes", most)
		}
	}
	for range 100 { // seven, where the machine has nothing else to do
		if called(t, f, of("fast")); f.most.Load() == int64(opt.BatchBytes) {
			break
		}
	}
	if most := f.most.Load(); most != int64(opt.BatchBytes) {
		t.Errorf("batches that take little time have %d bytes", most)
	}
}

// TestClosed: calls that wait end when the environment does.
func TestClosed(t *testing.T) {
	e, err := Open(t.Context(), options(t))
	if err != nil {
		t.Fatal(err)
	}
	f := function(t, e, "dies")
	done := make(chan error)
	for range 8 {
		go func() {
			_, _, err := f.Call(t.Context(), texts("hang"))
			done <- err
		}()
	}
	time.Sleep(50 * time.Millisecond)
	e.Close()
	for range 8 {
		if err := <-done; err == nil {
			t.Error("a call ended without an error")
		}
	}
}

func again(t *testing.T, file string) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, "-test.run", "^TestEndsWithLoader$")
	c.Env = append(os.Environ(), "MILLRACE_TEST_LOADER="+file)
	return c.Run()
}
