package mirror

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// take makes the caller the only writer, who then calls release.
func (l *Log) take() error {
	select {
	case <-l.busy:
	case <-l.stopped:
		return l.Err()
	case <-l.ctx.Done():
		return checkpoint.ErrClosed
	}
	if err := l.usable(); err != nil {
		l.release()
		return err
	}
	return nil
}

func (l *Log) release() { l.busy <- struct{}{} }

// usable says why the log cannot be used any more, or nil.
func (l *Log) usable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return l.cause
	}
	if l.ended {
		return checkpoint.ErrClosed
	}
	return nil
}

// Write is checkpoint.Log's. It returns when the segment is in the store.
func (l *Log) Write(ops ...checkpoint.Op) error {
	if err := l.take(); err != nil {
		return err
	}
	defer l.release()
	switch {
	case len(ops) == 0:
		return nil
	case tooLarge(ops):
		return l.Log.Write(ops...) // which says so
	case only[checkpoint.SetDigest](ops): // no reason for a segment
		if err := l.Log.Write(ops...); err != nil {
			return err
		}
		l.waiting = append(l.waiting, ops...)
		return nil
	case l.replays(ops):
		return l.Log.Write(append(ops[:len(ops):len(ops)], l.place)...)
	}
	if !l.fenced && !has[checkpoint.Fence](ops) {
		ops = append([]checkpoint.Op{checkpoint.Fence{Epoch: max(l.epoch, l.Epoch()) + 1}}, ops...)
	}
	return l.write(ops)
}

// write does operations in the local log, and then in the mirror.
func (l *Log) write(ops []checkpoint.Op) error {
	s := l.segment(ops)
	data := s.encode()
	after := checkpoint.Place{Slot: s.slot + 1, Chain: next(data)}
	if err := l.Log.Write(append(ops[:len(ops):len(ops)], after)...); err != nil {
		return err
	}
	switch err := l.store.PutIfAbsent(l.ctx, segmentName(s.slot), data); {
	case errors.Is(err, object.ErrExists):
		l.refused.Add(1)
		_ = l.store.Put(l.ctx, refusalName(s.slot, l.writer), nil) // who took over counts it
		return l.stop(l.deposed(s.slot))
	case err != nil:
		return l.stop(fault.As(fault.ClassOf(err), fmt.Errorf("the log in %s has stopped: its mirror: %w; when the mirror can be written again, "+
			"a planner that stands by goes on, and this one can be started again", l.opts.Dir, err)))
	}
	l.took(s, after)
	return nil
}

// segment is the next one.
func (l *Log) segment(ops []checkpoint.Op) *segment {
	s := &segment{
		magic: segmentMagic, slot: l.place.Slot, epoch: l.epoch, writer: l.writer, chain: l.place.Chain, job: l.opts.Log.Identity,
		ops: append(l.waiting[:len(l.waiting):len(l.waiting)], ops...),
	}
	for _, op := range ops {
		if f, ok := op.(checkpoint.Fence); ok {
			s.epoch = f.Epoch
		}
	}
	return s
}

// took goes on after a segment that is in the store.
func (l *Log) took(s *segment, after checkpoint.Place) {
	if !l.fenced {
		l.sign()
	}
	l.place, l.epoch, l.fenced, l.waiting = after, s.epoch, true, nil
	l.leads.Store(true)
	if slices.ContainsFunc(s.ops, func(op checkpoint.Op) bool { a, ok := op.(checkpoint.Append); return ok && a.Frame != nil }) {
		l.fresh = after.Slot
	}
	select {
	case l.tidyable <- struct{}{}:
	default:
	}
}

// deposed is the error of who lost a slot.
func (l *Log) deposed(slot uint64) error {
	who := "another planner"
	if data, err := l.store.Get(l.ctx, segmentName(slot), object.Whole); err == nil {
		if s, err := decode(data, segmentMagic); err == nil {
			who = fmt.Sprintf("another planner (epoch %d)", s.epoch)
		}
	}
	return fault.Lostf("%s %w the log in %s, at slot %d of the mirror %s: this one ends, and the other one serves the job", who, checkpoint.ErrDeposed, l.opts.Dir, slot, l.store)
}

