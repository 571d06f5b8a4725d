package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// rereading is a store that reads segments, key frames and packs once more which are not whole: bytes can change on the
// way, or an answer be cut, and what is whole then is not damaged.
type rereading struct{ object.Store }

// reread makes a store one that reads once more.
func reread(s object.Store) object.Store {
	if _, ok := s.(rereading); ok {
		return s
	}
	return rereading{s}
}

// Get implements object.Store.
func (r rereading) Get(ctx context.Context, key string, part object.Range) ([]byte, error) {
	data, err := r.Store.Get(ctx, key, part)
	kind, _, _ := strings.Cut(key, "/")
	magic := map[string]string{segments: segmentMagic, frames: frameMagic, packs: packMagic}[kind+"/"]
	if err != nil || magic == "" || part != object.Whole {
		return data, err
	}
	if _, damaged := unseal(data, magic); damaged != nil {
		return r.Store.Get(ctx, key, part)
	}
	return data, nil
}

// content lists the objects of a mirror: what is where.
type content struct {
	store  object.Store // one that reads once more
	frames []uint64
	loose  []uint64 // segments that stand alone
	runs   []run
}

// list looks at a mirror: all key frames and packs, and the segments from the newest key
// frame on.
func list(ctx context.Context, s object.Store) (*content, error) {
	frames, err := listSlots(ctx, s, frames, 0)
	if err != nil {
		return nil, err
	}
	from := uint64(0)
	if len(frames) > 0 {
		from = frames[len(frames)-1]
	}
	c, err := listFrom(ctx, s, from)
	if err == nil {
		c.frames = frames
	}
	return c, err
}

// listFrom looks at the packs of a mirror, and the segments from a slot on.
func listFrom(ctx context.Context, s object.Store, from uint64) (c *content, err error) {
	c = &content{store: reread(s)}
	// Segments before packs: what is packed meanwhile is in a pack that is listed.
	if c.loose, err = listSlots(ctx, s, segments, from); err != nil {
		return nil, err
	}
	c.runs, err = listRuns(ctx, s)
	return c, err
}

// end is the slot after the last one that is taken.
func (c *content) end() (slot uint64) {
	if n := len(c.loose); n > 0 {
		slot = c.loose[n-1] + 1
	}
	for _, r := range c.runs {
		slot = max(slot, r.to)
	}
	if n := len(c.frames); n > 0 {
		slot = max(slot, c.frames[n-1])
	}
	return slot
}

// begin is the slot before which everything was let go of: that of a key frame, or 0.
func (c *content) begin() uint64 {
	for _, slot := range c.frames {
		if len(c.runs) > 0 && c.runs[0].from > 0 && slot >= c.runs[0].from {
			return slot
		}
	}
	return 0
}

func (c *content) empty() bool { return len(c.frames)+len(c.loose)+len(c.runs) == 0 }

// readFrame reads a key frame.
func (c *content) readFrame(ctx context.Context, slot uint64) (*segment, error) {
	data, err := c.store.Get(ctx, frameName(slot), object.Whole)
	if err != nil {
		return nil, err
	}
	s, err := decode(data, frameMagic)
	if err == nil && s.slot != slot {
		err = fmt.Errorf("%w: it is the one of slot %d", errDamaged, s.slot)
	}
	if err != nil {
		return nil, fmt.Errorf("the object %s: %w", frameName(slot), err)
	}
	return s, nil
}

// each calls fn with the segments from <= slot < to, in order, after a chain. What a pack
// covers is read from the pack; a segment that stands alone beside it is older than the
// pack, or was created by somebody who came too late, and is read if no pack is whole.
func (c *content) each(ctx context.Context, from, to uint64, chain [32]byte, fn func(s *segment, data []byte) error) error {
	var at pack
	for slot := from; slot < to; slot++ {
		data, err := c.read(ctx, slot, &at)
		if unread(err) {
			return err
		}
		var s *segment
		if err == nil {
			s, err = decode(data, segmentMagic)
		}
		if err == nil {
			err = s.follows(slot, chain)
		}
		if err != nil {
			return c.broken(slot, err)
		}
		if err := fn(s, data); err != nil {
			return err
		}
		chain = next(data)
	}
	return nil
}

// pack is one that was read.
type pack struct {
	run
	segments [][]byte
}

// read returns the bytes of a segment. at is the pack of the one before it.
func (c *content) read(ctx context.Context, slot uint64, at *pack) (data []byte, err error) {
	for again := range 2 {
		if !at.covers(slot) {
			if *at, err = c.unpack(ctx, slot); err != nil {
				return nil, err
			}
		}
		if at.covers(slot) {
			return at.segments[slot-at.from], nil
		}
		data, err = c.store.Get(ctx, segmentName(slot), object.Whole)
		if !errors.Is(err, object.ErrNotExist) || again > 0 {
			return data, err
		}
		if c.runs, err = listRuns(ctx, c.store); err != nil { // it may have been packed since they were listed
			return nil, err
		}
	}
	return data, err
}

func (s *segment) follows(slot uint64, chain [32]byte) error {
	if s.slot != slot {
		return fmt.Errorf("%w: it is the one of slot %d", errDamaged, s.slot)
	}
	if s.chain != chain {
		return fmt.Errorf("%w: it does not follow the one before it", errDamaged)
	}
	return nil
}

