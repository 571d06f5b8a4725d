package sim

import (
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// random returns the numbers of one decision maker of a run. Each has its own, so that what
// one draws does not depend on when others do.
func random(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name)) // it never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// between draws a time from low to high, low ones more often: the square of a uniform draw.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	u := r.Float64()
	return low + time.Duration(u*u*float64(high-low))
}