// replays says whether operations are of steps that the log has: they change nothing, or
// fail.
func (l *Log) replays(ops []checkpoint.Op) bool {
	first, some := l.First()
	last, _ := l.Last()
	for _, op := range ops {
		a, ok := op.(checkpoint.Append)
		if !ok || !some || a.Step < first || a.Step > last {
			return false
		}
		if a.Frame != nil {
			if at, _, framed, err := l.Log.Frame(a.Step); err != nil || !framed || at != a.Step {
				return false // it comes with a key frame that is new
			}
		}
	}
	return true
}

func tooLarge(ops []checkpoint.Op) bool {
	return slices.ContainsFunc(ops, func(op checkpoint.Op) bool {
		a, ok := op.(checkpoint.Append)
		return ok && len(a.Record)+len(a.Frame) > checkpoint.MaxBytes
	})
}

func only[T checkpoint.Op](ops []checkpoint.Op) bool {
	for _, op := range ops {
		if _, ok := op.(T); !ok {
			return false
		}
	}
	return true
}

func has[T checkpoint.Op](ops []checkpoint.Op) bool {
	for _, op := range ops {
		if _, ok := op.(T); ok {
			return true
		}
	}
	return false
}

// fenceTries bounds how often a fence goes after a writer that is faster. Each try is a
// read of what it wrote, so that one is mostly enough.
const fenceTries = 64

// Fence is checkpoint.Log's. The first of a Log takes the next slot that is free: what
// others wrote up to it is in the log then, and what they write after it fails.
func (l *Log) Fence(epoch uint64) error {
	if err := l.take(); err != nil {
		return err
	}
	defer l.release()
	if l.fenced {
		return l.write([]checkpoint.Op{checkpoint.Fence{Epoch: epoch}})
	}
	l.claim()
	for range fenceTries {
		if highest := max(l.epoch, l.Epoch()); epoch <= highest {
			return fmt.Errorf("fencing epoch %d: %w: the highest so far is %d", epoch, checkpoint.ErrOrder, highest)
		}
		done, err := l.tryFence(checkpoint.Fence{Epoch: epoch})
		if err != nil && !errors.Is(err, checkpoint.ErrOrder) {
			return l.stop(err)
		}
		if done || err != nil {
			return err
		}
		if err := l.catchUp(); err != nil {
			return l.stop(err)
		}
	}
	return l.stop(fault.Lostf("fencing epoch %d: another writer of the mirror %s was faster %d times: stop it, and start again", epoch, l.store, fenceTries))
}

// tryFence takes the next slot for a fence; done is false if it is taken.
func (l *Log) tryFence(fence checkpoint.Fence) (done bool, err error) {
	if fence.Epoch >= 1<<63 {
		return false, fmt.Errorf("fencing epoch %d: %w: epochs end at 2^63-1", fence.Epoch, checkpoint.ErrOrder)
	}
	s := l.segment([]checkpoint.Op{fence})
	data := s.encode()
	err = l.store.PutIfAbsent(l.ctx, segmentName(s.slot), data)
	if errors.Is(err, object.ErrExists) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c, err := listFrom(l.ctx, l.store, s.slot)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(c.runs, func(r run) bool { return r.to > s.slot }) {
		// The slot was taken, packed and removed since it was looked for: this is no fence. A segment
		// in the next slot says nothing of that, as it may be of a writer that follows this fence.
		return false, l.store.Delete(l.ctx, segmentName(s.slot))
	}
	after := checkpoint.Place{Slot: s.slot + 1, Chain: next(data)}
	if err := l.Log.Write(fence, after); err != nil {
		return false, err
	}
	l.took(s, after)
	return true, nil
}

