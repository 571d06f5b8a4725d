package mix

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

const whole = uint64(1) << Bits

func sum(shares []uint64) (n uint64) {
	for _, s := range shares {
		n += s
	}
	return n
}

// anyStages makes a schedule with weights of very different sizes.
func anyStages(rng *rand.Rand) []Stage {
	sources := 1 + rng.IntN(60)
	stages := make([]Stage, 1+rng.IntN(4))
	from := int64(0)
	for k := range stages {
		st := Stage{From: from, Ramp: []string{"", "none", "linear", "cosine"}[rng.IntN(4)], Over: rng.Int64N(40)}
		for range sources {
			st.Weights = append(st.Weights, float64(rng.IntN(3))*math.Pow(10, 20*rng.Float64()-14))
		}
		st.Weights[rng.IntN(sources)] = 1 + rng.Float64()
		stages[k] = st
		from += 1 + rng.Int64N(30)
	}
	return stages
}

// TestShares: whatever the weights, shares sum to the whole exactly, are within
// a part of the weight's share outside ramps, and zero only for no weight.
func TestShares(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		stages := anyStages(rng)
		s := NewSchedule(stages)
		for step := int64(0); step < 130; step++ {
			if shares := s.Shares(step); sum(shares) != whole || len(shares) != len(stages[0].Weights) {
				t.Fatalf("step %d of %+v: the shares sum to %d", step, stages, sum(shares))
			}
		}
		last := stages[len(stages)-1]
		total := 0.0
		for _, w := range last.Weights {
			total += w
		}
		for i, share := range s.Shares(1 << 40) {
			want := last.Weights[i] / total * float64(whole)
			if math.Abs(float64(share)-want) > 1.001 {
				t.Fatalf("weight %g of %g has %d parts, not %.2f", last.Weights[i], total, share, want)
			}
		}
	}
}

// TestShareEdges are the numbers at the ends of the range.
func TestShareEdges(t *testing.T) {
	for _, test := range []struct {
		weights []float64
		want    []uint64
	}{
		{[]float64{1}, []uint64{whole}},
		{[]float64{math.MaxFloat64, math.MaxFloat64}, []uint64{whole / 2, whole / 2}},
		{[]float64{math.SmallestNonzeroFloat64}, []uint64{whole}},
		{[]float64{1, 1, 1}, []uint64{whole/3 + 1, whole / 3, whole / 3}},
		{[]float64{1, 0, 3}, []uint64{whole / 4, 0, whole / 4 * 3}},
		{[]float64{1, 1e-300}, []uint64{whole, 0}},
	} {
		s := NewSchedule([]Stage{{Weights: test.weights}})
		if got := s.Shares(0); !slices.Equal(got, test.want) {
			t.Errorf("weights %g: %d, want %d", test.weights, got, test.want)
		}
	}
}

// TestRamps: a ramp goes one way, step by step, from the stage before to its own,
// and touches neither.
func TestRamps(t *testing.T) {
	for _, ramp := range []string{"linear", "cosine"} {
		for _, over := range []int64{1, 2, 3, 10, 1000} {
			s := NewSchedule([]Stage{
				{Weights: []float64{0.9, 0.1, 0}},
				{From: 5, Ramp: ramp, Over: over, Weights: []float64{0.2, 0.1, 0.7}},
			})
			before, after := s.Shares(4), s.Shares(5+over)
			last := before
			for step := int64(5); step < 5+over; step++ {
				now := s.Shares(step)
				if now[0] >= last[0] || now[2] <= last[2] || now[0] <= after[0] || now[2] >= after[2] {
					t.Fatalf("%s over %d: step %d has %d after %d", ramp, over, step, now, last)
				}
				// The smallest share gives and takes nothing but the rounding of others.
				if d := int64(now[1]) - int64(before[1]); d < -2 || d > 2 {
					t.Fatalf("%s over %d: step %d moves a source that stays as it is by %d parts", ramp, over, step, d)
				}
				last = now
			}
			if step := s.Shares(5 + over + 9); !slices.Equal(step, after) {
				t.Errorf("%s over %d: the stage moves after its ramp", ramp, over)
			}
		}
	}
	half := NewSchedule([]Stage{{Weights: []float64{1, 0}}, {From: 1, Ramp: "linear", Over: 3, Weights: []float64{0, 1}}})
	for step, want := range []uint64{0, whole / 4, whole / 2, whole / 4 * 3, whole} {
		if got := half.Shares(int64(step))[1]; got != want {
			t.Errorf("linear, step %d: %d, want %d", step, got, want)
		}
	}
}

