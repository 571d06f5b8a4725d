package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"math"
)

// Write is Log.Write.
func (l *Pebble) Write(ops ...Op) error {
	return l.write(func() error {
		b := l.newBatch()
		b.place = nil
		for _, op := range ops {
			if err := b.do(op); err != nil {
				return errors.Join(err, b.db.Close())
			}
		}
		if b.settlePlace(); !b.dirty {
			return l.later(b)
		}
		return l.wrap(l.commit(b), doing(ops))
	})
}

// settlePlace notes the place that the group leads to. What was written without one is in
// no copy of the log, whose place is then none.
func (b *batch) settlePlace() {
	before := b.log.place
	switch {
	case b.place != nil && (before == nil || *before != *b.place):
		b.set(placeKey, b.place.encode())
		b.dirty = true
	case b.place == nil && b.dirty && before != nil:
		if b.err == nil {
			b.err = b.db.Delete(placeKey, nil)
		}
	case !b.dirty || b.place == nil:
		b.place = before
	}
}

// doing says what a group of operations does, for errors.
func doing(ops []Op) string {
	if len(ops) == 1 {
		return ops[0].String()
	}
	return fmt.Sprintf("%s and %d more operations", ops[0], len(ops)-1)
}

// later keeps the digests of a batch that has nothing else: they reach the disk with the
// next one or with tend.
func (l *Pebble) later(b *batch) error {
	l.mu.Lock()
	for step, digest := range b.digests {
		l.digests[step] = digest
	}
	l.mu.Unlock()
	return b.db.Close()
}

// Append is Log.Append.
func (l *Pebble) Append(step int64, record, frame []byte) error {
	return l.Write(Append{Step: step, Record: record, Frame: frame})
}

// SetDigest is Log.SetDigest.
func (l *Pebble) SetDigest(step int64, digest [32]byte) error {
	return l.Write(SetDigest{Step: step, Digest: digest})
}

// Truncate is Log.Truncate.
func (l *Pebble) Truncate(from int64) error { return l.Write(Truncate{From: from}) }

// AddChange is Log.AddChange.
func (l *Pebble) AddChange(change []byte) error { return l.Write(AddChange{Change: change}) }

// Trim is Log.Trim.
func (l *Pebble) Trim(before int64) error { return l.Write(Trim{Before: before}) }

// Fence is Log.Fence.
func (l *Pebble) Fence(epoch uint64) error { return l.Write(Fence{Epoch: epoch}) }

// SetGeneration is Log.SetGeneration.
func (l *Pebble) SetGeneration(g Generation) error { return l.Write(SetGeneration{g}) }

// do puts an operation into a batch, after those before it.
func (b *batch) do(op Op) error {
	switch op := op.(type) {
	case Append:
		return b.append(op)
	case SetDigest:
		return b.setDigest(op)
	case Truncate:
		b.truncate(op.From)
		return nil
	case Fork:
		return b.fork(op)
	case Trim:
		return b.trim(op.Before)
	case InBranch:
		return b.goOnIn(op.Number)
	case AddChange:
		b.put(changeKind.key(b.mark.changes), op.Change)
		b.mark.changes++
		return nil
	case Fence:
		return b.fence(op.Epoch)
	case SetGeneration:
		return b.setGeneration(op.Generation)
	case Place:
		b.place = &op
		return nil
	}
	return fmt.Errorf("the log in %s: %T is not an operation of a log", b.log.dir, op)
}

func (b *batch) append(op Append) error {
	l, step, steps := b.log, op.Step, b.mark.steps
	switch {
	case step < 0 || step == math.MaxInt64:
		return fmt.Errorf("appending step %d: %w: steps are 0 to 2^63-2", step, ErrOrder)
	case len(op.Record)+len(op.Frame) > MaxBytes:
		return fmt.Errorf("appending %s: record and frame have %d bytes, at most %d are taken", l.at(step), len(op.Record)+len(op.Frame), MaxBytes)
	case steps.has(step):
		return b.replay(op)
	case !steps.empty() && step != steps.next:
		return fmt.Errorf("appending %s: %w: it holds %d to %d, so that %d comes next", l.at(step), ErrOrder, steps.first, steps.next-1, steps.next)
	}
	b.history.Add(step)
	b.putStep(recordKind, step, op.Record)
	if op.Frame != nil {
		b.putStep(frameKind, step, op.Frame)
	}
	if steps.empty() {
		steps.first = step
	}
	steps.next = step + 1
	b.mark.steps = steps
	return nil
}

