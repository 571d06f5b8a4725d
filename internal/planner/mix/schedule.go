// Package mix says how much of each source a step gets: the shares of all sources
// at every step, from stages with linear and cosine ramps.
//
// It owns the arithmetic of weights, all of it in integers or exact rationals,
// so that a share is the same number on every machine. It never draws a sample;
// planner/plan does that.
package mix

import (
	"math/big"
	"math/bits"
	"sort"
)

// Bits is the resolution of weights: a share is a whole number of 2^-32
// parts, so that a schedule adds up exactly and equals itself on every machine.
const Bits = 32

// Stage gives the sources' weights from a step on.
type Stage struct {
	From    int64     // first step
	Ramp    string    // "", "none", "linear" or "cosine": how the stage before fades into this one
	Over    int64     // steps the ramp takes
	Weights []float64 // by source; need not sum to 1
}

// Schedule is a mix over steps. It is read-only and safe for concurrent use.
type Schedule struct {
	stages []Stage
	shares [][]uint64 // of each stage, in 2^-32 parts
}

// NewSchedule prepares stages, which are sorted by From and start at 0. Weights
// are finite, not negative, and not all zero in any stage.
func NewSchedule(stages []Stage) Schedule {
	s := Schedule{stages: stages}
	for _, st := range stages {
		s.shares = append(s.shares, normalize(st.Weights))
	}
	return s
}

// Shares returns the share of each source at a step, in parts of 2^-32 that sum
// to exactly 2^32. The caller must not change it.
func (s *Schedule) Shares(step int64) []uint64 { return s.SharesWithin(step, 0, 1) }

// SharesWithin is Shares in part `part`, from 0, of the `parts` that a step is
// cut into. Ramps go on from part to part; the last part of a ramp's step has
// what Shares says of the step.
func (s *Schedule) SharesWithin(step int64, part, parts int) []uint64 {
	i := sort.Search(len(s.stages), func(i int) bool { return s.stages[i].From > step }) - 1
	st := s.stages[i]
	done := step - st.From
	if i == 0 || done >= st.Over || (st.Ramp != "linear" && st.Ramp != "cosine") {
		return s.shares[i]
	}
	// At the end of the ramp's step j of n the new stage has weight (j+1)/(n+1).
	f := fraction(st.Ramp, done*int64(parts)+int64(part)+1, (st.Over+1)*int64(parts))
	if part == parts-1 {
		f = fraction(st.Ramp, done+1, st.Over+1)
	}
	before := s.Shares(st.From - 1)
	mixed := make([]uint64, len(before))
	for k := range mixed {
		mixed[k] = blend(before[k], s.shares[i][k], f)
	}
	return fit(mixed)
}

// Active says whether a source has any share at a step in [from, to].
func (s *Schedule) Active(source int, from, to int64) bool {
	if s.Shares(from)[source] > 0 {
		return true
	}
	for _, st := range s.stages {
		if st.From > from && st.From <= to && st.Weights[source] > 0 {
			return true
		}
	}
	return false
}

// Ever says whether a source has a weight in any stage.
func (s *Schedule) Ever(source int) bool {
	for _, st := range s.stages {
		if st.Weights[source] > 0 {
			return true
		}
	}
	return false
}

// fraction returns num/den of the way along a ramp in 2^-32 parts. Cosine is
// (1 - cos(pi x)) / 2 by its Taylor series with every product rounded to
// float64 on its own, so that no compiler fuses two operations and no machine
// differs in a bit.
func fraction(ramp string, num, den int64) uint64 {
	if ramp == "linear" {
		f := new(big.Int).Lsh(big.NewInt(num), Bits)
		return f.Div(f, big.NewInt(den)).Uint64()
	}
	const pi = 3.14159265358979323846
	x := float64(num) / float64(den)
	// cos(pi x) = -sin(pi (x - 1/2)); the argument stays within +-pi/2.
	a := float64(pi * float64(x-0.5))
	a2 := float64(a * a)
	sum, term := a, a
	for k := 1; k < 12; k++ {
		term = float64(float64(-term*a2) / float64(2*k*(2*k+1)))
		sum = float64(sum + term)
	}
	half := float64(float64(1+sum) / 2)
	return uint64(float64(half * (1 << Bits)))
}

