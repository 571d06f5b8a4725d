package checkpoint

import (
	"encoding/binary"
	"errors"
	"io/fs"
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
// each other, readers wait for nobody and see only what is durable (with
// NoSync: what was appended).
//
// Once a write has failed, or damage was found, every method fails with the
// cause: errors of class fault.Lost for a disk, fault.User for damage, for which
// the message has the next thing to do. The process should then end. Pebble's
// goroutines are left standing where they were, and Close gives up the folder.
type Log struct {
	dir      string
	opts     Options
	disk     *disk
	db       *pebble.DB
	writer   chan struct{} // holds one token: who has taken it may write
	commitAs *pebble.WriteOptions

	mu     sync.Mutex // guards the fields below, never held over a disk call
	closed bool
	calls  sync.WaitGroup // calls in progress; Add only while not closed
	steps  span
}

// span is the steps first <= step < next; empty if they are equal.
type span struct{ first, next int64 }

func (s span) empty() bool         { return s.first == s.next }
func (s span) has(step int64) bool { return s.first <= step && step < s.next }
func (s span) clamp(from, to int64) span {
	from, to = max(from, s.first), min(to, s.next)
	return span{from, max(from, to)}
}

// Open opens the log in the folder dir, or starts one there. Errors are of class
// fault.User if the folder belongs to another job (another identity), to another
// process, to a newer version of Millrace or to something else, and if its files
// are damaged; of class fault.Lost if the disk fails.
func Open(dir string, opts Options) (*Log, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if opts.FS == vfs.Default {
		abs, err := filepath.Abs(dir) // the lock goes by name
		if err != nil {
			return nil, fault.Userf("opening the log in %s: %w", dir, err)
		}
		dir = abs
	}
	l := &Log{
		dir: dir, opts: opts,
		disk:     newDisk(opts.FS),
		writer:   make(chan struct{}, 1),
		commitAs: pebble.Sync,
	}
	if opts.NoSync {
		l.commitAs = pebble.NoSync
	}
	l.writer <- struct{}{}
	if err := l.open(); err != nil {
		l.Close() // its error could only repeat err
		return nil, err
	}
	return l, nil
}

func (l *Log) open() error {
	if err := l.openPebble(); err != nil {
		return err
	}
	if err := l.checkOwner(); err != nil {
		return err
	}
	return l.findSteps()
}

var errNoLog = errors.New("there is no log")

func (l *Log) openPebble() error {
	var db *pebble.DB
	err := l.guard(func() (err error) {
		o := pebbleOptions(l.disk, l.opts.Logger)
		if o.ReadOnly = l.opts.ReadOnly; o.ReadOnly {
			if there, err := pebble.Peek(l.dir, l.disk); errors.Is(err, fs.ErrNotExist) || err == nil && !there.Exists {
				return errNoLog
			}
		}
		db, err = pebble.Open(l.dir, o)
		return err
	})
	if errors.Is(err, errNoLog) {
		return fault.Userf("%w in %s: name the folder that was given to the service with --log-dir", errNoLog, l.dir)
	}
	if err != nil {
		return l.openError(err)
	}
	l.db = db // not in the guarded function, which may outlive a failure
	return nil
}

// checkOwner makes sure that the database is this job's log, of a known format.
// An empty one becomes this job's log.
func (l *Log) checkOwner() error {
	format, isLog, err := l.get(formatKey)
	if err != nil {
		return l.wrap(err, "reading its format version")
	}
	switch {
	case !isLog && l.opts.ReadOnly:
		return fault.Userf("%s holds a Pebble database that is not a log of Millrace", l.dir)
	case !isLog:
		return l.claim()
	}
	if len(format) != 4 {
		return l.damaged("the format version has %d bytes", len(format))
	}
	if v := binary.BigEndian.Uint32(format); v != formatVersion {
		return fault.Userf("the log in %s has format version %d, and this version of Millrace reads version %d: continue with the version that wrote it, or give the job an empty folder and resume it from a token",
			l.dir, v, formatVersion)
	}
	identity, ok, err := l.get(identityKey)
	if err != nil {
		return l.wrap(err, "reading its job identity")
	}
	if !ok || len(identity) != len(l.opts.Identity) {
		return l.damaged("the job identity has %d bytes", len(identity))
	}
	anyone := l.opts.ReadOnly && l.opts.Identity == [32]byte{}
	if [32]byte(identity) != l.opts.Identity && !anyone {
		return fault.Userf("the log in %s belongs to the job with identity %x, not to this one, %x: undo the change of the job spec or of the data, or give this job a folder of its own",
			l.dir, identity, l.opts.Identity)
	}
	return nil
}

// claim writes format and identity into an empty database. A crash before that
// leaves one that is still empty.
func (l *Log) claim() error {
	it, err := l.db.NewIter(nil)
	if err != nil {
		return l.wrap(err, "looking at what it holds")
	}
	foreign := it.First()
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return l.wrap(err, "looking at what it holds")
	}
	if foreign {
		return fault.Userf("%s holds a Pebble database that is not a log of Millrace: give the job a folder of its own", l.dir)
	}
	b := l.db.NewBatch()
	err = errors.Join(
		b.Set(formatKey, binary.BigEndian.AppendUint32(nil, formatVersion), nil),
		b.Set(identityKey, l.opts.Identity[:], nil),
		l.commit(b, pebble.Sync))
	return l.wrap(err, "starting it")
}

// findSteps reads which steps there are.
func (l *Log) findSteps() error {
	it, err := l.db.NewIter(recordKind.all())
	if err != nil {
		return l.wrap(err, "finding its steps")
	}
	if it.First() {
		l.steps.first = stepOf(it.Key())
	}
	if it.Last() {
		l.steps.next = stepOf(it.Key()) + 1
	}
	return l.wrap(errors.Join(it.Error(), it.Close()), "finding its steps")
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
	l.calls.Wait()
	if l.db == nil {
		return nil
	}
	// Flushed, the steps stand in tables, where every byte has its checksum. In
	// the write-ahead log damage near the end looks like the end (Pebble tells
	// the two apart only across blocks of 32 KiB).
	err := l.guard(func() error {
		if l.opts.ReadOnly {
			return l.db.Close()
		}
		return errors.Join(l.db.Flush(), l.db.Close())
	})
	if err != nil {
		return errors.Join(l.wrap(err, "closing it"), l.disk.unlock())
	}
	return nil
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
	return l.steps
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
