package mirror

import (
	"errors"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// openLocal opens the local log and brings it to where the mirror stands; st is nil if
// there is no mirror yet.
func openLocal(opts Options, st *state) (checkpoint.Log, error) {
	log, err := checkpoint.Open(opts.Dir, opts.Log)
	if err != nil && (st == nil || !errors.Is(err, checkpoint.ErrDamaged)) {
		return nil, err
	}
	if st == nil {
		return log, nil
	}
	why := error(nil)
	if err == nil {
		var groups []group
		if groups, why = st.missing(opts, log); why == nil {
			if why = st.bring(log, groups); why == nil {
				return log, nil
			}
			if !errors.Is(why, checkpoint.ErrDiverged) && !errors.Is(why, checkpoint.ErrOrder) {
				return nil, errors.Join(why, log.Close())
			}
		}
		if err := log.Close(); err != nil || fault.ClassOf(why) == fault.User {
			return nil, errors.Join(why, err)
		}
	} else {
		why = err
	}
	opts.Log.Logger.Warn("the local log is put aside and made again from its mirror", "folder", opts.Dir, "mirror", opts.Store.String(), "why", why)
	if err := checkpoint.SetAside(opts.Dir, opts.Log); err != nil {
		return nil, err
	}
	if log, err = checkpoint.Open(opts.Dir, opts.Log); err != nil {
		return nil, err
	}
	if err := st.bring(log, st.groups); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return log, nil
}

// bring does what a local log lacks: all of it in an empty one.
func (st *state) bring(log checkpoint.Log, groups []group) error {
	if st.fill != nil && len(groups) == len(st.groups) {
		return st.fill(log)
	}
	return apply(log, groups)
}

// missing returns what a local log lacks of the mirror. An error of class fault.User means
// that the mirror cannot be trusted to have all, any other that the local log is to be made
// again.
func (st *state) missing(opts Options, log checkpoint.Log) ([]group, error) {
	place, ok := log.Place()
	if !ok {
		empty, err := isEmpty(log)
		if err == nil && !empty {
			err = fault.Userf("the log in %s was written without the mirror %s, which has %d segments: name the mirror that it was written with, give the job an empty folder, which is filled from the mirror, or an empty mirror, which is filled from the folder",
				opts.Dir, opts.Store, st.place.Slot)
		}
		return st.groups, err
	}
	if groups, ok := st.after(place); ok {
		return groups, nil
	}
	if place.Slot > st.place.Slot+1 {
		return nil, fault.Userf("the mirror %s %w: it ends before slot %d, and the log in %s has what was acknowledged up to slot %d: bring the objects back, or give the job an empty mirror, which is filled from the folder",
			opts.Store, checkpoint.ErrDamaged, st.place.Slot, opts.Dir, place.Slot-1)
	}
	return nil, errBehind
}

var errBehind = errors.New("it is behind its mirror, or has what never reached it")

// isEmpty says whether nothing was ever written to a log.
func isEmpty(log checkpoint.Log) (bool, error) {
	changes, err := log.Changes()
	generations, err2 := log.Generations()
	_, some := log.Last()
	return !some && len(changes)+len(generations) == 0 && log.Epoch() == 0, errors.Join(err, err2)
}

// applyAtOnce bounds how many groups one sync takes: some megabytes.
const applyAtOnce = 256

// apply does groups in a local log. One that begins with a key frame may lack the steps before
// it whose digests come later.
func apply(log checkpoint.Log, groups []group) error {
	h := checkpoint.History(log.Branches())
	lacks := func(op checkpoint.Op) bool {
		d, ok := op.(checkpoint.SetDigest)
		h.Follow(op)
		first, next := h.Steps()
		return ok && (d.Step < first || d.Step >= next)
	}
	for len(groups) > 0 {
		some := groups[:min(len(groups), applyAtOnce)]
		var ops []checkpoint.Op
		for _, g := range some {
			ops = append(ops, slices.DeleteFunc(slices.Clone(g.ops), lacks)...)
		}
		if err := log.Write(append(ops, some[len(some)-1].place)...); err != nil {
			return err
		}
		groups = groups[len(some):]
	}
	return nil
}

// frame is a key frame of the mirror: what makes an empty log what the local one is now,
// from its last key frame on. The caller is the only writer.
func (l *Log) frame() (*segment, error) {
	f := &segment{magic: frameMagic, slot: l.place.Slot, epoch: max(l.epoch, l.Epoch()), chain: l.place.Chain, job: l.opts.Log.Identity}
	if f.epoch > 0 {
		f.ops = append(f.ops, checkpoint.Fence{Epoch: f.epoch})
	}
	b := *checkpoint.History(l.Branches()).Current()
	begins := b.From == b.Next && b.Parent != b.Number // what it has before is its parent's
	if begins && b.Parent > 0 {
		f.ops = append(f.ops, checkpoint.InBranch{Number: b.Parent})
	} else if !begins && b.Number > 0 {
		f.ops = append(f.ops, checkpoint.InBranch{Number: b.Number})
	}
	if before := l.Trimmed(); before > 0 {
		f.ops = append(f.ops, checkpoint.Trim{Before: before})
	}
	generations, err := l.Log.Generations()
	if err != nil {
		return nil, err
	}
	for _, g := range generations {
		f.ops = append(f.ops, checkpoint.SetGeneration{Generation: g})
	}
	changes, err := l.Log.Changes()
	if err != nil {
		return nil, err
	}
	for _, c := range changes {
		f.ops = append(f.ops, checkpoint.AddChange{Change: c})
	}
	steps, err := stepsOf(l.Log)
	if f.ops = append(f.ops, steps...); begins {
		f.ops = append(f.ops, checkpoint.Fork{Number: b.Number, Parent: b.Parent, From: b.From})
	}
	return f, err
}

// stepsOf are the steps of a log from its last key frame on, with their digests.
func stepsOf(log checkpoint.Reader) (ops []checkpoint.Op, err error) {
	from, frame, framed, err := log.Frame(math.MaxInt64)
	if err != nil {
		return nil, err
	}
	if !framed {
		from, _ = log.First()
	}
	err = log.Records(from, math.MaxInt64, func(step int64, record []byte) error {
		op := checkpoint.Append{Step: step, Record: append([]byte{}, record...)}
		if framed && step == from {
			op.Frame = frame
		}
		ops = append(ops, op)
		digest, ok, err := log.ReadDigest(step)
		if ok {
			ops = append(ops, checkpoint.SetDigest{Step: step, Digest: digest})
		}
		return err
	})
	return ops, err
}
