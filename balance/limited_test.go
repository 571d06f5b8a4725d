package balance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/millrace-data/millrace/balance"
)

// TestLimitedEdges are the cases that Pack was made for.
func TestLimitedEdges(t *testing.T) {
	for _, test := range []struct {
		name     string
		lengths  []int32
		first    int
		capacity int32
		bins     int
		leave    int
		bin      []int32 // of those kept
	}{
		{"nothing", nil, 0, 10, 2, 1, []int32{}},
		{"all fit", []int32{6, 4, 10}, 0, 10, 2, 0, []int32{1, 1, 0}},
		{"one is left over", []int32{6, 6}, 0, 10, 1, 1, []int32{0, -1}},
		{"none may be left over: the last is given back", []int32{6, 6}, 0, 10, 1, 0, []int32{0}},
		{"the last are given back where they would be too many to leave", []int32{10, 10, 1, 1, 1}, 0, 10, 2, 1, []int32{0, 1, -1}},
		{"what was left over before is kept and goes first", []int32{3, 10, 10}, 1, 10, 1, 1, []int32{0, -1}},
		{"all was left over before: nothing can be given back", []int32{10, 10, 10}, 3, 10, 1, 1, []int32{0, -1, -1}},
		{"as many as may be left", []int32{10, 10, 10}, 0, 10, 1, 2, []int32{0, -1, -1}},
		{"only full rows", slices.Repeat([]int32{10}, 9), 0, 10, 2, 3, []int32{0, 1, -1, -1, -1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var p balance.Packer
			bin, n, err := p.Pack(test.lengths, test.first, test.capacity, test.bins, test.leave)
			if err != nil {
				t.Fatal(err)
			}
			if n != len(test.bin) || !slices.Equal(bin[:n], test.bin) {
				t.Errorf("bins %v of the first %d, want %v of %d", bin[:n], n, test.bin, len(test.bin))
			}
		})
	}
}

// TestLimitedLaws: the cap of a bin is kept, what was left over before is never
// given back, at most `leave` items are left over unless nothing can be given
// back, and the same input gives the same output.
func TestLimitedLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var p balance.Packer // one for all, so that stale scratch would show
	gaveBack, leftOver := 0, 0
	for round := range 3000 {
		capacity := []int32{1, 7, 64, 512, 4096}[rng.IntN(5)]
		bins := 1 + rng.IntN(24)
		lengths := aPool(rng, bins, capacity)
		first := rng.IntN(min(len(lengths), 33) + 1)
		leave := first + rng.IntN(40)
		bin, n, err := p.Pack(lengths, first, capacity, bins, leave)
		if err != nil {
			t.Fatal(err)
		}
		if n < first || n > len(lengths) || len(bin) < n {
			t.Fatalf("round %d: %d of %d items are kept, %d were left over before", round, n, len(lengths), first)
		}
		room := slices.Repeat([]int32{capacity}, bins)
		left := 0
		for i, b := range bin[:n] {
			if b < 0 {
				left++
				continue
			}
			if room[b] -= lengths[i]; room[b] < 0 {
				t.Fatalf("round %d: bin %d holds more than %d", round, b, capacity)
			}
		}
		if left > leave {
			t.Fatalf("round %d: %d are left over, %d may be; %d of %d kept, %d were left over before", round, left, leave, n, len(lengths), first)
		}
		if n < len(lengths) {
			gaveBack++
		}
		leftOver += left
		var fresh balance.Packer
		again, m, err := fresh.Pack(lengths, first, capacity, bins, leave)
		if err != nil || m != n || !slices.Equal(again[:m], bin[:n]) {
			t.Fatalf("round %d: another packer has other results", round)
		}
	}
	if gaveBack == 0 || leftOver == 0 {
		t.Errorf("the rounds show nothing: %d gave items back, %d were left over", gaveBack, leftOver)
	}
}

