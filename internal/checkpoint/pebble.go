package checkpoint

import (
	"errors"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/fault"
)

// Pebble is a Log in a Pebble database of its own. When it stops, Pebble's goroutines are
// left standing where they were, and Close gives up the folder.
type Pebble struct {
	dir    string
	opts   Options
	anyone bool // the log may be any job's; its identity is in opts then
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
	epoch   uint64             // the highest fenced
	place   *Place             // of the last write; nil if it had none
	format  uint32             // version of the database as it is
	history History            // of the last write; replaced, not changed
	trimmed int64              // steps before it were let go of
	proven  map[stretch]bool   // what was compared with its sum, or written since
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

// Open opens the log in the folder dir, or starts one there. It reads what a planner goes on
// from, the last key frame and all after it, and the sums of what comes before, which is compared
// with them when it is read (all of it, with Options.Whole): what was acknowledged is there as it
// was, or Open or the reader says what is missing. A folder that is refused stays as it is.
//
// Errors are of class fault.User if the folder belongs to another job (another identity),
// to another process, to another version of Millrace or to something else, and if its
// files are damaged, missing or older ones; of class fault.Lost if the disk fails.
func Open(dir string, opts Options) (Log, error) {
	l, err := open(dir, opts, false)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Resume opens the log that is in the folder dir, whichever job's it is, and returns its
// identity: who is to go on with it may write its epoch before the data is looked at that
// says which job it should be. Without a log there it returns nil, and leaves the folder as it
// is. Errors are Open's; [ErrInUse] is part of that for a log that another process has open.
func Resume(dir string, opts Options) (log Log, identity [32]byte, err error) {
	opts = opts.withDefaults()
	looked := &Pebble{dir: dir, opts: opts, disk: newDisk(opts.FS)}
	there, err := looked.hasLog()
	if err != nil || !there {
		return nil, identity, err
	}
	opts.ReadOnly = false
	l, err := open(dir, opts, true)
	if errors.Is(err, errUnclaimed) {
		return nil, identity, nil
	}
	if err != nil {
		return nil, identity, err
	}
	return l, l.opts.Identity, nil
}

// errUnclaimed ends the opening of a log for whichever job that is no job's yet.
var errUnclaimed = errors.New("the log was never begun")

// open is Open; anyone takes the log of whichever job.
func open(dir string, opts Options, anyone bool) (*Pebble, error) {
	opts = opts.withDefaults()
	if _, ok := opts.FS.(private); ok {
		abs, err := filepath.Abs(dir) // the lock goes by name
		if err != nil {
			return nil, fault.Userf("opening the log in %s: %w", dir, err)
		}
		dir = abs
	}
	l := &Pebble{
		dir: dir, opts: opts, anyone: anyone,
		disk:    newDisk(opts.FS),
		writer:  make(chan struct{}, 1),
		ending:  make(chan struct{}),
		digests: map[int64][32]byte{},
		proven:  map[stretch]bool{},
		history: NewHistory(),
	}
	l.disk.readOnly = opts.ReadOnly
	l.writer <- struct{}{}
	if err := l.open(); err != nil {
		_ = l.Close() // its error could only repeat err
		return nil, err
	}
	return l, nil
}

// Close is Log.Close. It releases the folder; after a failure it leaves the files as they are.
func (l *Pebble) Close() error {
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
func (l *Pebble) closeFiles() error {
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

// Last is Log.Last.
func (l *Pebble) Last() (step int64, ok bool) {
	s := l.span()
	return s.next - 1, !s.empty()
}

// First is Log.First.
func (l *Pebble) First() (step int64, ok bool) {
	s := l.span()
	return s.first, !s.empty()
}

func (l *Pebble) span() span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mark.steps
}

// enter begins a call, which leave ends.
func (l *Pebble) enter() error {
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

func (l *Pebble) leave() { l.calls.Done() }