// catchUp takes in what another writer wrote.
func (l *Log) catchUp() error {
	c, err := listFrom(l.ctx, l.store, l.place.Slot)
	if err != nil {
		return err
	}
	st := &state{job: l.opts.Log.Identity, place: l.place, epoch: l.epoch}
	if err := st.follow(l.ctx, c); err != nil {
		return err
	}
	if err := apply(l.Log, st.groups); err != nil {
		return err
	}
	l.place, l.epoch = st.place, st.epoch
	return nil
}

// Append is checkpoint.Log's.
func (l *Log) Append(step int64, record, frame []byte) error {
	return l.Write(checkpoint.Append{Step: step, Record: record, Frame: frame})
}

// SetDigest is checkpoint.Log's. The mirror has a digest with the next segment.
func (l *Log) SetDigest(step int64, digest [32]byte) error {
	return l.Write(checkpoint.SetDigest{Step: step, Digest: digest})
}

// Truncate is checkpoint.Log's.
func (l *Log) Truncate(from int64) error {
	if last, ok := l.Last(); !ok || from > last {
		return l.usable() // nothing to forget, and nothing to mirror
	}
	return l.Write(checkpoint.Truncate{From: from})
}

// Trim is checkpoint.Log's.
func (l *Log) Trim(before int64) error { return l.Write(checkpoint.Trim{Before: before}) }

// AddChange is checkpoint.Log's.
func (l *Log) AddChange(change []byte) error { return l.Write(checkpoint.AddChange{Change: change}) }

// SetGeneration is checkpoint.Log's.
func (l *Log) SetGeneration(g checkpoint.Generation) error {
	return l.Write(checkpoint.SetGeneration{Generation: g})
}

// Close is checkpoint.Log's.
func (l *Log) Close() error {
	select {
	case <-l.busy:
		defer l.release()
	case <-l.stopped:
	}
	l.mu.Lock()
	ended, cause := l.ended, l.cause
	l.ended = true
	l.mu.Unlock()
	if ended {
		return nil
	}
	if cause == nil && len(l.waiting) > 0 {
		l.flush()
	}
	if cause == nil && l.fenced {
		l.free()
	}
	l.cancel()
	l.work.Wait()
	if err := l.Log.Close(); cause == nil {
		return err
	}
	return cause
}

// flush gives the mirror the last digests. They can be computed again: what fails is no
// loss.
func (l *Log) flush() {
	if !l.fenced {
		return
	}
	s := l.segment(nil)
	data := s.encode()
	if l.store.PutIfAbsent(l.ctx, segmentName(s.slot), data) == nil {
		l.place = checkpoint.Place{Slot: s.slot + 1, Chain: next(data)}
		_ = l.Log.Write(l.place)
	}
}

// Records is checkpoint.Log's, and so are the methods below.
func (l *Log) Records(from, to int64, fn func(step int64, record []byte) error) error {
	if err := l.Err(); err != nil {
		return err
	}
	return l.Log.Records(from, to, fn)
}

// Frame is checkpoint.Log's.
func (l *Log) Frame(atOrBefore int64) (step int64, frame []byte, ok bool, err error) {
	if err := l.Err(); err != nil {
		return 0, nil, false, err
	}
	return l.Log.Frame(atOrBefore)
}

// ReadDigest is checkpoint.Log's.
func (l *Log) ReadDigest(step int64) (digest [32]byte, ok bool, err error) {
	if err := l.Err(); err != nil {
		return digest, false, err
	}
	return l.Log.ReadDigest(step)
}

// Changes is checkpoint.Log's.
func (l *Log) Changes() ([][]byte, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	return l.Log.Changes()
}

// Epochs is checkpoint.Log's.
func (l *Log) Epochs() ([]checkpoint.Epoch, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	return l.Log.Epochs()
}

// Generations is checkpoint.Log's.
func (l *Log) Generations() ([]checkpoint.Generation, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	return l.Log.Generations()
}
