package checkpoint

import (
	"errors"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/fault"
)

var (
	// ErrClosed is returned by the methods of a Log after Close.
	ErrClosed = errors.New("the log is closed")
	// ErrOrder is wrapped by the error for a step that cannot follow, or that
	// the log does not reach back to.
	ErrOrder = errors.New("step out of order")
	// ErrDiverged is wrapped by the error for a step that the log holds with
	// other bytes: what was replayed is not what was done.
	ErrDiverged = errors.New("step differs from the log")
)

// MaxBytes bounds a record and its frame together. Real ones have kilobytes; a
// gigabyte is a mistake, and Pebble's limit is not far above.
const MaxBytes = 1 << 30

// Log is the log of one job. It holds the steps from a first to a last without
// a hole. All methods are safe for concurrent use; those that write wait for
// each other, readers wait for nobody and see only steps that are durable.
//
// Once a write has failed, damage was found, or the folder is not there any more,
// every method fails with the cause: errors of class fault.Lost for a disk or a folder,
// fault.User for damage, for which the message has the next thing to do. The process should then end. Pebble's
// goroutines are left standing where they were, and Close gives up the folder.
type Log struct {
	dir    string
	opts   Options
	disk   *disk
	lock   *pebble.Lock // of the folder; the disk releases it
	db     *pebble.DB
	file   vfs.File      // of the mark
	writer chan struct{} // holds one token: who has taken it may write
	ending chan struct{} // closed by Close
	tended chan struct{} // closed when tend has returned; nil if it was never begun

	mu      sync.Mutex // guards the fields below, never held over a disk call
	closed  bool
	calls   sync.WaitGroup     // calls in progress; Add only while not closed
	mark    mark               // of the last write
	digests map[int64][32]byte // set, and to be written with the next batch
}

// span is the steps first <= step < next; empty if they are equal.
type span struct{ first, next int64 }

func (s span) empty() bool         { return s.first == s.next }
func (s span) has(step int64) bool { return s.first <= step && step < s.next }
func (s span) clamp(from, to int64) span {
	from, to = max(from, s.first), min(to, s.next)
	return span{from, max(from, to)}
}

// Open opens the log in the folder dir, or starts one there. It reads all of it: every
// step, change and digest that was acknowledged is there as it was, or Open says what is
// missing. A folder that is refused stays as it is.
//
// Errors are of class fault.User if the folder belongs to another job (another identity),
// to another process, to another version of Millrace or to something else, and if its
// files are damaged, missing or older ones; of class fault.Lost if the disk fails.
func Open(dir string, opts Options) (*Log, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if _, ok := opts.FS.(private); ok {
		abs, err := filepath.Abs(dir) // the lock goes by name
		if err != nil {
			return nil, fault.Userf("opening the log in %s: %w", dir, err)
		}
		dir = abs
	}
	l := &Log{
		dir: dir, opts: opts,
		disk:    newDisk(opts.FS),
		writer:  make(chan struct{}, 1),
		ending:  make(chan struct{}),
		digests: map[int64][32]byte{},
	}
	l.writer <- struct{}{}
	if err := l.open(); err != nil {
		l.Close() // its error could only repeat err
		return nil, err
	}
	return l, nil
}

// Close ends the use of the log and releases its folder. It waits for calls in
// progress. After a failure it waits for nothing, leaves the files as they are
// and returns the cause. A second Close returns nil.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()

	if err := l.failure(); err != nil {
		return errors.Join(err, l.disk.unlock())
	}
	close(l.ending)
	if l.tended != nil {
		<-l.tended
	}
	l.calls.Wait()
	if err := errors.Join(l.closeFiles(), l.disk.unlock()); err != nil {
		return l.wrap(err, "closing it")
	}
	return nil
}

// closeFiles closes all files but the lock.
func (l *Log) closeFiles() error {
	if l.db == nil {
		return nil
	}
	if l.file == nil { // it was read only, or refused
		return l.guard(l.db.Close)
	}
	if len(l.digests) > 0 {
		if err := l.commit(l.newBatch()); err != nil {
			return err
		}
	}
	// Flushed, the steps stand in tables, where damage is found by block.
	return l.guard(func() error { return errors.Join(l.db.Flush(), l.db.Close(), l.file.Close()) })
}

// Last returns the last step that was appended; ok is false while there is none.
func (l *Log) Last() (step int64, ok bool) {
	s := l.span()
	return s.next - 1, !s.empty()
}

// First returns the first step that the log reaches back to.
func (l *Log) First() (step int64, ok bool) {
	s := l.span()
	return s.first, !s.empty()
}

// FrameDue reports whether the record of step should come with a key frame: for
// the first step of a log, and for every multiple of KeyFrameEvery.
func (l *Log) FrameDue(step int64) bool {
	return l.span().empty() || step%int64(l.opts.KeyFrameEvery) == 0
}

func (l *Log) span() span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark.steps
}

// enter begins a call, which leave ends.
func (l *Log) enter() error {
	if err := l.failure(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	l.calls.Add(1)
	return nil
}

func (l *Log) leave() { l.calls.Done() }
