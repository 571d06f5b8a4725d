package balance_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// TestEvenRest: where one giant is the heaviest bin, Even evens the others; the cap
// holds, every item stays placed, and the heaviest bin is not made heavier.
func TestEvenRest(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 11))
		bins := 2 + rng.IntN(10)
		const capacity = 100
		tokens, costs, bin := []int32{capacity}, []int64{1 << 40}, []int32{0}
		for b := 1; b < bins; b++ {
			for room := int32(capacity - rng.IntN(30)); room > 0; {
				n := min(1+rng.Int32N(40), room)
				room -= n
				tokens, costs, bin = append(tokens, n), append(costs, int64(n)*int64(n)), append(bin, int32(b))
			}
		}
		tokens, costs, bin = append(tokens, 7), append(costs, 7), append(bin, balance.Unplaced)
		before := slices.Clone(bin)
		heaviest := func(bin []int32) int64 {
			loads := make([]int64, bins)
			for i, b := range bin {
				if b > 0 {
					loads[b] += costs[i]
				}
			}
			return slices.Max(loads)
		}
		var e balance.Evener
		if err := e.Even(tokens, costs, bin, capacity, bins); err != nil {
			t.Fatal(err)
		}
		room := make([]int32, bins)
		for i, b := range bin {
			if (b < 0) != (before[i] < 0) {
				t.Fatalf("seed %d: item %d was in bin %d and is in %d", seed, i, before[i], b)
			}
			if b >= 0 {
				if room[b] += tokens[i]; room[b] > capacity {
					t.Fatalf("seed %d: bin %d is over its capacity", seed, b)
				}
			}
		}
		if bin[0] != 0 || heaviest(bin) > heaviest(before) {
			t.Fatalf("seed %d: the giant is in bin %d, and the others' heaviest went from %d to %d", seed, bin[0], heaviest(before), heaviest(bin))
		}
		if bins > 3 && seed < 50 && heaviest(bin) == heaviest(before) && len(tokens) > 4*bins {
			t.Errorf("seed %d: %d bins with %d items: nothing was evened", seed, bins, len(tokens))
		}
		again := slices.Clone(before)
		if err := e.Even(tokens, costs, again, capacity, bins); err != nil || !slices.Equal(again, bin) {
			t.Fatalf("seed %d: used scratch gives another result, %v", seed, err)
		}
	}
}

func TestEvenRestRefuses(t *testing.T) {
	var e balance.Evener
	for name, err := range map[string]error{
		"bin out of range": e.Even([]int32{1, 2}, []int64{1, 2}, []int32{0, 5}, 10, 2),
		"columns differ":   e.Even([]int32{1, 2}, []int64{1}, []int32{0, 1}, 10, 2),
		"over capacity":    e.Even([]int32{9, 9}, []int64{1, 2}, []int32{0, 0}, 10, 2),
		"negative cost":    e.Even([]int32{1, 2}, []int64{1, -2}, []int32{0, 1}, 10, 2),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := e.Even(nil, nil, nil, 10, 2); err != nil {
		t.Error(err)
	}
}

// TestEvenRestOfMany: few bins with few items are left of many items.
func TestEvenRestOfMany(t *testing.T) {
	const capacity = 1 << 17
	var tokens, bin []int32
	var costs []int64
	add := func(n int32, cost int64, to int32) {
		tokens, costs, bin = append(tokens, n), append(costs, cost), append(bin, to)
	}
	add(1, 1<<40, 0)
	for range 70_000 {
		add(1, 1, 0)
	}
	for range 10 {
		add(10, 1000, 1)
		add(10, 10, 2)
	}
	var e balance.Evener
	if err := e.Even(tokens, costs, bin, capacity, 3); err != nil {
		t.Fatal(err)
	}
	var loads [3]int64
	for i, b := range bin {
		loads[b] += costs[i]
	}
	if most := max(loads[1], loads[2]); most > 5050 {
		t.Errorf("the bins without the giant cost %v", loads[1:])
	}
}
