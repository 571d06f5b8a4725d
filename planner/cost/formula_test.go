package cost

import (
	"math/rand/v2"
	"testing"
)

// TestSmallCounts: a count for which 64 bits are enough costs what it costs in 192, up to the last of them.
func TestSmallCounts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	number := func() uint64 { return rng.Uint64() >> (1 + rng.UintN(63)) }
	for range 100_000 {
		f := &formula{a: number(), b: number(), add: number(), shift: rng.UintN(2) * flopShift}
		f.below = f.smallCounts()
		wide := *f
		wide.below = 0
		for _, x := range []uint64{0, f.below / 2, f.below - min(f.below, 1), f.below} {
			s := Sample{Tokens: int64(x)}
			got, err := f.Cost(s)
			want, fails := wide.Cost(s)
			if got != want || (err == nil) != (fails == nil) {
				t.Fatalf("%+v: %d tokens cost %d (%v), want %d (%v)", f, x, got, err, want, fails)
			}
		}
	}
}
