package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// A log is opened in a time that does not depend on its length: the mark's sum is over the sums
// of stretches of steps, all of which are read, and of the steps themselves those from the last
// key frame on. Others are compared with their stretch's sum when they are read for the first time.

// stretchSteps is the number of steps that share a sum: some hundred kilobytes are read to
// read one of them, and a million steps have 3,907 sums.
const stretchSteps = 256

// TrimEvery is the number of steps that it makes sense to let go of at a time: less than a whole
// stretch is not deleted.
const TrimEvery = stretchSteps

// stretch is the steps at <= step < at+stretchSteps that are a branch's own.
type stretch struct {
	branch uint64
	at     int64
}

func stretchOf(branch uint64, step int64) stretch {
	return stretch{branch, step - step%stretchSteps}
}

func (x stretch) key() []byte { return sumKind.of(x.branch, x.at) }

// sumOf is the sum of a stretch, which a batch changes.
func (b *batch) sumOf(x stretch) *sum {
	if s := b.sums[x]; s != nil {
		return s
	}
	s := &sum{}
	value, there, err := b.log.get(b.db, x.key())
	if b.err == nil {
		b.err = err
	}
	copy(s[:], value)
	if b.sums[x] = s; !there {
		b.begun = append(b.begun, x)
	}
	return s
}

// putStep sets what a step has, and has not yet.
func (b *batch) putStep(k kind, step int64, value []byte) {
	branch := b.history.owner(step)
	key := k.of(branch, step)
	b.sumOf(stretchOf(branch, step)).toggle(key, value)
	b.set(key, value)
	b.dirty = true
}

// settleSums puts the sums that have changed.
func (b *batch) settleSums() {
	order := func(x, y stretch) int { return cmp.Or(cmp.Compare(x.branch, y.branch), cmp.Compare(x.at, y.at)) }
	for _, x := range slices.SortedFunc(maps.Keys(b.sums), order) {
		b.replace(x.key(), b.sums[x][:])
	}
}

// settleBranches puts the branches that have changed.
func (b *batch) settleBranches() {
	before, after := b.log.history.stored(), b.history.stored()
	for _, n := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[n]; !kept {
			b.replace(branchKind.key(int64(n)), nil)
		}
	}
	for _, n := range slices.Sorted(maps.Keys(after)) {
		if string(before[n]) != string(after[n]) {
			b.replace(branchKind.key(int64(n)), after[n])
		}
	}
}

// replace sets a key that may be there, or deletes it if value is nil.
func (b *batch) replace(key, value []byte) {
	before, there, err := b.log.get(b.db, key)
	if b.err == nil {
		b.err = err
	}
	if there {
		b.mark.sum.toggle(key, before)
	}
	switch {
	case value != nil:
		b.mark.sum.toggle(key, value)
		b.set(key, value)
	case b.err == nil:
		b.err = b.db.Delete(key, nil)
	}
}

// upgrade gives the log of an older version its sums.
func (b *batch) upgrade() {
	l := b.log
	b.set(formatKey, encodeFormat(formatVersion))
	b.mark.sum = l.opts.Identity
	for _, k := range []kind{changeKind, epochKind, generationKind} {
		b.note(l.each(l.db, k.all(), func(key, value []byte) error { b.mark.sum.toggle(key, value); return nil }))
	}
	for _, k := range stepKinds {
		b.note(l.each(l.db, k.all(), func(key, value []byte) error {
			b.sumOf(stretchOf(0, stepOf(key))).toggle(key, value)
			return nil
		}))
	}
}

// note keeps the first error.
func (b *batch) note(err error) {
	if b.err == nil {
		b.err = err
	}
}

// scan reads what the mark's sum is of.
func (l *Pebble) scan() (found mark, err error) {
	if found.sum, err = l.storedIdentity(); err != nil {
		return found, err
	}
	bounds := []*pebble.IterOptions{sumKind.ofBranches()}
	for _, k := range []kind{branchKind, changeKind, epochKind, generationKind, sumKind} {
		bounds = append(bounds, k.all())
	}
	if l.format < formatVersion {
		for _, k := range stepKinds {
			bounds = append(bounds, k.all())
		}
	}
	for _, of := range bounds {
		if err := l.each(l.db, of, func(key, value []byte) error { return found.add(key, value) }); err != nil {
			return found, err
		}
	}
	return found, nil
}

// add counts a pair, which comes after all of its kind before it.
func (m *mark) add(key, value []byte) error {
	if kind(key[0]) == changeKind {
		if stepOf(key) != m.changes {
			return fmt.Errorf("change %d: %w", m.changes, errMissing)
		}
		m.changes++
	}
	m.sum.toggle(key, value)
	return nil
}

// storedBranches are those of the database, with the steps of its mark.
func (l *Pebble) storedBranches(steps span) (h History, err error) {
	err = l.each(l.db, branchKind.all(), func(key, value []byte) error {
		b, ok := decodeBranch(uint64(stepOf(key)), value)
		if !ok {
			return l.damaged("branch %d has %d bytes, and is none", stepOf(key), len(value))
		}
		h = append(h, b)
		return nil
	})
	return h.opened(steps), err
}

// verifyEnd compares the steps from the last key frame on with their sums, or all that the log
// has.
func (l *Pebble) verifyEnd(all bool) error {
	if !all {
		_, _, framed, err := l.head().Frame(l.mark.steps.next)
		if framed || err != nil {
			return err
		}
	}
	for i := range l.history {
		b := &l.history[i]
		if !all && b.Number != l.history.Current().Number {
			continue
		}
		for _, p := range l.history.pieces(b.Number) {
			if err := l.verifyPiece(l.db, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Pebble) verifyPiece(r pebble.Reader, p piece) error {
	for x := stretchOf(p.branch, p.first); x.at < p.next; x.at += stretchSteps {
		if err := l.verify(r, x); err != nil {
			return err
		}
	}
	return nil
}

// verify compares the steps of a stretch with their sum, once.
func (l *Pebble) verify(r pebble.Reader, x stretch) error {
	l.mu.Lock()
	known, own := l.proven[x] || l.format < formatVersion, span{}
	if b, ok := l.history.find(x.branch); ok {
		own = span{b.From, b.Next}.clamp(x.at, x.at+stretchSteps)
	}
	l.mu.Unlock()
	if known {
		return nil
	}
	value, _, err := l.get(r, x.key())
	if err != nil {
		return l.wrap(err, fmt.Sprintf("reading the sum of the steps from %d on", x.at))
	}
	var want, found sum
	copy(want[:], value)
	next := own.first
	for _, k := range stepKinds {
		err = errors.Join(err, l.each(r, k.within(x.branch, x.at, x.at+stretchSteps), func(key, value []byte) error {
			if k == recordKind && stepOf(key) == next {
				next++
			}
			found.toggle(key, value)
			return nil
		}))
	}
	switch {
	case err != nil:
		return l.wrap(err, fmt.Sprintf("reading steps %d to %d", own.first, own.next-1))
	case want != found || next < own.next:
		return l.damaged("steps %d to %d (branch %d) are not as they were written", own.first, own.next-1, x.branch)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.proven[x] = true
	return nil
}