// TestRampOverRamp: a stage that begins within the ramp of the one before fades
// from where that one was.
func TestRampOverRamp(t *testing.T) {
	s := NewSchedule([]Stage{
		{Weights: []float64{1, 0}},
		{From: 10, Ramp: "linear", Over: 99, Weights: []float64{0, 1}},
		{From: 60, Ramp: "linear", Over: 9, Weights: []float64{1, 0}},
	})
	last := s.Shares(59)[0]
	for step := int64(60); step < 75; step++ {
		now := s.Shares(step)[0]
		if now < last || now-last > whole/15 {
			t.Fatalf("step %d jumps from %d to %d", step, last, now)
		}
		last = now
	}
	if last != whole {
		t.Errorf("it ends at %d", last)
	}
}

// TestCosine compares the series with math.Cos, and rises.
func TestCosine(t *testing.T) {
	last := uint64(0)
	for i := range int64(100_000) {
		got := fraction("cosine", i, 100_000)
		want := (1 - math.Cos(math.Pi*float64(i)/100_000)) / 2
		if d := math.Abs(float64(got)/float64(whole) - want); d > 1e-9 {
			t.Fatalf("at %d of 100000: %v off", i, d)
		}
		if got < last {
			t.Fatalf("at %d of 100000 it falls from %d to %d", i, last, got)
		}
		last = got
	}
}

// TestCosineGolden: the same bits on every machine. The digest was computed by
// Python, which rounds every product on its own: SHA-256 over the fractions i of
// 10007 as uint64, little-endian.
func TestCosineGolden(t *testing.T) {
	h := sha256.New()
	for i := range int64(10_007) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], fraction("cosine", i, 10_007))
		h.Write(b[:])
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != "5c1a01f88c39f238e1f1446e8421e561f5d9818f64527945542be49824be6bb7" {
		t.Errorf("digest %s", got)
	}
}

func TestWithout(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 500 {
		shares := normalize(anyStages(rng)[0].Weights)
		gone := make([]bool, len(shares))
		left := uint64(0)
		for i := range gone {
			if gone[i] = rng.IntN(2) == 0; !gone[i] {
				left += shares[i]
			}
		}
		was := slices.Clone(shares)
		rest := Without(shares, gone)
		if !slices.Equal(was, shares) {
			t.Fatal("the shares were changed")
		}
		if left == 0 {
			if rest != nil {
				t.Fatalf("nothing is left, got %d", rest)
			}
			continue
		}
		if sum(rest) != whole {
			t.Fatalf("what is left of %d without %v sums to %d", shares, gone, sum(rest))
		}
		for i := range rest {
			want := float64(shares[i]) / float64(left) * float64(whole)
			if gone[i] {
				want = 0
			}
			if math.Abs(float64(rest[i])-want) > float64(len(rest)) {
				t.Fatalf("%d parts of %d left become %d, not %.0f", shares[i], left, rest[i], want)
			}
		}
	}
}

// TestFromShares: shares of any sum are scaled, also where the sum is beyond 64 bits.
func TestFromShares(t *testing.T) {
	for _, test := range []struct{ shares, want []uint64 }{
		{[]uint64{1 << 63, 1 << 63}, []uint64{whole / 2, whole / 2}},
		{[]uint64{math.MaxUint64, math.MaxUint64}, []uint64{whole / 2, whole / 2}},
		{[]uint64{1 << 63, 1 << 62, 1 << 62, 0}, []uint64{whole / 2, whole / 4, whole / 4, 0}},
		{[]uint64{math.MaxUint64, 1}, []uint64{whole, 0}},
		{[]uint64{3, 1}, []uint64{whole / 4 * 3, whole / 4}},
		{[]uint64{0, 0}, nil},
	} {
		if got := FromShares(test.shares); !slices.Equal(got, test.want) {
			t.Errorf("shares %d: %d, want %d", test.shares, got, test.want)
		}
	}
}

func TestActive(t *testing.T) {
	s := NewSchedule([]Stage{{Weights: []float64{1, 0}}, {From: 10, Weights: []float64{0, 1}}})
	for _, test := range []struct {
		source   int
		from, to int64
		want     bool
	}{
		{0, 0, 0, true}, {0, 9, 9, true}, {0, 10, 99, false}, {1, 0, 9, false}, {1, 0, 10, true}, {1, 50, 50, true},
	} {
		if got := s.Active(test.source, test.from, test.to); got != test.want {
			t.Errorf("source %d from %d to %d: %v", test.source, test.from, test.to, got)
		}
	}
}
