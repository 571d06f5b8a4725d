package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/millrace-data/millrace/internal/fault"
)

// A worker that cannot be forked is tried again for as long as its environment is there: files, processes and memory that are
// lacking may come back. Calls do not wait for that: where there is no worker, and none came after maxStarts attempts of each,
// they hear why, those that a pool serves excepted. Workers with a GPU, or a share of one, are counted by what they need.

// forking is how the forks of workers go that need the same of GPUs.
type forking struct {
	failures   int    // attempts in a row
	problem    string // why the last one failed; "": it did not
	unforkable error  // why calls do not wait for the next one; nil: they do
}

// unforked notes that a worker could not be forked, one of as many as there are to be with its need.
func (e *Environment) unforked(ctx context.Context, s *server, need Need, workers int, err error) {
	if ctx.Err() != nil || errors.Is(err, ErrRestarting) { // nobody began with it
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.forks[need]
	if f == nil {
		f = &forking{}
		e.forks[need] = f
	}
	f.problem = err.Error()
	if slices.ContainsFunc(s.processes(), func(p *process) bool { return p.need == need }) {
		return // it works on what others would
	}
	if f.failures++; f.failures < maxStarts*workers {
		return
	}
	f.unforkable = fault.Lostf("no worker can be started, after %d attempts in a row: %w", f.failures, err)
	e.dismiss()
}

// forked notes that workers with a need can be forked. The caller has mu.
func (e *Environment) forked(need Need) { delete(e.forks, need) }

// unforkedProblem is why workers were not forked at the last attempt; "" if they were. The caller has mu.
func (e *Environment) unforkedProblem() string {
	var all []string
	for need, f := range e.forks {
		switch {
		case f.problem == "":
		case need.any():
			all = append(all, "with a GPU: "+f.problem)
		default:
			all = append(all, f.problem)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}

// hopeless is why a call need not wait for a seat; nil: it may get one. The caller has mu.
func (e *Environment) hopeless(w *waiter) error {
	f := e.forks[w.need]
	if e.failure != nil || f == nil || slices.ContainsFunc(e.far, func(f *far) bool { return slices.Contains(f.functions, w.function) }) {
		return e.failure
	}
	return f.unforkable
}

// Unable is why calls of a function that was described end without a worker now, as none can be started here; nil: they do not.
func (e *Environment) Unable(function string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	d := e.described[function]
	need, _ := needOf(&d) // whoever opened it has seen the error
	return e.hopeless(&waiter{function: function, need: need})
}

// dismiss has those hear why who wait in vain. The caller has mu.
func (e *Environment) dismiss() {
	e.waiting = slices.DeleteFunc(e.waiting, func(w *waiter) bool {
		if w.err = e.hopeless(w); w.err != nil {
			e.undrain(w)
			w.seat <- nil
		}
		return w.err != nil
	})
}

// limit is one of the system.
type limit struct {
	errno syscall.Errno
	look  string
}

// limits are what a system says when there is no more of something, and where to look then.
var limits = []limit{
	{syscall.EFBIG, "the limit on the size of files (ulimit -f) is below the memory that a worker shares, which is 2 MiB at least and as much as the largest batch, or below a file that a function writes: raise it"},
	{syscall.EMFILE, "this process has as many files open as it may (ulimit -n): raise that, or lower resources.python_workers"},
	{syscall.ENFILE, "all processes of this machine have as many files open as they may: raise fs.file-max (sysctl)"},
	{syscall.EAGAIN, "there are as many processes and threads as there may be, of this user (ulimit -u) or of this container (pids.max of its control group): raise that, or lower resources.python_workers"},
	{syscall.ENOMEM, "there is no memory for it: look at the limits of the container and of the process (ulimit -v), and at vm.overcommit_memory (sysctl), or lower resources.python_workers"},
	{syscall.ENOSPC, "there is no room in the folder for temporary files (TMPDIR), or where a function writes: free some"},
	{syscall.EDQUOT, "this user has no more room in the folder for temporary files (TMPDIR), or where a function writes (its quota): free some, or raise the quota"},
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

// lacking is the death of a worker that says that its machine has no more of something; nil if it does not. No row is to blame:
// the worker is ended, and the rows are tried again, as after one that something else ended.
func (p *process) lacking(r Reply) *Death {
	if r.Errno == 0 {
		return nil
	}
	why := r.Broken
	if at := slices.IndexFunc(limits, func(l limit) bool { return l.errno == syscall.Errno(r.Errno) }); at >= 0 {
		why += ": " + limits[at].look
	}
	p.retire(why)
	return &Death{Why: why, Working: true, Outside: true}
}
