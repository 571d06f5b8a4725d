package worker

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace-data/millrace/internal/fault"
)

// crowded is a module with which the fork server gets no process while a file is there.
const crowded = `
import errno, os
import millrace

fork, there = os.fork, os.path.join(os.path.dirname(__file__), "full")

def none():
    if os.path.exists(there):
        raise BlockingIOError(errno.EAGAIN, "no more processes")
    return fork()

os.fork = none

@millrace.transform
def f(text: str) -> str:
    return text

@millrace.transform(needs={"gpu": 0.5})
def g(text: str) -> str:
    return text
`

// TestUnforkable: calls hear after some attempts that no worker can be forked, with a GPU or without, why, and where to look, and
// so do the log and the status; the fork server is the same, and once a worker can be forked it serves.
func TestUnforkable(t *testing.T) {
	for name, c := range map[string]struct{ function, problem string }{"without a GPU": {"full:f", "forking: "}, "with a GPU": {"full:g", "with a GPU: forking: "}} {
		t.Run(name, func(t *testing.T) {
			opt := options(t)
			var log syncLog
			gpus := NewGPUs([]GPU{{"GPU-a", 1 << 30}})
			opt.Workers, opt.Functions, opt.GPUs, opt.Log = 1, []string{c.function}, func() *GPUs { return gpus }, slog.New(slog.NewTextHandler(&log, nil))
			if c.function == "full:g" {
				opt.Workers = -1 // none but those with a GPU
			}
			file := filepath.Join(withModule(t, &opt, "full", crowded), "full")
			if err := os.WriteFile(file, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			e := open(t, opt)
			f, err := e.Function(t.Context(), Use{Name: c.function})
			if err != nil {
				t.Fatal(err)
			}
			begins, ends := "function "+c.function+": no worker can be started, after ", " attempts in a row: forking: resource temporarily unavailable: "
			_, _, err = f.Call(t.Context(), texts("a"))
			if fault.ClassOf(err) != fault.Lost || !errors.Is(err, fault.ErrTried) || !strings.HasPrefix(err.Error(), begins) || !strings.Contains(err.Error(), ends) || !strings.Contains(err.Error(), "ulimit -u") {
				t.Fatalf("%v (%v), want %sN%s", err, fault.ClassOf(err), begins, ends)
			}
			if s := e.Status(); s.Restarts != 0 || s.Waiting != 0 || !strings.Contains(s.Problem, c.problem) {
				t.Errorf("%+v", s)
			}
			if text := log.String(); !strings.Contains(text, "forking a worker") {
				t.Errorf("the log has nothing of it:\n%s", text)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			until(t, "no worker is forked", func() bool { return e.Status().Problem == "" })
			expect(t, called(t, f, texts("a")), `0:0 "a"`)
		})
	}
}

// syncLog is a log that may be read while it is written.
type syncLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *syncLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// nowhere is a pool that is asked for nothing.
type nowhere struct{}

func (nowhere) Name() string { return "nowhere" }

func (nowhere) Run(context.Context, Attempt) (Outcome, error) { return Outcome{}, fs.ErrClosed }

// TestUnforked: nobody hears of workers that cannot be forked who is served by another one, by a pool, or by workers with a GPU.
func TestUnforked(t *testing.T) {
	e := &Environment{described: map[string]Description{}, forks: map[Need]*forking{}}
	s := &server{}
	here, there, gpu := &waiter{function: "here"}, &waiter{function: "there"}, &waiter{function: "here", need: Need{Thousandths: 500}}
	for _, w := range []*waiter{here, there, gpu} {
		w.seat = make(chan *seat, 1)
		e.waiting = append(e.waiting, w)
	}
	e.far = []*far{{pool: nowhere{}, functions: []string{"there"}, workers: 1, taken: seatsEach}}
	fails := func(times int) {
		for range times {
			e.unforked(t.Context(), s, Need{}, 2, syscall.EMFILE)
		}
	}
	waits := func(what string, want ...*waiter) {
		t.Helper()
		if !slices.Equal(e.waiting, want) {
			t.Errorf("%s %d calls wait, want %d", what, len(e.waiting), len(want))
		}
	}
	other := &process{server: s}
	s.enter(other)
	if fails(100); e.Status().Problem == "" {
		t.Error("the status does not say why workers are lacking")
	}
	waits("beside another worker", here, there, gpu)
	s.leave(other)
	fails(2*maxStarts - 1)
	waits("after too few attempts", here, there, gpu)
	e.unforked(t.Context(), s, Need{}, 2, ErrRestarting)
	waits("of a server that is gone", here, there, gpu)
	fails(1)
	waits("of those that others serve", there, gpu)
	if <-here.seat != nil || !errors.Is(here.err, syscall.EMFILE) {
		t.Errorf("a call hears %v", here.err)
	}
	if _, err := e.acquire(t.Context(), &Function{env: e, use: Use{Name: "here"}}, 1, false); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("a later call hears %v", err)
	}
	e.Leave(nowhere{})
	fails(1)
	waits("when a pool has left", there, gpu)
	fails(2*maxStarts - 1)
	waits("when it is not back", gpu)
	for range maxStarts - 1 {
		e.unforked(t.Context(), s, gpu.need, 1, syscall.EAGAIN)
	}
	waits("after too few attempts with a GPU", gpu)
	e.unforked(t.Context(), s, gpu.need, 1, syscall.EAGAIN)
	waits("after as many as there are")
	if <-gpu.seat != nil || !errors.Is(gpu.err, syscall.EAGAIN) {
		t.Errorf("a call with a GPU hears %v", gpu.err)
	}
	if problem := e.Status().Problem; problem != syscall.EMFILE.Error()+"; with a GPU: "+syscall.EAGAIN.Error() {
		t.Errorf("the problem is %q", problem)
	}
	e.forked(Need{})
	if problem := e.Status().Problem; problem != "with a GPU: "+syscall.EAGAIN.Error() {
		t.Errorf("when others can be forked, the problem is %q", problem)
	}
}

// TestUsedUp: an error of a limit says which.
func TestUsedUp(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	low := before
	low.Cur = firstMemory / 2
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &low); err != nil {
		t.Fatal(err)
	}
	_, err := (&server{}).fork(t.Context(), nil)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "growing shared memory to 2097152 bytes: ") || !strings.Contains(err.Error(), "ulimit -f") {
		t.Errorf("%v (%v)", err, fault.ClassOf(err))
	}
	if err := unstarted(syscall.EAGAIN); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "ulimit -u") {
		t.Errorf("%v (%v)", err, fault.ClassOf(err))
	}
	if err := unstarted(fs.ErrNotExist); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "give the interpreter's path") {
		t.Errorf("%v (%v)", err, fault.ClassOf(err))
	}
}
