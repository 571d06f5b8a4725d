package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/millrace-data/millrace/internal/fault"
)

// A worker that cannot be forked is tried again for as long as its environment is there: files, processes and memory that are
// lacking may come back. Calls do not wait for that: where there is no worker, and none came after maxStarts attempts of each,
// they hear why, those that a pool serves excepted.

// unforked notes that a worker without a GPU could not be forked.
func (e *Environment) unforked(ctx context.Context, s *server, err error) {
	if ctx.Err() != nil || errors.Is(err, ErrRestarting) { // nobody began with it
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problem = err.Error()
	if slices.ContainsFunc(s.processes(), func(p *process) bool { return !p.need.any() }) {
		return // it works on what others would
	}
	if e.failures++; e.failures < maxStarts*e.opt.Workers {
		return
	}
	e.unforkable = fault.Lostf("no worker can be started, after %d attempts in a row: %w", e.failures, err)
	e.dismiss()
}

// forked notes that workers can be forked. The caller has mu.
func (e *Environment) forked() { e.failures, e.unforkable, e.problem = 0, nil, "" }

// hopeless is why a call need not wait for a seat; nil: it may get one. The caller has mu.
func (e *Environment) hopeless(w *waiter) error {
	if e.failure != nil || w.need.any() || slices.ContainsFunc(e.far, func(f *far) bool { return slices.Contains(f.functions, w.function) }) {
		return e.failure
	}
	return e.unforkable
}

// dismiss has those hear why who wait in vain. The caller has mu.
func (e *Environment) dismiss() {
	e.waiting = slices.DeleteFunc(e.waiting, func(w *waiter) bool {
		if w.err = e.hopeless(w); w.err != nil {
			w.seat <- nil
		}
		return w.err != nil
	})
}

// limits are what a system says when there is no more of something, and where to look then.
var limits = []struct {
	errno syscall.Errno
	look  string
}{
	{syscall.EFBIG, "the limit on the size of files (ulimit -f) is below the memory that a worker shares, which is 2 MiB at least and as much as the largest batch: raise it"},
	{syscall.EMFILE, "this process has as many files open as it may (ulimit -n): raise that, or lower resources.python_workers"},
	{syscall.ENFILE, "all processes of this machine have as many files open as they may: raise fs.file-max (sysctl)"},
	{syscall.EAGAIN, "there are as many processes and threads as there may be, of this user (ulimit -u) or of this container (pids.max of its control group): raise that, or lower resources.python_workers"},
	{syscall.ENOMEM, "there is no memory for it: look at the limits of the container and of the process (ulimit -v), and at vm.overcommit_memory (sysctl), or lower resources.python_workers"},
	{syscall.ENOSPC, "there is no room in the folder for temporary files (TMPDIR): free some"},
}

// usedUp makes an error of what is used up one of class lost, and adds where to look.
func usedUp(err error) error {
	for _, l := range limits {
		if errors.Is(err, l.errno) {
			return fault.As(fault.Lost, fmt.Errorf("%w: %s", err, l.look))
		}
	}
	return err
}
