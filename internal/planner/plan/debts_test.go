package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
)

// mostOwed is what behind has to return, by looking at all sources.
func (d *debts) mostOwed() int32 {
	best := int32(-1)
	for i := range int32(len(d.base)) {
		counts := !d.out[i] && (d.shares[i] > 0 || d.owed(i) > 0)
		if counts && (best < 0 || d.owed(i) > d.owed(best)) {
			best = i
		}
	}
	return best
}

// TestBehind draws from mixes of all sorts and looks at every source each time:
// shares that are equal, far apart or zero, samples of one unit or of more than keys
// have room for, draws that are taken back, mixes that change, sources that end.
func TestBehind(t *testing.T) {
	for seed := range uint64(75) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n, longest := 1+rng.IntN(400), []int{1, 8, 300, 1 << 20, 1 << 24}[seed%5]
		t.Run(fmt.Sprintf("%d sources, samples of up to %d", n, longest), func(t *testing.T) {
			d := debts{base: make([]int64, n), out: make([]bool, n)}
			for i := range d.base {
				if rng.IntN(3) == 0 {
					d.base[i] = rng.Int64N(1<<44) - 1<<43
				}
			}
			for range 6 {
				d.mixBy(shares(rng, n))
				drive(t, &d, rng, longest)
				d.out[rng.IntN(n)] = true
			}
		})
	}
}

// shares are equal, or differ by orders of magnitude, and some are zero.
func shares(rng *rand.Rand, n int) []uint64 {
	weights, spread := make([]float64, n), rng.IntN(8)
	for i := range weights {
		if weights[i] = float64(uint64(1) << rng.IntN(1+2*spread)); rng.IntN(5) == 0 {
			weights[i] = 0
		}
	}
	weights[rng.IntN(n)] = 1
	return mix.FromWeights(weights)
}

func drive(t *testing.T, d *debts, rng *rand.Rand, longest int) {
	type draw struct {
		source int32
		units  int64
	}
	var draws []draw
	for step := range 1500 {
		if step%500 == 499 {
			for range rng.IntN(40) {
				last := draws[len(draws)-1]
				d.undo(last.source, last.units)
				draws = draws[:len(draws)-1]
			}
		}
		want := d.mostOwed()
		if got := d.behind(); got != want {
			t.Fatalf("draw %d is from source %d, which is owed %d; source %d is owed most, %d", step, got, d.owed(got), want, d.owed(want))
		}
		if want < 0 {
			return
		}
		units := 1 + rng.Int64N(int64(longest))
		d.draw(want, units)
		draws = append(draws, draw{want, units})
	}
}

// BenchmarkBehind draws from 306 sources of few different shares and of many: many short
// samples, few long ones.
func BenchmarkBehind(b *testing.B) {
	const n = 306
	rng := rand.New(rand.NewPCG(1, 1))
	few, many := make([]float64, n), make([]float64, n)
	for i := range n {
		few[i], many[i] = float64(1+i%7), rng.ExpFloat64()
	}
	units := make([]int64, 1<<16)
	for i := range units {
		units[i] = 1 + int64(110*rng.ExpFloat64())
	}
	for name, weights := range map[string][]float64{"few shares": few, "many shares": many} {
		b.Run(name, func(b *testing.B) {
			d := debts{base: make([]int64, n), out: make([]bool, n)}
			d.mixBy(mix.FromWeights(weights))
			for i := 0; b.Loop(); i++ {
				d.draw(d.behind(), units[i%len(units)])
			}
		})
	}
}
