package balance_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// worst is the objective: the largest max/mean of a dimension, times its weight
// over the largest weight, and what it cannot go below: the mean, or an item.
func worst(t *testing.T, dims []balance.Dimension, bin []int32, o balance.Options) (got, bound float64) {
	t.Helper()
	heaviest := int64(1)
	for _, d := range dims {
		heaviest = max(heaviest, d.Weight)
	}
	for _, d := range dims {
		q := checkPartition(t, d.Costs, o, bin)
		if q.Total == 0 {
			continue
		}
		weight := float64(max(1, d.Weight)) / float64(heaviest)
		got = max(got, weight*q.Imbalance())
		largest := float64(slices.Max(d.Costs)) / q.Mean()
		bound = max(bound, weight*max(1, largest))
	}
	return got, bound
}

// visionLanguage returns an encoder's work, the backbone's, and memory of n
// samples, a third of them text only.
func visionLanguage(n int) []balance.Dimension {
	text, patches := draw("LN", n, 1), draw("VLM", n, 2)
	memory := make([]int64, n)
	for i := range memory {
		if i%3 == 0 {
			patches[i] = 0
		}
		memory[i] = text[i] + patches[i]
	}
	return []balance.Dimension{
		{Name: "encoder", Costs: patches},
		{Name: "backbone", Costs: modelCost("7b", memory)},
		{Name: "memory", Costs: memory},
	}
}

func TestVectorLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	var used balance.Balancer
	for range 200 {
		o := randomOptions(rng)
		o.Method = ""
		dims := make([]balance.Dimension, 1+rng.IntN(4))
		n := rng.IntN(200)
		for d := range dims {
			costs := make([]int64, n)
			limit := []int64{1, 3, 1000, 1 << 53}[rng.IntN(4)]
			for i := range costs {
				costs[i] = rng.Int64N(limit)
			}
			dims[d] = balance.Dimension{Name: fmt.Sprint(d), Costs: costs, Weight: rng.Int64N(4)}
		}
		got, err := used.PartitionVector(dims, o)
		if err != nil {
			t.Fatal(err)
		}
		worst(t, dims, got, o)
		var fresh balance.Balancer
		if again, err := fresh.PartitionVector(dims, o); err != nil || !slices.Equal(got, again) {
			t.Fatalf("%+v: %v with used scratch, %v with fresh (%v)", o, got, again, err)
		}
	}
}

// TestVectorQuality: all dimensions are even at once, where balancing one of
// them leaves the others uneven; with every bin looked at and with few of them.
func TestVectorQuality(t *testing.T) {
	var b balance.Balancer
	for _, s := range []size{{512, 8}, {2048, 64}, {4096, 256}, {16384, 64}, {16384, 256}, {60_000, 1024}} {
		for _, equal := range []bool{false, true} {
			dims := visionLanguage(s.n)
			o := balance.Options{Bins: s.bins, Equal: equal}
			bin, err := b.PartitionVector(dims, o)
			if err != nil {
				t.Fatal(err)
			}
			got, bound := worst(t, dims, bin, o)
			bin, err = b.Partition(dims[1].Costs, o)
			if err != nil {
				t.Fatal(err)
			}
			one, _ := worst(t, dims, bin, o)
			t.Logf("%6d in %4d, equal %-5v: max/mean %.4f, bound %.4f; %.2f by the backbone alone", s.n, s.bins, equal, got, bound, one)
			if got > 1.03*bound || got > one {
				t.Errorf("%d in %d, equal %v: max/mean %.4f, bound %.4f; %.2f by the backbone alone", s.n, s.bins, equal, got, bound, one)
			}
		}
	}
}

// TestVectorOptimum compares with the best of all assignments of tiny cases.
func TestVectorOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(23, 24))
	var b balance.Balancer
	near, cases := 0, 300
	for range cases {
		n, bins := 2+rng.IntN(7), 2+rng.IntN(2)
		dims := []balance.Dimension{{Name: "a", Weight: 1 + rng.Int64N(2)}, {Name: "b", Weight: 1}}
		for d := range dims {
			for range n {
				dims[d].Costs = append(dims[d].Costs, rng.Int64N(50))
			}
		}
		o := balance.Options{Bins: bins}
		bin, err := b.PartitionVector(dims, o)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := worst(t, dims, bin, o)
		best := math.Inf(1)
		all := make([]int32, n)
		for code := range int(math.Pow(float64(bins), float64(n))) {
			for i := range all {
				all[i] = int32(code % bins)
				code /= bins
			}
			try, _ := worst(t, dims, all, o)
			best = min(best, try)
		}
		if got < best*(1-1e-9) {
			t.Fatalf("%v: %.4f below the optimum %.4f", dims, got, best)
		}
		if got <= 1.1*best {
			near++
		}
	}
	t.Logf("within 10 %% of the optimum: %d of %d", near, cases)
	if near < cases*85/100 {
		t.Errorf("within 10 %% of the optimum: %d of %d", near, cases)
	}
}

// TestVectorWeights: a dimension of a small weight gives way.
func TestVectorWeights(t *testing.T) {
	dims := visionLanguage(2048)
	dims = dims[:2]
	var b balance.Balancer
	o := balance.Options{Bins: 64}
	unevenness := func(weight int64) [2]float64 {
		dims[1].Weight = weight
		bin, err := b.PartitionVector(dims, o)
		if err != nil {
			t.Fatal(err)
		}
		return [2]float64{
			checkPartition(t, dims[0].Costs, o, bin).Imbalance(),
			checkPartition(t, dims[1].Costs, o, bin).Imbalance(),
		}
	}
	same, backbone := unevenness(1), unevenness(10)
	t.Logf("encoder and backbone: %.4f by the same weight, %.4f by 1 to 10", same, backbone)
	if backbone[1] > same[1] || backbone[0] < same[0] {
		t.Errorf("encoder and backbone: %.4f by the same weight, %.4f by 1 to 10", same, backbone)
	}
}

func TestVectorErrors(t *testing.T) {
	var b balance.Balancer
	ok := balance.Options{Bins: 2}
	two := func(a, b balance.Dimension) []balance.Dimension { return []balance.Dimension{a, b} }
	for _, test := range []struct {
		dims []balance.Dimension
		o    balance.Options
		want string
	}{
		{nil, ok, "0 dimensions; 1 to 16"},
		{make([]balance.Dimension, 17), ok, "17 dimensions"},
		{two(balance.Dimension{Name: "x", Costs: []int64{1}}, balance.Dimension{Name: "y"}), ok, `dimension "x" has 1 costs and dimension "y" 0`},
		{[]balance.Dimension{{Name: "x", Costs: []int64{1, -2}}}, ok, `dimension "x": item 1 has cost -2`},
		{[]balance.Dimension{{Name: "x", Weight: -1}}, ok, `dimension "x" has weight -1`},
		{[]balance.Dimension{{Name: "x"}}, balance.Options{}, "0 bins"},
		{[]balance.Dimension{{Name: "x"}}, balance.Options{Bins: 2, Method: balance.MethodKK}, `have only the method "auto"`},
	} {
		if bin, err := b.PartitionVector(test.dims, test.o); err == nil || bin != nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want an error with %q", err, test.want)
		}
	}
}
