package reference

import (
	"slices"

	"github.com/millrace-data/millrace/internal/planner/mix"
)

const (
	whole    = mix.Bits
	kept     = 12 // fraction bits of a deficit between steps
	rounded  = whole - kept
	substeps = 16 // in a step, with grain: substep
)

// shares returns those of all sources in part of step n: a strategy's, if it gave
// some, else those set by a change, else the schedule's.
func (r *reader) shares(n int64, part int, byHand []uint64) []uint64 {
	shares := r.set
	switch {
	case byHand != nil:
		return byHand
	case shares != nil:
	case r.job.Mix.Grain == "substep":
		shares = r.schedule.SharesWithin(n, part, substeps)
	case r.job.Mix.Grain == "epoch":
		shares = r.schedule.Shares(r.epochs())
	default:
		shares = r.schedule.Shares(n)
	}
	for _, share := range r.added[len(shares)-len(r.job.Sources):] {
		shares = mix.Joined(shares, share)
	}
	return shares
}

// without returns the shares without the sources that are gone; 0 if none is left.
func without(shares []uint64, gone []bool) []uint64 {
	if left := mix.Without(shares, gone); left != nil {
		return left
	}
	return make([]uint64, len(shares))
}

// part returns the part of a step that a draw belongs to, by the fraction of the step
// that is drawn.
func (r *reader) part(done, want int) int {
	if r.job.Mix.Grain != "substep" {
		return 0
	}
	return done * substeps / want
}

// epochs returns how often all sources of the spec with a weight at any step were
// read completely.
func (r *reader) epochs() int64 {
	var epochs []int64
	for i := range r.job.Sources {
		if s := r.sources[i]; r.schedule.Ever(i) {
			epochs = append(epochs, s.position()/s.Order.Blocks())
		}
	}
	return slices.Min(epochs)
}

// next returns the source to draw from: the one with the largest debt, the first of
// equals, or a random one; -1 for none.
func (r *reader) next(gone []bool, step int64) int {
	if r.job.Mix.Draw == "random" {
		return int(mix.Pick(r.live, r.job.Seed, step, len(r.draws)))
	}
	best := -1
	for i, s := range r.sources {
		if gone[i] || r.live[i] == 0 && s.owed <= 0 {
			continue
		}
		if best < 0 || s.owed > r.sources[best].owed {
			best = i
		}
	}
	return best
}

// account adds to every source's debt its share of a draw, and subtracts the draw
// from the drawn one's.
func (r *reader) account(d drawn, sign int64) {
	units := int64(len(d.tokens))
	if r.job.Mix.Unit == "samples" {
		units = 1
	}
	for i, s := range r.sources {
		s.owed += sign * units * int64(d.live[i])
	}
	r.sources[d.source].owed -= sign * units << whole
}
