package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// view is the steps that lead to the end of a branch.
type view struct {
	log    *Pebble
	branch uint64
}

// head is the branch that is written.
func (l *Pebble) head() view {
	l.mu.Lock()
	defer l.mu.Unlock()
	return view{l, l.history.Current().Number}
}

// pieces are those of a view from one step to another.
func (v view) pieces(from, to int64) (all []piece) {
	v.log.mu.Lock()
	h := v.log.history
	v.log.mu.Unlock()
	for _, p := range h.pieces(v.branch) {
		if p.span = p.clamp(from, to); !p.empty() {
			all = append(all, p)
		}
	}
	return all
}

func (v view) span() span {
	all := v.pieces(0, math.MaxInt64)
	if len(all) == 0 {
		return span{}
	}
	return span{all[0].first, all[len(all)-1].next}
}

// Records, Frame and ReadDigest are those of the branch that is written.
func (l *Pebble) Records(from, to int64, fn func(step int64, record []byte) error) error {
	return l.head().Records(from, to, fn)
}

// Frame is Log.Frame.
func (l *Pebble) Frame(atOrBefore int64) (step int64, frame []byte, ok bool, err error) {
	return l.head().Frame(atOrBefore)
}

// ReadDigest is Log.ReadDigest.
func (l *Pebble) ReadDigest(step int64) (digest [32]byte, ok bool, err error) {
	return l.head().ReadDigest(step)
}

// Branches is Log.Branches.
func (l *Pebble) Branches() []Branch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.history)
}

// Branch is Log.Branch.
func (l *Pebble) Branch(number uint64) (Steps, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.history.Find(number); err != nil {
		return nil, err
	}
	return view{l, number}, nil
}

// Trimmed is Log.Trimmed.
func (l *Pebble) Trimmed() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.trimmed
}

// First is Steps.First.
func (v view) First() (step int64, ok bool) {
	s := v.span()
	return s.first, !s.empty()
}

// Last is Steps.Last.
func (v view) Last() (step int64, ok bool) {
	s := v.span()
	return s.next - 1, !s.empty()
}

// Records is Steps.Records.
func (v view) Records(from, to int64, fn func(step int64, record []byte) error) error {
	l := v.log
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	pieces := v.pieces(from, to)
	now := l.db.NewSnapshot()
	defer now.Close() // after a failure it fails as well
	for _, p := range pieces {
		for x := stretchOf(p.branch, p.first); x.at < p.next; x.at += stretchSteps {
			if err := l.verify(now, x); err != nil {
				return err
			}
			if err := l.records(now, piece{p.branch, p.clamp(x.at, x.at+stretchSteps)}, fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// records calls fn with the records of a piece.
func (l *Pebble) records(r pebble.Reader, p piece, fn func(step int64, record []byte) error) error {
	it, err := r.NewIter(recordKind.within(p.branch, p.first, p.next))
	if err != nil {
		return l.wrap(err, "reading records")
	}
	defer it.Close() // its error is it.Error, seen below
	advance := it.First
	for step := p.first; step < p.next; step++ {
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

// Frame is Steps.Frame.
func (v view) Frame(atOrBefore int64) (step int64, frame []byte, ok bool, err error) {
	l := v.log
	if err := l.enter(); err != nil {
		return 0, nil, false, err
	}
	defer l.leave()
	return l.frameIn(l.db, v.pieces(0, max(min(atOrBefore, math.MaxInt64-1), -1)+1), atOrBefore)
}

// frameIn finds the last key frame of pieces up to a step. What could hold a later one is
// proven not to.
func (l *Pebble) frameIn(r pebble.Reader, pieces []piece, atOrBefore int64) (step int64, frame []byte, ok bool, err error) {
	for _, p := range slices.Backward(pieces) {
		if p.span = p.clamp(p.first, min(atOrBefore, p.next-1)+1); p.empty() {
			continue
		}
		it, err := r.NewIter(frameKind.within(p.branch, p.first, p.next))
		if err != nil {
			return 0, nil, false, l.wrap(err, "reading key frames")
		}
		from := p.first
		if ok = it.Last(); ok {
			step, from = stepOf(it.Key()), stepOf(it.Key())
			var value []byte
			value, err = it.ValueAndErr()
			frame = append([]byte{}, value...)
		}
		if err := errors.Join(err, it.Close()); err != nil {
			return 0, nil, false, l.wrap(err, fmt.Sprintf("reading the last key frame up to step %d", p.next-1))
		}
		if err := l.verifyPiece(l.db, piece{p.branch, p.clamp(from, p.next)}); err != nil || ok {
			return step, frame, ok, err
		}
	}
	return 0, nil, false, nil
}

// ReadDigest is Steps.ReadDigest.
func (v view) ReadDigest(step int64) (digest [32]byte, ok bool, err error) {
	l := v.log
	if err := l.enter(); err != nil {
		return digest, false, err
	}
	defer l.leave()
	if step < 0 || step == math.MaxInt64 {
		return digest, false, nil
	}
	at := v.pieces(step, step+1)
	if len(at) == 0 {
		return digest, false, nil
	}
	if err := l.verify(l.db, stretchOf(at[0].branch, step)); err != nil {
		return digest, false, err
	}
	return l.digest(l.db, at[0].branch, step)
}

// digest returns the digest of a branch's step, written or about to be.
func (l *Pebble) digest(r pebble.Reader, branch uint64, step int64) (digest [32]byte, ok bool, err error) {
	l.mu.Lock()
	if digest, ok = l.digests[step]; ok && l.history.owner(step) != branch {
		ok = false
	}
	l.mu.Unlock()
	if ok {
		return digest, true, nil
	}
	value, ok, err := l.get(r, digestKind.of(branch, step))
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