// aPool is about what a step draws: a row or two more than the bins hold, of
// lengths that are short, mixed, or all as long as a bin.
func aPool(rng *rand.Rand, bins int, capacity int32) []int32 {
	var lengths []int32
	long := rng.IntN(101)
	short := 1 + rng.Int32N(capacity)
	for total := int64(0); total < int64(bins+2)*int64(capacity) && len(lengths) < 3000; {
		n := 1 + rng.Int32N(short)
		if rng.IntN(100) < long {
			n = capacity
		}
		lengths, total = append(lengths, n), total+int64(n)
	}
	return lengths
}

// TestLimitedStream packs a long stream step by step: nothing is lost or doubled,
// and no item is left over for long.
func TestLimitedStream(t *testing.T) {
	const (
		capacity = 512
		bins     = 8
		leave    = 32
		patience = 4 // steps that an item may be left over
	)
	for _, long := range []int{0, 10, 50, 90, 100} {
		var p balance.Packer
		type item struct{ id, length, since int }
		var carried []item
		next, waited := 0, 0
		placed := map[int]bool{}
		length := func(id int) int {
			r := rand.New(rand.NewPCG(uint64(long), uint64(id)))
			if r.IntN(100) < long {
				return capacity
			}
			return 1 + r.IntN(40)
		}
		for step := range 300 {
			pool := slices.Clone(carried)
			total := 0
			for _, it := range pool {
				total += it.length
			}
			for total < (bins+1)*capacity {
				pool = append(pool, item{next, length(next), step})
				total += length(next)
				next++
			}
			lengths := make([]int32, len(pool))
			for i, it := range pool {
				lengths[i] = int32(it.length)
			}
			bin, n, err := p.Pack(lengths, len(carried), capacity, bins, leave)
			if err != nil {
				t.Fatal(err)
			}
			next -= len(pool) - n
			carried = nil
			for i, b := range bin[:n] {
				if b < 0 {
					carried = append(carried, pool[i])
					continue
				}
				if placed[pool[i].id] {
					t.Fatalf("item %d is placed twice", pool[i].id)
				}
				placed[pool[i].id] = true
				waited = max(waited, step-pool[i].since)
			}
			slices.SortStableFunc(carried, func(a, b item) int { return b.length - a.length })
		}
		if len(placed)+len(carried) != next {
			t.Errorf("%d %% long: %d placed, %d left over, %d drawn", long, len(placed), len(carried), next)
		}
		if waited > patience {
			t.Errorf("%d %% long: an item waited for %d steps", long, waited)
		}
	}
}

// TestLimitedFill is the goal for quality of a job's steps: rows filled from a
// stream of samples, with what a step draws beyond its rows and 32 samples
// carried over. Where a row holds two or three samples, a step has too few to
// choose from for more, and where samples are longer than half a row nothing helps.
func TestLimitedFill(t *testing.T) {
	type steps struct {
		workload
		rows int
		want float64
	}
	all := []steps{}
	for _, test := range []struct {
		rows     int
		capacity int32
		want     float64
	}{
		{16, 4096, 0.994}, {16, 8192, 0.999}, {16, 32768, 0.9995},
		{256, 4096, 0.9995}, {256, 8192, 0.9998}, {256, 32768, 0.9998},
	} {
		all = append(all, steps{workload{name: "lognormal", lengths: lognormal(7, 100_000, test.capacity), capacity: test.capacity}, test.rows, test.want})
	}
	for _, w := range traces(t) {
		want := map[string]float64{
			"multipack 2048": 0.981, "omnibal 4096": 0.993, "omnibal 32768": 0.999, "mooncake 8192": 0.9915, "mooncake 32768": 0.997,
			"mooncake 131072": 0.999, "azure 4096": 0.997, "vidur 4096": 0.857, "packedbert 512": 0.998,
		}[fmt.Sprint(w.name, " ", w.capacity)]
		if want == 0 {
			want = 0.9995
		}
		all = append(all, steps{w, 64, want})
	}
	for _, test := range all {
		got := streamFill(t, test.workload, test.rows)
		t.Logf("%s: %3d rows of %5d: fill %.3f %%", test.name, test.rows, test.capacity, 100*got)
		if got < test.want {
			t.Errorf("%s: %d rows of %d: fill %.3f %%, want %.3f %%", test.name, test.rows, test.capacity, 100*got, 100*test.want)
		}
	}
}

