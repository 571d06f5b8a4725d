package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// Report says what a mirror holds, and what is wrong with it.
type Report struct {
	Job      [32]byte // identity of the log
	Slots    uint64   // taken so far
	Frames   []uint64 // slots of key frames
	Packs    int
	Epoch    uint64  // of the last writer
	Damage   []error // of class fault.User, each of one object
	Readable error   // why a planner could not go on from it; nil if one can
}

// checkTries bounds how often a mirror is read again that was tidied meanwhile.
const checkTries = 16

// Check reads all of a mirror, which may be written meanwhile. An error is of class
// fault.Lost, or of class fault.User if there is no mirror, or access to it is denied.
func Check(ctx context.Context, store object.Store) (*Report, error) {
	for again := 1; ; again++ {
		c, err := contentOf(ctx, store)
		if err != nil {
			return nil, err
		}
		listed := *c
		r, err := c.check(ctx)
		if err != nil || len(r.Damage) == 0 && r.Readable == nil || again == checkTries {
			return r, err
		}
		if gone, err := listed.vanished(ctx); err != nil || !gone {
			return r, err // nobody tidied: it is damage
		}
	}
}

// vanished says whether some of the key frames and packs that were listed are gone: they were
// merged, or let go of.
func (c *content) vanished(ctx context.Context) (bool, error) {
	now, err := list(ctx, c.store)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(c.runs, func(r run) bool { return !slices.Contains(now.runs, r) }) ||
		slices.ContainsFunc(c.frames, func(f uint64) bool { return !slices.Contains(now.frames, f) }), nil
}

// check reads all that was listed.
func (c *content) check(ctx context.Context) (*Report, error) {
	r := &Report{Slots: c.end(), Frames: c.frames, Packs: len(c.runs)}
	for _, slot := range c.frames {
		_, err := c.readFrame(ctx, slot)
		if unread(err) {
			return nil, err
		}
		if err != nil {
			r.Damage = append(r.Damage, fault.As(fault.User, err))
		}
	}
	for _, p := range c.runs {
		data, err := c.store.Get(ctx, p.name(), object.Whole)
		if unread(err) {
			return nil, err
		}
		if err == nil {
			_, err = decodePack(data)
		}
		if err != nil {
			r.Damage = append(r.Damage, fault.As(fault.User, fmt.Errorf("the object %s: %w", p.name(), err)))
		}
	}
	var at pack
	chain, known := [32]byte{}, false
	for slot := c.begin(); slot < c.end(); slot++ {
		data, err := c.read(ctx, slot, &at)
		var s *segment
		if err == nil {
			s, err = decode(data, segmentMagic)
		}
		if err == nil && known {
			err = s.follows(slot, chain)
		}
		if unread(err) {
			return nil, err
		}
		if known = err == nil; known {
			chain = next(data)
		} else {
			r.Damage = append(r.Damage, c.broken(slot, err))
		}
	}
	st, err := c.load(ctx)
	if unread(err) {
		return nil, err
	}
	if r.Readable = err; err == nil {
		r.Job, r.Epoch = st.job, st.epoch
	}
	if c.begin() > 0 && (err != nil || !st.trimmed()) {
		r.Damage = append(r.Damage, c.broken(0, object.ErrNotExist))
	}
	return r, nil
}

func contentOf(ctx context.Context, store object.Store) (*content, error) {
	c, err := list(ctx, store)
	if err != nil {
		return nil, err
	}
	if c.empty() {
		return nil, fault.Userf("there is no mirror of a log in %s: name the one that was given to the service with --log-mirror", store)
	}
	frames := c.frames
	if c, err = listFrom(ctx, store, 0); err == nil {
		c.frames = frames
	}
	return c, err
}

