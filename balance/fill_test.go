package balance_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// lowerBound returns a number of bins that no packing can go below: the best of
// Martello and Toth's L2 bounds over every threshold k. For each k, items above
// capacity-k are alone, those above capacity/2 need a bin each, and those from k
// to capacity/2 fill what the latter leave. k = 0 gives the bound by volume.
func lowerBound(lengths []int32, capacity int32) int {
	count := make([]int64, capacity+1)
	tokens := make([]int64, capacity+2) // tokens[n]: in items of length n and more
	for _, n := range lengths {
		count[n]++
	}
	items := make([]int64, capacity+2)
	for n := capacity; n >= 0; n-- {
		tokens[n] = tokens[n+1] + int64(n)*count[n]
		items[n] = items[n+1] + count[n]
	}
	best := int64(0)
	half := capacity/2 + 1 // the shortest length above half
	for k := int32(0); k < half; k++ {
		alone := items[capacity-k+1]
		large := items[half] - alone
		free := large*int64(capacity) - (tokens[half] - tokens[capacity-k+1])
		small := tokens[k] - tokens[half]
		more := max(0, (small-free+int64(capacity)-1)/int64(capacity))
		best = max(best, alone+large+more)
	}
	return int(best)
}

func TestLowerBound(t *testing.T) {
	for _, test := range []struct {
		lengths  []int32
		capacity int32
		want     int
	}{
		{nil, 10, 0},
		{[]int32{10, 10}, 10, 2},
		{[]int32{6, 6, 6}, 10, 3},       // 18 tokens, but no two fit together
		{[]int32{6, 6, 6, 4}, 10, 3},    //
		{[]int32{6, 6, 5, 5, 5}, 10, 4}, // one 5 is left over
		{[]int32{1, 1, 1}, 10, 1},
	} {
		if got := lowerBound(test.lengths, test.capacity); got != test.want {
			t.Errorf("lowerBound(%v, %d) = %d, want %d", test.lengths, test.capacity, got, test.want)
		}
	}
}

type workload struct {
	name     string
	lengths  []int32
	capacity int32
	over     int // bins above the lower bound that the test allows
}

func lognormal(seed uint64, n int, capacity int32) []int32 {
	rng := rand.New(rand.NewPCG(seed, seed+1))
	lengths := make([]int32, n)
	for i := range lengths {
		x := 1000 * math.Exp(rng.NormFloat64())
		lengths[i] = int32(min(max(x, 16), float64(capacity)))
	}
	return lengths
}

// fill is the part of the used bins' tokens that items take.
func fill(w workload, used int) float64 {
	tokens := int64(0)
	for _, n := range w.lengths {
		tokens += int64(n)
	}
	return float64(tokens) / (float64(used) * float64(w.capacity))
}

// TestPackFill is the goal for quality where all lengths are known at once: at most
// 0.03 % of bins above the lower bound, so a fill of 99.97 % and more. A job's
// rows are those of TestLimitedFill.
func TestPackFill(t *testing.T) {
	var p balance.Packer
	for _, w := range lognormals() {
		bin, used, err := packAll(t, &p, w.lengths, 0, w.capacity, 0)
		if err != nil {
			t.Fatalf("%s: %v", w.name, err)
		}
		checkPacked(t, w.lengths, 0, w.capacity, 0, bin, used)
		bound := lowerBound(w.lengths, w.capacity)
		volume := int(math.Ceil(fill(w, 1)))
		note := ""
		if bound > volume {
			note = " (item-bound: the volume alone would need fewer)"
		}
		t.Logf("%-22s capacity %6d: %6d items in %6d bins, bound %6d, by volume %6d, fill %.3f %%%s",
			w.name, w.capacity, len(w.lengths), used, bound, volume, 100*fill(w, used), note)
		if over := used - bound; over > w.over {
			t.Errorf("%s at capacity %d: %d bins above the bound, want at most %d", w.name, w.capacity, over, w.over)
		}
	}
}

func lognormals() []workload {
	var ws []workload
	for _, capacity := range []int32{4096, 8192, 16384, 32768} {
		lengths := lognormal(7, 100_000, capacity)
		over := lowerBound(lengths, capacity) * 3 / 10_000
		ws = append(ws, workload{"lognormal", lengths, capacity, over})
	}
	return ws
}

// adversarial returns shapes that are hard on quality or on the structure:
// one item a bin, three to a bin with little to spare, a Zipf tail.
func adversarial(capacity int32) []workload {
	rng := rand.New(rand.NewPCG(9, 10))
	draw := func(name string, length func() int32) workload {
		lengths := make([]int32, 100_000)
		for i := range lengths {
			lengths[i] = length()
		}
		return workload{name: name, lengths: lengths, capacity: capacity}
	}
	return []workload{
		draw("above half", func() int32 { return capacity/2 + 1 + rng.Int32N(capacity/2) }),
		draw("thirds", func() int32 { return capacity/3 - 8 + rng.Int32N(17) }),
		draw("zipf", func() int32 { return max(1, int32(float64(capacity)*math.Pow(float64(1+rng.IntN(10000)), -0.8))) }),
		draw("uniform", func() int32 { return 1 + rng.Int32N(capacity) }),
		draw("all equal", func() int32 { return capacity / 7 }),
	}
}

// TestPackAdversarialFill checks the fill reached on hard shapes.
func TestPackAdversarialFill(t *testing.T) {
	var p balance.Packer
	for _, capacity := range []int32{4096, 8192, 131072} {
		for _, w := range adversarial(capacity) {
			bin, used, err := packAll(t, &p, w.lengths, 0, w.capacity, 0)
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			checkPacked(t, w.lengths, 0, w.capacity, 0, bin, used)
			bound := lowerBound(w.lengths, w.capacity)
			t.Logf("%-12s capacity %6d: %6d bins, %d above the bound, fill %.3f %%", w.name, w.capacity, used, used-bound, 100*fill(w, used))
			if over := used - bound; over > bound/1000 {
				t.Errorf("%s at capacity %d: %d bins above the bound of %d, want 0.1 %% at most", w.name, w.capacity, over, bound)
			}
		}
	}
}

func BenchmarkPack(b *testing.B) {
	var ws []workload
	for capacity := int32(4096); capacity <= 131072; capacity *= 2 {
		ws = append(ws, workload{name: "lognormal", lengths: lognormal(7, 100_000, capacity), capacity: capacity})
		ws = append(ws, adversarial(capacity)...)
	}
	for _, w := range append(ws, traces(b)...) {
		b.Run(name(w), func(b *testing.B) {
			var p balance.Packer
			_, used, err := packAll(b, &p, w.lengths, 0, w.capacity, 0) // grows the scratch
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := packAll(b, &p, w.lengths, 0, w.capacity, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(w.lengths)), "items")
			b.ReportMetric(float64(used-lowerBound(w.lengths, w.capacity)), "bins-LB")
			b.ReportMetric(100*fill(w, used), "fill%")
		})
	}
}