// streamFill packs the lengths, in any order, again and again, into 40 steps of rows.
func streamFill(t *testing.T, w workload, rows int) float64 {
	const steps = 40
	var p balance.Packer
	var carried, pool []int32
	next, tokens := 0, int64(0)
	rng := rand.New(rand.NewPCG(1, 2))
	lengths := slices.Clone(w.lengths)
	rng.Shuffle(len(lengths), func(i, j int) { lengths[i], lengths[j] = lengths[j], lengths[i] })
	for range steps {
		pool = append(pool[:0], carried...)
		total := 0
		for _, n := range pool {
			total += int(n)
		}
		for total < (rows+2)*int(w.capacity) {
			pool = append(pool, lengths[next%len(lengths)])
			total += int(lengths[next%len(lengths)])
			next++
		}
		bin, n, err := p.Pack(pool, len(carried), w.capacity, rows, 32)
		if err != nil {
			t.Fatal(err)
		}
		next -= len(pool) - n
		carried = carried[:0]
		for i, b := range bin[:n] {
			if b < 0 {
				carried = append(carried, pool[i])
			} else {
				tokens += int64(pool[i])
			}
		}
		slices.SortFunc(carried, func(a, b int32) int { return int(b - a) })
	}
	return float64(tokens) / steps / float64(rows) / float64(w.capacity)
}

func TestLimitedAllocatesNothing(t *testing.T) {
	lengths := lognormal(7, 500, 8192)
	var p balance.Packer
	allocs := testing.AllocsPerRun(10, func() {
		if _, _, err := p.Pack(lengths, 10, 8192, 64, 32); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a call in steady state, want 0", allocs)
	}
}

func BenchmarkLimited(b *testing.B) {
	for _, bench := range []struct {
		name string
		long int
	}{{"mixed", 20}, {"short and full rows", 60}} {
		b.Run(bench.name, func(b *testing.B) {
			rng := rand.New(rand.NewPCG(3, 3))
			var lengths []int32
			for total := 0; total < 258*4096; {
				n := 1 + rng.IntN(400)
				if rng.IntN(100) < bench.long {
					n = 4096
				}
				lengths, total = append(lengths, int32(n)), total+n
			}
			var p balance.Packer
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := p.Pack(lengths, 0, 4096, 256, 32); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(lengths)), "items")
		})
	}
}

// BenchmarkAnswers packs the answers of a step of 4096 rows, as a step does and as rows that hold them all.
func BenchmarkAnswers(b *testing.B) {
	const rows = 4096
	for _, capacity := range []int32{8192, 32768} {
		lengths, tokens := answers(7, 200_000, 8192), int64(0)
		for i, n := range lengths {
			if tokens += int64(n); tokens > (rows+2)*int64(capacity) {
				lengths = lengths[:i]
				break
			}
		}
		for _, bench := range []struct {
			name string
			rows int
			left int
		}{{"step", rows, 32}, {"all", 0, len(lengths)}} {
			b.Run(fmt.Sprintf("%s/C=%d", bench.name, capacity), func(b *testing.B) {
				var p balance.Packer
				best := time.Hour
				used := int32(0)
				for b.Loop() {
					from := time.Now()
					bin, n, err := p.Pack(lengths, 0, capacity, bench.rows, bench.left)
					if err != nil {
						b.Fatal(err)
					}
					best, used = min(best, time.Since(from)), slices.Max(bin[:n])+1
				}
				b.ReportMetric(float64(len(lengths)), "items")
				b.ReportMetric(best.Seconds()*1e3, "min-ms")
				if bench.rows == 0 {
					b.ReportMetric(float64(int(used)-lowerBound(lengths, capacity)), "rows-LB")
				}
			})
		}
	}
}