// Walk calls fn with every operation that a mirror has, in order, also those of steps that
// were truncated since, and with the slot and the epoch of its writer. It begins with the
// first slot, or with a key frame: of what the log was when its mirror began, or where the
// mirror begins since it was trimmed. An error of class fault.User says that it is damaged, or
// that it was trimmed meanwhile, so that it is to be read again.
func Walk(ctx context.Context, store object.Store, fn func(slot, epoch uint64, op checkpoint.Op) error) error {
	c, err := contentOf(ctx, store)
	if err != nil {
		return err
	}
	listed := *c
	err = c.walk(ctx, func(s *segment, _ checkpoint.Place) error {
		for _, op := range s.ops {
			if err := fn(s.slot, s.epoch, op); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, checkpoint.ErrDamaged) {
		return err
	}
	if gone, errAgain := listed.vanished(ctx); gone || errAgain != nil {
		return cmp.Or(errAgain, fault.Userf("the mirror %s let go of its oldest steps while they were read: read it again", store))
	}
	return err
}

// walk is Walk of what was listed, by key frame and segments, each with the place that it leads to.
func (c *content) walk(ctx context.Context, fn func(s *segment, after checkpoint.Place) error) error {
	all := func(s *segment, data []byte) error {
		return fn(s, checkpoint.Place{Slot: s.slot + 1, Chain: next(data)})
	}
	if begin := c.begin(); slices.Contains(c.frames, begin) {
		f, err := c.readFrame(ctx, begin)
		if err != nil {
			return c.broken(begin, err)
		}
		if err := fn(f, checkpoint.Place{Slot: begin, Chain: f.chain}); err != nil {
			return err
		}
		return c.each(ctx, begin, c.end(), f.chain, all)
	}
	data, err := c.store.Get(ctx, segmentName(0), object.Whole)
	if err != nil {
		return c.broken(0, err)
	}
	first, err := decode(data, segmentMagic)
	if err != nil {
		return c.broken(0, err)
	}
	return c.each(ctx, 0, c.end(), root(first.job), all)
}

// Repair makes folder and mirror agree, while nobody writes them, and says what it did. All of the
// folder is read, and it is made again from the mirror where it is damaged, missing or behind: from
// where the mirror begins, if all of it can be read. A mirror
// that cannot be read gets a key frame from the folder, if the folder's last write is the
// mirror's last segment. What neither has whole is refused with an error of class
// fault.User: nothing is guessed. Options.Log needs no identity.
func Repair(ctx context.Context, opts Options) (did string, err error) {
	opts = opts.withDefaults()
	c, err := contentOf(ctx, opts.Store)
	if err != nil {
		return "", err
	}
	st, err := c.load(ctx)
	switch {
	case unread(err):
		return "", err
	case err != nil:
		return mend(ctx, opts, c, err)
	}
	switch whole, err := c.whole(ctx); {
	case err != nil:
		return "", err
	case whole:
		st.fill = func(log checkpoint.Log) error { return c.fill(ctx, log) }
	}
	opts.Log.Identity, opts.Log.Whole = st.job, true
	log, err := openLocal(opts, st)
	if err != nil {
		return "", err
	}
	last, _ := log.Last()
	first, _ := log.First()
	return fmt.Sprintf("the folder %s has what the mirror has: steps %d to %d", opts.Dir, first, last), log.Close()
}

// Compare says whether a folder and its mirror go together, both of which can be read: nothing is written. An error of
// class fault.User is what a planner or Repair would refuse; behind says that they would bring the folder to where the
// mirror stands. Options.Log needs no identity.
func Compare(ctx context.Context, opts Options) (behind bool, err error) {
	opts = opts.withDefaults()
	c, err := contentOf(ctx, opts.Store)
	if err != nil {
		return false, err
	}
	st, err := c.load(ctx)
	if err != nil {
		return false, err
	}
	opts.Log.Identity, opts.Log.ReadOnly = st.job, true
	log, err := checkpoint.Open(opts.Dir, opts.Log)
	if err != nil {
		return false, err
	}
	groups, err := st.missing(opts, log)
	if behind = len(groups) > 0; errors.Is(err, errBehind) {
		behind, err = true, nil
	}
	return behind, errors.Join(err, log.Close())
}

// whole says whether a log can be made of all that the mirror has: it can be read, and of no branch
// an earlier build said that all before it was left by naming the first step of a copy.
func (c *content) whole(ctx context.Context) (bool, error) {
	whole, h := true, checkpoint.NewHistory()
	err := c.walk(ctx, func(s *segment, _ checkpoint.Place) error {
		for _, op := range s.ops {
			parent := h.Current().Parent
			h.Follow(op)
			if _, ok := op.(checkpoint.Append); ok {
				whole = whole && h.Current().Parent == parent
			}
		}
		return nil
	})
	if unread(err) {
		return false, err
	}
	return whole && err == nil, nil
}

// fill makes an empty log what the mirrored one is, with all the steps that the mirror has.
func (c *content) fill(ctx context.Context, log checkpoint.Log) error {
	var some []group
	err := c.walk(ctx, func(s *segment, after checkpoint.Place) (err error) {
		if some = append(some, group{s.ops, after}); len(some) == applyAtOnce {
			err, some = apply(log, some), nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return apply(log, some)
}

// mend gives a damaged mirror a key frame from the folder.
func mend(ctx context.Context, opts Options, c *content, damage error) (string, error) {
	local, identity, err := checkpoint.Resume(opts.Dir, opts.Log)
	if err != nil || local == nil {
		return "", errors.Join(damage, err)
	}
	defer local.Close() // it was only read
	place, ok := local.Place()
	if !ok || place.Slot != c.end() || place.Slot == 0 {
		return "", fmt.Errorf("%w; the folder %s cannot replace it: its last write is not the mirror's last segment", damage, opts.Dir)
	}
	var at pack
	data, err := c.read(ctx, place.Slot-1, &at)
	if unread(err) {
		return "", err
	}
	if err != nil || next(data) != place.Chain {
		return "", fmt.Errorf("%w; the folder %s cannot replace it: the mirror's last segment is damaged too, or another planner's", damage, opts.Dir)
	}
	opts.Log.Identity = identity
	l := &Log{Log: local, opts: opts, place: place}
	f, err := l.frame()
	if err == nil {
		err = opts.Store.Put(ctx, frameName(f.slot), f.encode())
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the mirror %s has a key frame of the folder %s, at slot %d", opts.Store, opts.Dir, f.slot), nil
}
