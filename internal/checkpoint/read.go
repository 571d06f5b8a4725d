package checkpoint

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Records is Log.Records.
func (l *Pebble) Records(from, to int64, fn func(step int64, record []byte) error) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	steps := l.span().clamp(from, to)
	it, err := l.db.NewIter(recordKind.between(steps.first, steps.next))
	if err != nil {
		return l.wrap(err, "reading records")
	}
	defer it.Close() // its error is it.Error, seen below
	advance := it.First
	for step := steps.first; step < steps.next; step++ {
		record, err := l.current(it, advance(), step)
		if err != nil {
			return l.wrap(err, fmt.Sprintf("reading the record of step %d", step))
		}
		if err := fn(step, record); err != nil {
			return err
		}
		advance = it.Next
	}
	return nil
}

// current returns the value under it, which stands on a record (ok) or not.
// The record must be that of step: there is no hole between first and last.
func (l *Pebble) current(it *pebble.Iterator, ok bool, step int64) ([]byte, error) {
	if err := errors.Join(it.Error(), l.failure()); err != nil {
		return nil, err
	}
	if !ok || stepOf(it.Key()) != step {
		return nil, errMissing
	}
	return it.ValueAndErr()
}

// Frame is Log.Frame.
func (l *Pebble) Frame(atOrBefore int64) (step int64, frame []byte, ok bool, err error) {
	if err := l.enter(); err != nil {
		return 0, nil, false, err
	}
	defer l.leave()
	steps := l.span()
	steps = steps.clamp(steps.first, min(atOrBefore, steps.next-1)+1)
	it, err := l.db.NewIter(frameKind.between(steps.first, steps.next))
	if err != nil {
		return 0, nil, false, l.wrap(err, "reading key frames")
	}
	if ok = it.Last(); ok {
		step = stepOf(it.Key())
		var value []byte
		value, err = it.ValueAndErr()
		frame = append([]byte{}, value...)
	}
	if err := errors.Join(err, it.Close()); err != nil {
		return 0, nil, false, l.wrap(err, fmt.Sprintf("reading the last key frame up to step %d", steps.next-1))
	}
	return step, frame, ok, nil
}

// ReadDigest is Log.ReadDigest.
func (l *Pebble) ReadDigest(step int64) (digest [32]byte, ok bool, err error) {
	if err := l.enter(); err != nil {
		return digest, false, err
	}
	defer l.leave()
	if !l.span().has(step) {
		return digest, false, nil
	}
	return l.digest(l.db, step)
}

// digest returns the digest of step, written or about to be.
func (l *Pebble) digest(r pebble.Reader, step int64) (digest [32]byte, ok bool, err error) {
	l.mu.Lock()
	digest, ok = l.digests[step]
	l.mu.Unlock()
	if ok {
		return digest, true, nil
	}
	value, ok, err := l.get(r, digestKind.key(step))
	if err != nil {
		return digest, false, l.wrap(err, fmt.Sprintf("reading the digest of step %d", step))
	}
	if ok && len(value) != len(digest) {
		return digest, false, l.damaged("the digest of step %d has %d bytes", step, len(value))
	}
	copy(digest[:], value)
	return digest, ok, nil
}

// each calls fn with the keys within bounds, in order, and their values, which are valid
// during the call only.
func (l *Pebble) each(r pebble.Reader, bounds *pebble.IterOptions, fn func(key, value []byte) error) error {
	it, err := r.NewIter(bounds)
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var value []byte
		if value, err = it.ValueAndErr(); err == nil {
			err = fn(it.Key(), value)
		}
	}
	return errors.Join(err, it.Close(), l.failure())
}

// Changes is Log.Changes.
func (l *Pebble) Changes() (changes [][]byte, err error) {
	if err := l.enter(); err != nil {
		return nil, err
	}
	defer l.leave()
	err = l.each(l.db, changeKind.all(), func(_, value []byte) error {
		changes = append(changes, append([]byte{}, value...))
		return nil
	})
	if err != nil {
		return nil, l.wrap(err, fmt.Sprintf("reading change %d", len(changes)))
	}
	return changes, nil
}

// get returns a copy of the value of key; ok is false if there is none.
func (l *Pebble) get(r pebble.Reader, key []byte) (value []byte, ok bool, err error) {
	got, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, l.failure()
	}
	if err != nil {
		return nil, false, err
	}
	value = append([]byte{}, got...)
	return value, true, errors.Join(closer.Close(), l.failure())
}
