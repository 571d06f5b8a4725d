package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/fault"
)

// open looks before it writes: Pebble removes files that it does not know, so that a
// damaged log which it had opened for writing could not be mended any more.
func (l *Pebble) open() error {
	if _, err := l.disk.Stat(l.disk.PathJoin(l.dir, movingName)); err == nil {
		return l.damaged("it was being put aside, and some of its files are in %s by now", movingName)
	}
	there, err := l.enterFolder()
	if err != nil {
		return err
	}
	file, err := readMark(l.disk, l.markPath())
	if err != nil {
		return l.wrap(err, "reading its high-water mark")
	}
	if there {
		err = l.prove(file)
	} else {
		err = l.unclaimed(file)
	}
	if err != nil || l.opts.ReadOnly {
		return err
	}
	return l.start(file)
}

func (l *Pebble) markPath() string { return l.disk.PathJoin(l.dir, markName) }

var errNoLog = errors.New("there is no log")

// enterFolder makes the folder, if it is to be written, and locks it. there says whether a
// database is in it.
func (l *Pebble) enterFolder() (there bool, err error) {
	err = l.guard(func() (err error) {
		if err := checkFiles(l.disk, l.dir); err != nil {
			return err
		}
		if l.opts.ReadOnly {
			if there, err = l.hasLog(); err == nil && !there {
				err = errNoLog
			}
		} else {
			err = makeFolder(l.disk, l.dir)
		}
		if err == nil {
			l.lock, err = pebble.LockDirectory(l.dir, l.disk)
		}
		if err == nil {
			there, err = l.hasDatabase()
		}
		return err
	})
	if errors.Is(err, errNoLog) {
		return false, fault.Userf("%w in %s: name the folder that was given to the service with --log-dir", errNoLog, l.dir)
	}
	if fault.ClassOf(err) == fault.User {
		return false, err
	}
	if err != nil {
		return false, l.openError(err)
	}
	l.warnOfOthers()
	return there, nil
}

// hasLog says whether there is a log, or what is left of one.
func (l *Pebble) hasLog() (bool, error) {
	if _, err := l.disk.Stat(l.markPath()); err == nil {
		return true, nil
	}
	return l.hasDatabase()
}

func (l *Pebble) hasDatabase() (bool, error) {
	db, err := pebble.Peek(l.dir, l.disk)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && db.Exists, err
}

// warnOfOthers tells of a folder, made by somebody else, in which others can remove files.
func (l *Pebble) warnOfOthers() {
	if info, err := l.disk.Stat(l.dir); err == nil && info.Mode()&0o022 != 0 {
		l.opts.Logger.Warn("other users may write to the log's folder", "folder", l.dir, "mode", info.Mode().String())
	}
}

func (l *Pebble) openPebble(readOnly bool) error {
	var db *pebble.DB
	err := l.guard(func() (err error) {
		o := pebbleOptions(l.disk, l.opts.Logger)
		o.ReadOnly, o.Lock = readOnly, l.lock
		db, err = pebble.Open(l.dir, o)
		return err
	})
	if err != nil {
		return l.openError(err)
	}
	l.db = db // not in the guarded function, which may outlive a failure
	return nil
}

// prove opens the database only to read it, and checks that it is this job's log and has
// all that was acknowledged. A log that is to be read only stays open.
func (l *Pebble) prove(file fileMark) error {
	if err := l.openPebble(true); err != nil {
		return err
	}
	if err := l.check(file); err != nil || l.opts.ReadOnly {
		return err
	}
	db := l.db
	l.db = nil
	return l.wrap(l.guard(db.Close), "closing it after the check")
}

func (l *Pebble) check(file fileMark) error {
	claimed, err := l.checkOwner()
	switch {
	case err != nil:
		return err
	case !claimed:
		return l.unclaimed(file)
	case !file.there:
		return l.damaged("its high-water mark, the file %s, is missing, and with it the proof that nothing else is", markName)
	case !file.whole:
		return l.damaged("its high-water mark, the file %s, is damaged", markName)
	}
	last, err := l.lastMark()
	if err == nil {
		err = l.agree(file.mark, last)
	}
	if err != nil || !l.anyone || l.opts.Accept == nil {
		return err
	}
	return l.accept()
}

