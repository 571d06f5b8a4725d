package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"
)

// lookEvery is the time between two looks at the folder, and the longest that a digest
// waits to be written. A look takes some microseconds.
const lookEvery = 250 * time.Millisecond

// Stopped is Log.Stopped: the disk has failed, damage was found, or the folder was deleted
// or replaced.
func (l *Pebble) Stopped() <-chan struct{} { return l.disk.failed }

// Err is Log.Err.
func (l *Pebble) Err() error { return l.failure() }

// goneError is a folder that is not the one that is written to any more.
type goneError struct{ err error }

func (e *goneError) Error() string {
	return fmt.Sprintf("its folder was deleted or replaced while it was in use (%v)", e.err)
}

func (e *goneError) Unwrap() error { return e.err }

// look reads a mark that was written, but by its name: files that were deleted or moved
// can be written to as long as they are open, and a write to them is worth nothing. It
// stops the log if the mark is not there. The caller is the only writer.
func (l *Pebble) look(m mark) error {
	b, err := l.readPlace(m)
	switch {
	case err == nil && bytes.Equal(b, m.encode()):
		return nil
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return nil // this says nothing of the folder
	case err == nil:
		err = &goneError{fmt.Errorf("%s is not what was written", l.markPath())}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ESTALE), errors.Is(err, io.EOF):
		err = &goneError{err}
	}
	l.disk.fail(err)
	return l.failure()
}

// readPlace reads the place in the file where m was written.
func (l *Pebble) readPlace(m mark) ([]byte, error) {
	f, err := l.disk.Open(l.markPath())
	if err != nil {
		return nil, err
	}
	b := make([]byte, markBytes)
	_, err = f.ReadAt(b, place(m))
	return b, errors.Join(err, f.Close())
}

// tend looks after the folder, and writes the digests that wait, until the log is closed
// or has stopped. What fails stops the log, or is met again by the next write.
func (l *Pebble) tend() {
	defer close(l.tended)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = l.write(l.refresh)
		case <-l.ending:
			return
		case <-l.disk.failed:
			return
		}
	}
}

func (l *Pebble) refresh() error {
	l.mu.Lock()
	waiting, m := len(l.digests), l.mark
	l.mu.Unlock()
	if waiting > 0 {
		return l.commit(l.newBatch())
	}
	return l.look(m)
}