// unpack reads a pack that covers a slot and is whole; an empty one if there is none.
func (c *content) unpack(ctx context.Context, slot uint64) (pack, error) {
	for _, r := range c.runs {
		if !r.covers(slot) {
			continue
		}
		data, err := c.store.Get(ctx, r.name(), object.Whole)
		if unread(err) {
			return pack{}, err
		}
		if err != nil {
			continue
		}
		if packed, err := decodePack(data); err == nil && uint64(len(packed)) == r.to-r.from {
			return pack{r, packed}, nil
		}
	}
	return pack{}, nil
}

// unread reports whether an error says nothing of what an object holds: it cannot be read now, or by whom has no right to.
func unread(err error) bool {
	return fault.ClassOf(err) == fault.Lost || errors.Is(err, object.ErrDenied)
}

// broken is the error for a slot whose segment or key frame is damaged or missing. What is unread is another matter.
func (c *content) broken(slot uint64, err error) error {
	if unread(err) {
		return err
	}
	if errors.Is(err, object.ErrNotExist) {
		err = errors.New("it is missing")
	}
	return fault.Userf("the mirror %s %w: slot %d: %w: `millrace log check` says what is left, and `millrace log repair` mends it from a local folder that has all",
		c.store, checkpoint.ErrDamaged, slot, err)
}

// state is what a mirror holds: operations in groups, which make an empty log what the
// mirrored one was, and the place that they lead to.
type state struct {
	job    [32]byte
	first  uint64 // slot of the key frame; 0 if there is none
	groups []group
	place  checkpoint.Place
	epoch  uint64                         // of the last writer
	fill   func(log checkpoint.Log) error // makes an empty log what the mirrored one was; nil: the groups do
}

// group is what one Write did, and where it led.
type group struct {
	ops   []checkpoint.Op
	place checkpoint.Place
}

// load reads a mirror from its newest key frame that is whole.
func (c *content) load(ctx context.Context) (*state, error) {
	var damage error
	frames := c.frames
	for i, slot := range slices.Backward(frames) {
		f, err := c.readFrame(ctx, slot)
		if err != nil {
			err = c.broken(slot, err)
		} else {
			st := &state{job: f.job, first: slot, epoch: f.epoch, place: checkpoint.Place{Slot: slot, Chain: f.chain}}
			st.groups = []group{{f.ops, st.place}}
			if err = st.follow(ctx, c); err == nil && (slot == 0 || !st.cutBelow()) {
				return st, nil
			}
		}
		if unread(err) {
			return nil, err
		}
		damage = cmp.Or(damage, err)
		if i == len(frames)-1 { // what comes before was not listed
			if c, err = listFrom(ctx, c.store, 0); err != nil {
				return nil, err
			}
		}
	}
	st, err := c.loadFirst(ctx)
	if err != nil {
		return nil, cmp.Or(damage, err)
	}
	return st, nil
}

// cutBelow says whether the log was truncated at or below the first step that it has from the key
// frame on, and what followed has no key frame of its own: what came before it is needed then. That
// is not so where all was left, from step 0 on, or for a branch that comes before the key frame.
func (st *state) cutBelow() bool {
	h, cut := checkpoint.NewHistory(), false
	for _, g := range st.groups {
		for _, op := range g.ops {
			first, next := h.Steps()
			h.Follow(op)
			switch op := op.(type) {
			case checkpoint.Append:
				if cut && op.Frame == nil {
					return true
				}
				cut = false
			case checkpoint.Truncate:
				cut = op.From > 0 && (cut || first < next && op.From <= first)
			case checkpoint.Fork:
				cut = false
			}
		}
	}
	return cut
}

// frame is the first key frame of the log; nil if there is none.
func (st *state) frame() []byte {
	for _, g := range st.groups {
		if frame := frameIn(g.ops); frame != nil {
			return frame
		}
	}
	return nil
}

// frameIn is the first key frame of the log among operations.
func frameIn(ops []checkpoint.Op) []byte {
	for _, op := range ops {
		if a, ok := op.(checkpoint.Append); ok && a.Frame != nil {
			return a.Frame
		}
	}
	return nil
}

// trimmed says whether the log let go of steps.
func (st *state) trimmed() bool {
	return slices.ContainsFunc(st.groups, func(g group) bool { return has[checkpoint.Trim](g.ops) })
}

// loadFirst reads a mirror from its first segment on, a fence, which says whose it is.
func (c *content) loadFirst(ctx context.Context) (*state, error) {
	data, err := c.store.Get(ctx, segmentName(0), object.Whole)
	if unread(err) {
		return nil, err
	}
	var s *segment
	if err == nil {
		s, err = decode(data, segmentMagic)
	}
	if err != nil {
		return nil, c.broken(0, err)
	}
	st := &state{job: s.job, place: checkpoint.Place{Chain: root(s.job)}}
	return st, st.follow(ctx, c)
}

// follow takes in the segments after the state's place.
func (st *state) follow(ctx context.Context, c *content) error {
	return c.each(ctx, st.place.Slot, c.end(), st.place.Chain, func(s *segment, data []byte) error {
		if s.job != st.job || s.epoch < st.epoch {
			return c.broken(s.slot, fmt.Errorf("%w: it is of epoch %d after %d, or another job's", errDamaged, s.epoch, st.epoch))
		}
		st.epoch = s.epoch
		st.place = checkpoint.Place{Slot: s.slot + 1, Chain: next(data)}
		st.groups = append(st.groups, group{s.ops, st.place})
		return nil
	})
}

// after returns the groups that follow a place; ok is false if the state does not come by
// it.
func (st *state) after(p checkpoint.Place) (groups []group, ok bool) {
	for i, g := range st.groups {
		if g.place == p {
			return st.groups[i+1:], true
		}
	}
	return st.groups, p == checkpoint.Place{Chain: root(st.job)} && st.first == 0
}