// accept asks whether the log is the caller's.
func (l *Pebble) accept() error {
	_, frame, some, err := l.Frame(math.MaxInt64)
	if err != nil || !some {
		return err
	}
	if err = l.opts.Accept(frame); err != nil {
		return fault.Userf("the log in %s %w: undo the change of the job spec, or give this job a folder of its own", l.dir, err)
	}
	return nil
}

// unclaimed checks that a database which holds nothing never held anything.
func (l *Pebble) unclaimed(file fileMark) error {
	switch {
	case file.there && !file.whole:
		return l.damaged("it holds nothing, and its high-water mark, the file %s, is damaged", markName)
	case file.seq > 0:
		return l.missing(file.mark, mark{})
	case l.anyone:
		return errUnclaimed
	case l.opts.ReadOnly:
		return fault.Userf("the log in %s was never begun: name the folder of a service that has run", l.dir)
	default:
		return nil
	}
}

// start opens a log that may be written, makes a new one this job's, and brings the file
// of the mark up to a write that was synced, but not acknowledged.
func (l *Pebble) start(file fileMark) error {
	if err := l.guard(func() error { return l.createMark(file) }); err != nil {
		return l.wrap(err, "starting its high-water mark")
	}
	if err := l.openPebble(false); err != nil {
		return err
	}
	var f vfs.File
	err := l.guard(func() (err error) {
		f, err = l.disk.OpenReadWrite(l.markPath(), vfs.WriteCategoryUnspecified)
		return err
	})
	if err != nil {
		return l.wrap(err, "opening its high-water mark")
	}
	l.file = f
	if err := l.settle(file); err != nil {
		return err
	}
	l.tended = make(chan struct{})
	go l.tend()
	return nil
}

func (l *Pebble) createMark(file fileMark) error {
	if file.there {
		return nil
	}
	return createMark(l.disk, l.dir, mark{sum: l.opts.Identity})
}

func (l *Pebble) settle(file fileMark) error {
	claimed, err := l.checkOwner()
	if err != nil {
		return err
	}
	if !claimed {
		return l.claim()
	}
	m, err := l.storedMark()
	if err != nil {
		return err
	}
	if l.history, err = l.storedBranches(m.steps); err != nil {
		return l.wrap(err, "reading its branches")
	}
	l.mark = m
	if m.seq == file.seq {
		return nil
	}
	return l.wrap(l.guard(func() error { return writeMark(l.file, m) }), "bringing its high-water mark up to the last write")
}

// checkOwner makes sure that the database is this job's log, of a known format. claimed
// is false for an empty one, which is nobody's yet.
func (l *Pebble) checkOwner() (claimed bool, err error) {
	format, claimed, err := l.get(l.db, formatKey)
	if err != nil {
		return false, l.wrap(err, "reading its format version")
	}
	if !claimed {
		return false, l.checkEmpty()
	}
	if len(format) != 4 {
		return false, l.damaged("the format version has %d bytes", len(format))
	}
	l.format = binary.BigEndian.Uint32(format)
	if l.format < oldestVersion || l.format > formatVersion {
		return false, fault.Userf("the log in %s has format version %d, and this version of Millrace reads versions %d and %d: continue with the version that wrote it, or give the job an empty folder and resume it from a token",
			l.dir, l.format, oldestVersion, formatVersion)
	}
	epochs, err := l.epochs()
	if err != nil {
		return false, err
	}
	if len(epochs) > 0 {
		l.epoch = epochs[len(epochs)-1].Number
	}
	if l.place, err = l.storedPlace(); err != nil {
		return false, err
	}
	if l.trimmed, err = l.storedTrim(); err != nil {
		return false, err
	}
	identity, err := l.storedIdentity()
	if err != nil {
		return false, err
	}
	if l.anyone {
		l.opts.Identity = identity
	}
	anyone := l.opts.ReadOnly && l.opts.Identity == [32]byte{}
	if identity != l.opts.Identity && !anyone {
		return false, fault.Userf("the log in %s belongs to the job with identity %x, not to this one, %x (of spec and data together; `millrace lint` prints that of the spec): undo the change of the job spec or of the data, or give this job a folder of its own",
			l.dir, identity, l.opts.Identity)
	}
	return true, nil
}

