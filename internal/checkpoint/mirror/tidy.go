package mirror

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/object"
)

// packsAtOnce is how many packs become one: a log of a million steps has some hundreds of
// objects.
const packsAtOnce = 64

// tidy writes key frames and packs segments, while writes go on.
func (l *Log) tidy() {
	for {
		select {
		case <-l.tidyable:
		case <-l.stopped:
			return
		case <-l.ctx.Done():
			return
		}
		for _, work := range []func() error{l.keepFrames, l.keepPacks, l.trim} {
			if err := work(); err != nil {
				l.complain(err)
			}
		}
	}
}

// complain warns of what tidying met: of damage once, as it is met again with every write.
func (l *Log) complain(err error) {
	if l.ctx.Err() != nil || l.Err() != nil || l.told[err.Error()] {
		return
	}
	if unreadable(err) {
		l.told[err.Error()] = true
	}
	l.opts.Log.Logger.Warn("tidying the mirror of the log", "mirror", l.store.String(), "err", err)
}

// unreadable says whether an object is damaged or missing, as it will be the next time.
func unreadable(err error) bool {
	return errors.Is(err, errDamaged) || errors.Is(err, object.ErrNotExist)
}

// keepFrames writes a key frame if one is due.
func (l *Log) keepFrames() error {
	if err := l.take(); err != nil {
		return nil // it has stopped
	}
	var f *segment
	var err error
	if l.frameDue() {
		f, err = l.frame()
	}
	l.release()
	if f == nil || err != nil {
		return err
	}
	if err := l.store.PutIfAbsent(l.ctx, frameName(f.slot), f.encode()); err != nil && !errors.Is(err, object.ErrExists) {
		return err
	}
	l.framed = f.slot // tidy's alone, once it runs
	return l.dropFrames()
}

// freshSlots is how far behind a key frame of the log one of the mirror still has few steps.
const freshSlots = 32

func (l *Log) frameDue() bool {
	every, gap := uint64(l.opts.FrameEvery), l.place.Slot-l.framed
	return gap >= every || gap >= every/4 && l.fresh > l.framed && l.place.Slot-l.fresh < freshSlots
}

// framesKept are the newest key frames that stay; the first of all stays too, if the mirror
// began with a log that was there. In a log that is trimmed all stay that trim leaves.
const framesKept = 2

func (l *Log) dropFrames() error {
	all, err := listSlots(l.ctx, l.store, frames, 0)
	if err != nil || len(all) <= framesKept || l.Trimmed() > 0 {
		return err
	}
	for _, slot := range all[:len(all)-framesKept] {
		if slot > 0 {
			err = errors.Join(err, l.store.Delete(l.ctx, frameName(slot)))
		}
	}
	return err
}

// trim lets go of the objects before a key frame that holds what the log begins with, or what
// comes before that. Segments with a fence stay, and the last pack before the key frame, which
// tells that those before it are not missing. A key frame that cannot be read goes when a later one
// takes its place.
func (l *Log) trim() error {
	first, some := l.First()
	if l.Trimmed() == 0 || !some || first == l.trimmed {
		return nil
	}
	c, err := list(l.ctx, l.store)
	if err != nil {
		return err
	}
	base, bad := uint64(0), []uint64(nil)
	for _, slot := range c.frames {
		f, err := c.readFrame(l.ctx, slot)
		if unreadable(err) {
			l.complain(err)
			bad = append(bad, slot)
			continue
		}
		if err != nil {
			return err
		}
		if firstStep(f.ops) > first {
			break
		}
		base = slot
	}
	err = l.dropBelow(base, bad) // first, as the mirror must not begin with one of them
	for i, r := range c.runs {
		if err == nil && i+1 < len(c.runs) && c.runs[i+1].to <= base {
			err = l.store.Delete(l.ctx, r.name())
		}
	}
	if err == nil {
		err = l.dropBelow(base, c.frames)
	}
	if err == nil {
		l.trimmed = first // tidy's alone
	}
	return err
}

