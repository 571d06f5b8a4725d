package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/millrace-data/millrace/internal/fault"
)

// guard runs fn, which calls Pebble, and returns its error, or the cause if the
// disk stops meanwhile. fn may never return then (see disk); its goroutine is
// left standing, and nothing that fn sets may be used.
func (l *Pebble) guard(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				l.disk.fail(&bugError{p, debug.Stack()})
			}
		}()
		done <- fn()
	}()
	select {
	case err := <-done:
		if cause := l.failure(); cause != nil {
			return cause
		}
		return err
	case <-l.disk.failed:
		return l.failure()
	}
}

// bugError is a broken invariant inside Pebble, or in how it is used here.
type bugError struct {
	what  any
	stack []byte
}

func (e *bugError) Error() string { return fmt.Sprintf("pebble: %v\n%s", e.what, e.stack) }

// failure returns why the log cannot be used any more, or nil.
func (l *Pebble) failure() error {
	cause := l.disk.err()
	if cause == nil {
		return nil
	}
	if _, ok := errors.AsType[*bugError](cause); ok {
		return fmt.Errorf("the log in %s: %w", l.dir, cause)
	}
	if _, ok := errors.AsType[*damageError](cause); ok {
		return l.damaged("%w", cause)
	}
	if _, ok := errors.AsType[*goneError](cause); ok {
		return fault.Lostf("the log in %s has stopped: %w: put the folder back as it was, or give the job an empty one; then start again and resume from a token",
			l.dir, cause)
	}
	return fault.Lostf("the log in %s has stopped: %w: free or replace the disk, and start again; every step appended before is kept",
		l.dir, cause)
}

// damaged formats an error for files that do not say what was written to them.
func (l *Pebble) damaged(format string, args ...any) error {
	return fault.Userf("the log in %s %w: %w: bring the folder back from a copy, or give the job an empty one and resume it from a token",
		l.dir, ErrDamaged, fmt.Errorf(format, args...))
}

// errMissing is a hole in the log.
var errMissing = errors.New("it is missing between others")

// wrap says what was being done with the log when err came up; nil stays nil.
func (l *Pebble) wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	if cause := l.failure(); cause != nil {
		return fmt.Errorf("%s: %w", doing, cause)
	}
	if errors.Is(err, errMissing) || pebble.IsCorruptionError(err) {
		return fmt.Errorf("%s: %w", doing, l.damaged("%w", err))
	}
	return fault.Lostf("the log in %s: %s: %w", l.dir, doing, err)
}

// openError says why Pebble did not open the folder.
func (l *Pebble) openError(err error) error {
	_, locking := errors.AsType[*lockError](err)
	_, path := errors.AsType[*fs.PathError](err)
	_, errno := errors.AsType[syscall.Errno](err)
	conflict := locking && !path // the lock file is there, the lock is not to be had
	switch {
	case conflict:
		remedy := "end the other one, or give each job a folder of its own"
		if l.opts.ReadOnly {
			remedy = "read it when that one has ended; before, its mirror, or a folder that `millrace log repair --log-dir NEW --log-mirror URL` makes of that"
		}
		return fault.Userf("the log in %s is open already, in %s (%w): %s", l.dir, holder(l.dir), fmt.Errorf("%w: %w", ErrInUse, err), remedy)
	case l.opts.ReadOnly && locking && errors.Is(err, fs.ErrPermission):
		return fault.Userf("opening the log in %s: %w: the log is locked while it is read, for which this user must be able to open LOCK", l.dir, err)
	case l.opts.ReadOnly && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR)):
		return fault.Userf("opening the log in %s: %w: name the folder that was given to the service with --log-dir, which this user must be able to read", l.dir, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EROFS):
		return fault.Userf("opening the log in %s: %w: give the job a folder that it may write to", l.dir, err)
	case l.failure() != nil:
		return l.failure()
	case pebble.IsCorruptionError(err), errors.Is(err, fs.ErrNotExist): // of a file that another one names
		return l.damaged("%w", err)
	case path, errno:
		return fault.Lostf("opening the log in %s: %w", l.dir, err)
	default: // Pebble does not know the files
		return fault.Userf("opening the log in %s: %w: continue with the version of Millrace that wrote it, or give the job an empty folder and resume it from a token", l.dir, err)
	}
}
