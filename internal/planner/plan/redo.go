package plan

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/mix"
)

// Part is a run of draws of a step that were made by the same shares.
type Part struct {
	Substep int32   // of the schedule, whose weights were used
	Units   int64   // tokens or samples drawn, as the mix counts
	Ended   []int32 // sources that were found to have ended since the part before, in that order
}

// Begin makes the changes that are due at the next step, and returns them. It is part
// of the position after the step, not of the one before. The cursors must be s's own
// (Clone). It is an error if a change makes a mesh that cannot be.
func (s *State) Begin(cfg *Config) (made []Change, err error) {
	n := 0
	for ; n < len(s.Pending) && s.Pending[n].Step <= s.Step; n++ {
		switch ch := s.Pending[n]; ch.Kind {
		case AddSource:
			s.Cursors = append(s.Cursors, Cursor{})
		case Drop:
			s.Cursors[ch.Source].Deficit = 0
		}
	}
	made, s.Pending = slices.Clone(s.Pending[:n]), s.Pending[n:]
	for i, ch := range made {
		if ch.Kind == Remesh {
			if _, err := cfg.mesh(cfg.after(s.Settings, made[:i])).Change(ch.Mesh); err != nil {
				return nil, fault.As(fault.User, fmt.Errorf("the change %s cannot be made: %w", ch.Text, err))
			}
		}
	}
	s.Settings = cfg.after(s.Settings, made)
	return made, nil
}

// Deficits are those of the position after a step that drew units of each source, in
// these parts. s is the position before the step, with the changes that are due
// (Begin). It is the arithmetic of drawing without the samples. A step that passed
// data over, or whose shares a strategy gave, cannot be computed by it.
func (cfg *Config) Deficits(s State, parts []Part, units []int64) []int64 {
	deficits := make([]int64, len(s.Cursors))
	if cfg.Random {
		return deficits
	}
	d := debts{base: make([]int64, len(s.Cursors)), out: s.Settings.out(len(s.Cursors))}
	for i, cur := range s.Cursors {
		d.base[i] = cur.Deficit << (owedBits - deficitBits)
	}
	for _, part := range parts {
		for _, i := range part.Ended {
			d.out[i] = true
		}
		d.mixBy(live(cfg.shares(s.Settings, s, int(part.Substep), cfg.substeps()), d.out))
		d.units = uint64(part.Units)
	}
	for i := range deficits {
		if d.base[i] -= units[i] << owedBits; d.shares == nil {
			deficits[i] = s.Cursors[i].Deficit
			continue
		}
		deficits[i] = rounded(d.owed(int32(i)))
	}
	return deficits
}

// rounded is a debt as a state keeps it.
func rounded(owed int64) int64 {
	const round = owedBits - deficitBits
	return (owed + 1<<(round-1)) >> round
}

// live are shares with those of the sources that are out given to the others; zeros
// if there are none.
func live(shares []uint64, out []bool) []uint64 {
	if !slices.Contains(out, true) {
		return shares
	}
	if left := mix.Without(shares, out); left != nil {
		return left
	}
	return make([]uint64, len(shares))
}

// substeps is the number of parts of a step that the schedule has weights for.
func (cfg *Config) substeps() int {
	if cfg.Grain == grainSubstep {
		return substeps
	}
	return 1
}

// shares are those of all sources in part of a step, with what was set by hand
// and what was added in place of or beside the schedule's.
func (cfg *Config) shares(s Settings, at State, part, parts int) []uint64 {
	shares := s.Shares
	if shares == nil {
		step := at.Step
		if cfg.Grain == grainEpoch {
			step, part, parts = cfg.epoch(at), 0, 1
		}
		shares = cfg.Schedule.SharesWithin(step, part, parts)
	}
	for _, a := range s.Added[len(shares)-len(cfg.Sources):] {
		shares = mix.Joined(shares, a.Share)
	}
	return shares
}

// epoch is how often all sources that have a weight at all were read through.
func (cfg *Config) epoch(at State) int64 {
	epoch := int64(-1)
	for i := range cfg.Sources {
		if n := at.Cursors[i].Seq / cfg.Sources[i].Blocks; cfg.Schedule.Ever(i) && (epoch < 0 || n < epoch) {
			epoch = n
		}
	}
	return max(epoch, 0)
}

// parts are those of the draws that are in the step.
func (d *draft) parts() (parts []Part) {
	if d.c.cfg.Random || d.byHand != nil {
		return nil
	}
	var ended []int32
	for k, m := range d.mixes {
		if m.ended >= 0 {
			ended = append(ended, m.ended)
		}
		until := d.drawn
		if k+1 < len(d.mixes) {
			until = d.mixes[k+1].drawn
		}
		if until > m.drawn {
			parts = append(parts, Part{Substep: int32(m.part), Units: until - m.drawn, Ended: ended})
			ended = nil
		}
	}
	return parts
}