// replay compares step with what the log holds.
func (b *batch) replay(op Append) error {
	branch := b.history.owner(op.Step)
	if err := b.log.verify(b.log.db, stretchOf(branch, op.Step)); err != nil {
		return err
	}
	stored, ok, err := b.log.get(b.db, recordKind.of(branch, op.Step))
	if err == nil && !ok {
		err = errMissing
	}
	if err != nil {
		return b.log.wrap(err, fmt.Sprintf("reading the record of step %d", op.Step))
	}
	if err := b.log.compare(op.Step, "record", op.Record, stored); err != nil || op.Frame == nil {
		return err
	}
	stored, ok, err = b.log.get(b.db, frameKind.of(branch, op.Step))
	if err != nil {
		return b.log.wrap(err, fmt.Sprintf("reading the key frame of step %d", op.Step))
	}
	if ok {
		return b.log.compare(op.Step, "key frame", op.Frame, stored)
	}
	b.putStep(frameKind, op.Step, op.Frame)
	return nil
}

func (l *Pebble) compare(step int64, what string, got, stored []byte) error {
	if bytes.Equal(got, stored) {
		return nil
	}
	at := 0
	for at < min(len(got), len(stored)) && got[at] == stored[at] {
		at++
	}
	return fmt.Errorf("%s: %w: the %s has %d bytes now and %d in the log, equal up to byte %d",
		l.at(step), ErrDiverged, what, len(got), len(stored), at)
}

// setDigest adds a digest, which alone is no reason to write.
func (b *batch) setDigest(op SetDigest) error {
	l := b.log
	if !b.mark.steps.has(op.Step) {
		return fmt.Errorf("setting the digest of %s: %w: it is not in the log", l.at(op.Step), ErrOrder)
	}
	stored, ok, err := l.digest(b.db, b.history.owner(op.Step), op.Step)
	switch {
	case err != nil:
		return err
	case ok:
		return l.compare(op.Step, "digest", op.Digest[:], stored[:])
	}
	dirty := b.dirty
	b.putStep(digestKind, op.Step, op.Digest[:])
	b.dirty = dirty
	b.digests[op.Step] = op.Digest
	return nil
}

// truncate opens a branch: the steps of the one before stay.
func (b *batch) truncate(from int64) {
	if steps := b.mark.steps; steps.empty() || from >= steps.next {
		return
	}
	b.history = b.history.Truncated(from)
	b.mark.steps = b.history.span(b.history.Current().Number)
	b.dirty = true
}

// fork opens a branch after another one.
func (b *batch) fork(op Fork) error {
	if op.Number > maxNumber {
		return fmt.Errorf("the log in %s: %s: %w: it has %s", b.log.dir, op, ErrOrder, b.history.Current())
	}
	b.history = b.history.Forked(op)
	b.mark.steps = b.history.span(b.history.Current().Number)
	b.dirty = true
	return nil
}

// goOnIn numbers the branch of an empty log.
func (b *batch) goOnIn(number uint64) error {
	last := b.history.Current()
	if !b.mark.steps.empty() || number < last.Number || number > maxNumber {
		return fmt.Errorf("the log in %s: going on in branch %d: %w: it has %s", b.log.dir, number, ErrOrder, last)
	}
	b.history[len(b.history)-1] = Branch{Number: number, Parent: number}
	b.dirty = true
	return nil
}

// trim lets go of the steps before the last key frame at or before a step. What readers may
// be reading is deleted by the next trim.
func (b *batch) trim(before int64) error {
	l, steps := b.log, b.mark.steps
	if before <= b.trimmed {
		return nil
	}
	b.trimmed, b.dirty = before, true
	b.set(trimmedKey, encodeStep(before))
	if steps.empty() || before <= steps.first {
		return nil
	}
	at, _, framed, err := l.frameIn(b.db, b.history.pieces(b.history.Current().Number), min(before, steps.next-1))
	if err != nil || !framed || at == steps.first {
		return err
	}
	gone, kept := steps.first, b.history.Trimmed(at)
	for _, branch := range b.history {
		until := gone - gone%stretchSteps
		if _, stays := kept.find(branch.Number); !stays {
			until = math.MaxInt64
		}
		b.clear(branch.Number, until)
	}
	b.history = kept
	b.mark.steps.first = at
	return nil
}

// clear deletes the whole stretches of a branch before a step.
func (b *batch) clear(branch uint64, until int64) {
	b.note(b.log.each(b.db, sumKind.within(branch, 0, until), func(key, value []byte) error {
		b.mark.sum.toggle(key, value)
		delete(b.sums, stretch{branch, stepOf(key)})
		return nil
	}))
	for _, k := range append([]kind{sumKind}, stepKinds...) {
		b.note(b.db.DeleteRange(k.of(branch, 0), k.of(branch, until), nil))
	}
}

// write calls fn as the only writer.
func (l *Pebble) write(fn func() error) error {
	if err := l.enter(); err != nil {
		return err
	}
	defer l.leave()
	select {
	case <-l.writer:
	case <-l.disk.failed:
		return l.failure()
	}
	defer func() { l.writer <- struct{}{} }()
	return fn()
}

// at is how errors name a step.
func (l *Pebble) at(step int64) string { return fmt.Sprintf("step %d of the log in %s", step, l.dir) }
