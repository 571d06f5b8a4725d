package balance_test

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// shape draws lengths by integer arithmetic alone, so that every machine draws the same: short ones mostly, alike,
// nearly as long as a bin, or few different ones.
func shape(rng *rand.Rand, n int, capacity int32) (lengths []int32) {
	kind := rng.IntN(4)
	for range n {
		most := capacity
		switch kind {
		case 0:
			most = 1 + rng.Int32N(max(rng.Int32N(capacity)/8, 1))
		case 1:
			most = 1 + capacity/16
		case 2:
			most = 3
		}
		lengths = append(lengths, 1+rng.Int32N(min(most, capacity)))
	}
	return lengths
}

// costOf draws costs for lengths: linear, quadratic, of any size, or with giants.
func costOf(rng *rand.Rand, lengths []int32) (costs []int64) {
	kind, scale := rng.IntN(4), int64(1)<<rng.IntN(30)
	for _, n := range lengths {
		c := int64(n)
		switch kind {
		case 1:
			c = 100*c + c*c
		case 2:
			c = scale + rng.Int64N(scale*8)
		case 3:
			if c = c * scale; rng.IntN(len(lengths)) < 3 {
				c *= 1000
			}
		}
		costs = append(costs, c)
	}
	return costs
}

// TestStable: results of random inputs are those of the versions before. Other digests would be other batches for
// every running job.
func TestStable(t *testing.T) {
	for _, c := range []struct {
		name  string
		seeds uint64
		want  uint64
		run   func(rng *rand.Rand) []int32
	}{
		{"pack", 300, 0x9e03e86cb7d41048, stablePack()},
		{"wide", 30, 0x1404b63de7e62453, stableWide()},
		{"even", 100, 0xe9ff0b776d5474fd, stableEven()},
		{"partition", 150, 0x2b98f2392a79a7ff, stablePartition()},
		{"step", 1, 0x37a49d35178d296d, stableStep},
	} {
		sum := fnv.New64a()
		for seed := range c.seeds {
			rng := rand.New(rand.NewPCG(seed, 99))
			for _, v := range c.run(rng) {
				sum.Write(binary.LittleEndian.AppendUint32(nil, uint32(v)))
			}
		}
		if got := sum.Sum64(); got != c.want {
			t.Errorf("%s: the digest of all results is %#x, and was %#x", c.name, got, c.want)
		}
	}
}

// itemCount draws a number of items: few, or sometimes many.
func itemCount(rng *rand.Rand) int {
	if rng.IntN(40) == 0 {
		return 60_000 + rng.IntN(20_000)
	}
	return rng.IntN(1 << (1 + rng.IntN(12)))
}

// stableStep is a whole step of short texts, packed, evened and divided over ranks.
func stableStep(rng *rand.Rand) []int32 {
	const rows, capacity = 4096, 8192
	var p balance.Packer
	var e balance.Evener
	var b balance.Balancer
	var lengths []int32
	for tokens := int64(0); tokens < (rows+2)*capacity; {
		n := 1 + rng.Int32N(1+rng.Int32N(1+rng.Int32N(900)))
		lengths, tokens = append(lengths, n), tokens+int64(n)
	}
	packed, n, err := p.Pack(lengths, 20, capacity, rows, 32)
	if err != nil {
		panic(err)
	}
	lengths = lengths[:n]
	costs, others := make([]int64, n), make([]int64, n)
	for i, n := range lengths {
		costs[i], others[i] = cost7b(n), 4096*int64(n)+3*int64(n)*int64(n)
	}
	bin := slices.Clone(packed)
	if err := e.Even(lengths, costs, bin, capacity, rows); err != nil {
		panic(err)
	}
	ranks, err := b.Partition(others, balance.Options{Bins: rows})
	if err != nil {
		panic(err)
	}
	return slices.Concat(packed, bin, ranks)
}

func stablePack() func(rng *rand.Rand) []int32 {
	var p balance.Packer
	return func(rng *rand.Rand) []int32 {
		capacity := 1 + rng.Int32N(1<<(1+rng.IntN(14)))
		lengths := shape(rng, itemCount(rng), capacity)
		first := rng.IntN(min(len(lengths), 40) + 1)
		bins := rng.IntN(1 + len(lengths))
		if rng.IntN(2) == 0 { // as a planner has it: a little more than the bins hold
			tokens := int64(0)
			for _, n := range lengths {
				tokens += int64(n)
			}
			bins = max(int(tokens/int64(capacity))-2, 1)
		}
		bin, n, err := p.Pack(lengths, first, capacity, bins, rng.IntN(40))
		if err != nil {
			panic(err)
		}
		return append(slices.Clone(bin), int32(n))
	}
}

func stableWide() func(rng *rand.Rand) []int32 {
	var p balance.WidePacker
	var e balance.WideEvener
	return func(rng *rand.Rand) []int32 {
		w := balance.Wide{Capacity: 1 + rng.Int32N(1<<(1+rng.IntN(10))), Widest: 1 << rng.IntN(4)}
		lengths := shape(rng, min(itemCount(rng), 5000), w.Capacity)
		for i := range lengths {
			if rng.IntN(50) == 0 {
				lengths[i] = 1 + rng.Int32N(w.Capacity*w.Widest)
			}
		}
		tokens := int64(0)
		for _, n := range lengths {
			tokens += int64(n)
		}
		w.Units = int(w.Widest) + int(tokens/int64(w.Capacity))*(8+rng.IntN(4))/10
		bin, n, err := p.Pack(lengths, rng.IntN(min(len(lengths), 20)+1), w, rng.IntN(40))
		if err != nil {
			panic(err)
		}
		bin = append(slices.Clone(bin), int32(n))
		at := bin[:n]
		widths, err := e.Even(lengths[:n], costOf(rng, lengths[:n]), at, w)
		if err != nil {
			panic(err)
		}
		return append(bin, widths...)
	}
}

func stableEven() func(rng *rand.Rand) []int32 {
	var p balance.Packer
	var e balance.Evener
	return func(rng *rand.Rand) []int32 {
		capacity := 1 + rng.Int32N(1<<(1+rng.IntN(14)))
		lengths := shape(rng, itemCount(rng), capacity)
		packed, n, err := p.Pack(lengths, 0, capacity, 0, 0)
		if err != nil {
			panic(err)
		}
		bin := slices.Clone(packed[:n])
		bins := int(slices.Max(append(bin, 0))) + 1 + rng.IntN(3)
		for i := range bin {
			if rng.IntN(100) == 0 {
				bin[i] = balance.Unplaced
			}
		}
		e.Thorough = rng.IntN(2) == 0
		if err := e.Even(lengths[:n], costOf(rng, lengths[:n]), bin, capacity, bins); err != nil {
			panic(err)
		}
		return bin
	}
}

func stablePartition() func(rng *rand.Rand) []int32 {
	var b balance.Balancer
	return func(rng *rand.Rand) []int32 {
		costs := costOf(rng, shape(rng, itemCount(rng), 1<<15))
		o := balance.Options{Bins: 1 + rng.IntN(1<<(1+rng.IntN(10))), Equal: rng.IntN(2) == 0}
		o.Method = []string{"", balance.MethodLPT, balance.MethodKK}[rng.IntN(3)]
		if rng.IntN(4) == 0 {
			o.Groups = 1 + rng.IntN(8)
			o.Bins *= o.Groups
		}
		bin, err := b.Partition(costs, o)
		if err != nil {
			panic(err)
		}
		return bin
	}
}