// blend is a + (b-a)*f/2^32, rounded down. All three are at most 2^32.
func blend(a, b, f uint64) uint64 {
	const one = uint64(1) << Bits
	switch {
	case f >= one:
		return b
	case b >= a:
		return a + (b-a)*f>>Bits
	default:
		return a - ((a-b)*f+one-1)>>Bits
	}
}

// normalize turns weights into shares of 2^32 parts in all.
func normalize(weights []float64) []uint64 {
	sum := new(big.Rat)
	for _, w := range weights {
		sum.Add(sum, new(big.Rat).SetFloat64(w))
	}
	shares := make([]uint64, len(weights))
	scale := new(big.Rat).SetInt64(1 << Bits)
	for i, w := range weights {
		r := new(big.Rat).SetFloat64(w)
		r.Quo(r, sum).Mul(r, scale)
		shares[i] = new(big.Int).Quo(r.Num(), r.Denom()).Uint64()
	}
	return fit(shares)
}

// FromWeights returns the shares of weights, which are finite, not negative and
// not all zero.
func FromWeights(weights []float64) []uint64 { return normalize(weights) }

// FromShares returns shares of any positive sum scaled to 2^32 parts; nil if all
// are zero.
func FromShares(shares []uint64) []uint64 { return Without(shares, make([]bool, len(shares))) }

// Joined returns shares with one more source, which gets share of the 2^32 parts;
// the others keep their proportions in what is left.
func Joined(shares []uint64, share uint64) []uint64 {
	joined := make([]uint64, len(shares)+1)
	for i, s := range shares {
		hi, lo := bits.Mul64(s, 1<<Bits-share)
		joined[i] = hi<<(64-Bits) | lo>>Bits
	}
	joined[len(shares)] = share
	return fit(joined)
}

// Pick returns a source drawn by chance, each with the probability of its share:
// a function of the seed, the step and the number of the draw in it. It returns
// -1 if all shares are zero.
func Pick(shares []uint64, seed uint64, step int64, draw int) int32 {
	at := scramble(scramble(scramble(seed)^uint64(step))^uint64(draw)) >> (64 - Bits)
	last := int32(-1)
	for i, s := range shares {
		if s > 0 {
			last = int32(i)
		}
		if at < s {
			return int32(i)
		}
		at -= s
	}
	return last
}

// scramble spreads a number over all 64 bits: the finisher of SplitMix64
// (Steele, Lea and Flood, OOPSLA 2014) after one step of its sequence.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fit hands what rounding left over to the largest shares, one part each, so
// that the sum is exactly 2^32. The first of equals comes first.
func fit(shares []uint64) []uint64 {
	left := uint64(1) << Bits
	order := make([]int, len(shares))
	for i, s := range shares {
		left -= s
		order[i] = i
	}
	sort.SliceStable(order, func(i, j int) bool { return shares[order[i]] > shares[order[j]] })
	for i := 0; left > 0; i = (i + 1) % len(order) {
		shares[order[i]]++
		left--
	}
	return shares
}

// Without returns shares with the sources taken out that are exhausted, scaled
// up to 2^32 parts again. It returns nil if nothing is left. The sum may be any: it
// is exact.
func Without(shares []uint64, exhausted []bool) []uint64 {
	var sum, over uint64
	for i, s := range shares {
		if !exhausted[i] {
			var carry uint64
			sum, carry = bits.Add64(sum, s, 0)
			over += carry
		}
	}
	if sum == 0 && over == 0 {
		return nil
	}
	rest := make([]uint64, len(shares))
	total := new(big.Int).SetUint64(over)
	total.Lsh(total, 64).Add(total, new(big.Int).SetUint64(sum))
	for i, s := range shares {
		if exhausted[i] || s == 0 {
			continue
		}
		b := new(big.Int).Lsh(new(big.Int).SetUint64(s), Bits)
		rest[i] = b.Div(b, total).Uint64()
	}
	return fit(rest)
}