func (l *Pebble) storedIdentity() (identity [32]byte, err error) {
	value, _, err := l.get(l.db, identityKey)
	if err != nil {
		return identity, l.wrap(err, "reading its job identity")
	}
	if len(value) != len(identity) {
		return identity, l.damaged("the job identity has %d bytes", len(value))
	}
	return [32]byte(value), nil
}

// checkEmpty refuses a database that is not a log.
func (l *Pebble) checkEmpty() error {
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
	return nil
}

// claim makes an empty database this job's log. A crash before that leaves one that is
// still empty.
func (l *Pebble) claim() error {
	l.mark = mark{sum: l.opts.Identity}
	b := l.newBatch() // it sets the format version
	b.set(identityKey, l.opts.Identity[:])
	return l.wrap(l.commit(b), "starting it")
}

// storedMark is the mark of the database's last write.
func (l *Pebble) storedMark() (mark, error) {
	value, _, err := l.get(l.db, markKey)
	if err != nil {
		return mark{}, l.wrap(err, "reading the mark of its last write")
	}
	m, ok := decodeMark(value)
	if !ok {
		return mark{}, l.damaged("the mark of its last write has %d bytes, and is none", len(value))
	}
	return m, nil
}

// lastMark is storedMark, after what is read of the log was found to agree with it.
func (l *Pebble) lastMark() (mark, error) {
	m, err := l.storedMark()
	if err != nil {
		return mark{}, err
	}
	found, err := l.scan()
	if err != nil {
		return mark{}, l.wrap(err, "reading its sums")
	}
	if found.changes != m.changes || found.sum != m.sum {
		return mark{}, l.damaged("it has %s by its last write, and they are not as they were written: files are missing, or of another time", m)
	}
	if l.history, err = l.storedBranches(m.steps); err != nil {
		return mark{}, l.wrap(err, "reading its branches")
	}
	l.mark = m
	return m, l.verifyEnd(l.opts.Whole)
}

// agree compares what was acknowledged, as the file has it, with the last write.
func (l *Pebble) agree(file, last mark) error {
	switch {
	case file == last:
		return nil
	case file.seq+1 == last.seq && file.sum == last.before:
		return nil // a crash came between the write and its mark
	case file.seq > last.seq:
		return l.missing(file, last)
	default:
		return l.damaged("its high-water mark, the file %s, is that of write %d, which is not this log's: it is another log's, or an older copy; the last write is %d",
			markName, file.seq, last.seq)
	}
}

// missing says what was acknowledged and is not there.
func (l *Pebble) missing(acked, there mark) error {
	var what []string
	if from := max(acked.steps.first, there.steps.next); from < acked.steps.next {
		what = append(what, fmt.Sprintf("steps %d to %d", from, acked.steps.next-1))
	}
	if n := acked.changes - there.changes; n > 0 {
		what = append(what, fmt.Sprintf("the last %d of %d changes", n, acked.changes))
	}
	if what == nil {
		what = []string{fmt.Sprintf("its last %d writes", acked.seq-there.seq)}
	}
	return l.damaged("it was cut: of what was acknowledged, %s are missing (it has %s, and had %s by its high-water mark)",
		strings.Join(what, " and "), there, acked)
}

// String is what a log holds, in words.
func (m mark) String() string {
	steps := "no step"
	if !m.steps.empty() {
		steps = fmt.Sprintf("steps %d to %d", m.steps.first, m.steps.next-1)
	}
	return fmt.Sprintf("%s and %d changes", steps, m.changes)
}