// dropBelow removes key frames before a slot.
func (l *Log) dropBelow(base uint64, slots []uint64) error {
	for _, slot := range slots {
		if slot < base {
			if err := l.store.Delete(l.ctx, frameName(slot)); err != nil {
				return err
			}
		}
	}
	return nil
}

// firstStep is the first one that operations append; the last there can be if none does.
func firstStep(ops []checkpoint.Op) int64 {
	for _, op := range ops {
		if a, ok := op.(checkpoint.Append); ok {
			return a.Step
		}
	}
	return math.MaxInt64
}

// keepPacks packs segments that are so old that nobody who opens the log competes for
// their slots.
func (l *Log) keepPacks() error {
	n := uint64(l.opts.PackEvery)
	for {
		if err := l.take(); err != nil {
			return nil // it has stopped
		}
		end := l.place.Slot
		l.release()
		r := run{l.packed, l.packed + n - l.packed%n}
		if r.to+n > end {
			return nil
		}
		if err := l.pack(l.ctx, r); unreadable(err) && r.to <= l.framed {
			l.complain(err) // they stay as they are, and nobody needs them to go on
		} else if err != nil {
			return err
		}
		l.packed = r.to // tidy's alone, once it runs
		if r.to%(n*packsAtOnce) == 0 {
			if err := l.merge(l.ctx, run{r.to - n*packsAtOnce, r.to}); err != nil {
				return err
			}
		}
	}
}

// pack makes a run of segments one object, and removes them but for fences: a slot that
// another writer may still try must stay taken.
func (l *Log) pack(ctx context.Context, r run) error {
	var all [][]byte
	var gone []uint64
	for slot := r.from; slot < r.to; slot++ {
		data, err := l.store.Get(ctx, segmentName(slot), object.Whole)
		if err != nil {
			return err
		}
		s, err := decode(data, segmentMagic)
		if err != nil {
			return fmt.Errorf("the object %s: %w", segmentName(slot), err)
		}
		all = append(all, data)
		if !has[checkpoint.Fence](s.ops) {
			gone = append(gone, slot)
		}
	}
	if err := l.create(ctx, r.name(), encodePack(all)); err != nil {
		return err
	}
	for _, slot := range gone {
		if err := l.store.Delete(ctx, segmentName(slot)); err != nil {
			return err
		}
	}
	return nil
}

// create writes a pack. One that is there must be the same: it is made of the same bytes.
func (l *Log) create(ctx context.Context, key string, data []byte) error {
	err := l.store.PutIfAbsent(ctx, key, data)
	if !errors.Is(err, object.ErrExists) {
		return err
	}
	there, err := l.store.Get(ctx, key, object.Whole)
	if err == nil && !slices.Equal(there, data) {
		err = fmt.Errorf("the object %s: %w: it is not of these segments", key, errDamaged)
	}
	return err
}

// merge makes one pack of those of a run, if they fill it.
func (l *Log) merge(ctx context.Context, whole run) error {
	runs, err := listRuns(ctx, l.store)
	if err != nil {
		return err
	}
	var all [][]byte
	var parts []run
	at := whole.from
	for _, r := range runs {
		if r.from != at || r.to > whole.to || r == whole {
			continue
		}
		data, err := l.store.Get(ctx, r.name(), object.Whole)
		if err != nil {
			return err
		}
		packed, err := decodePack(data)
		if err != nil {
			return fmt.Errorf("the object %s: %w", r.name(), err)
		}
		all, parts, at = append(all, packed...), append(parts, r), r.to
	}
	if at != whole.to {
		return nil // packs of another size are left as they are
	}
	if err := l.create(ctx, whole.name(), encodePack(all)); err != nil {
		return err
	}
	for _, r := range parts {
		if err := l.store.Delete(ctx, r.name()); err != nil {
			return err
		}
	}
	return nil
}
