package balance_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// checkPartition checks the laws: each item in one bin, equal counts where asked for.
func checkPartition(t *testing.T, costs []int64, o balance.Options, bin []int32) balance.Quality {
	t.Helper()
	var b balance.Balancer
	q, err := b.Evaluate(costs, bin, o)
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	if q.Max < q.TightBound || q.TightBound < q.LowerBound {
		t.Fatalf("%+v: largest load %d below the bound %d, or that below %d", o, q.Max, q.TightBound, q.LowerBound)
	}
	if o.Equal && q.MaxItems-q.MinItems > min(1, len(costs)%o.Bins) {
		t.Fatalf("%+v: bins have %d to %d of %d items", o, q.MinItems, q.MaxItems, len(costs))
	}
	return q
}

func randomCosts(rng *rand.Rand) []int64 {
	costs := make([]int64, rng.IntN(400))
	limit := []int64{1, 2, 50, 1 << 31, 1 << 52}[rng.IntN(5)]
	for i := range costs {
		costs[i] = rng.Int64N(limit)
		if rng.IntN(30) == 0 {
			costs[i] *= 20
		}
	}
	return costs
}

func randomOptions(rng *rand.Rand) balance.Options {
	groups := 1 + rng.IntN(4)
	return balance.Options{
		Bins:   groups * (1 + rng.IntN(20)),
		Groups: groups,
		Equal:  rng.IntN(2) == 0,
		Method: []string{"", balance.MethodAuto, balance.MethodLPT, balance.MethodKK}[rng.IntN(4)],
	}
}

// TestPartitionLaws: a partition holds every item once, is the same with fresh
// and with used scratch, and its loads do not depend on the order of the items.
func TestPartitionLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	var used balance.Balancer
	for range 600 {
		costs, o := randomCosts(rng), randomOptions(rng)
		got, err := used.Partition(costs, o)
		if err != nil {
			t.Fatalf("%+v: %v", o, err)
		}
		q := checkPartition(t, costs, o, got)
		var fresh balance.Balancer
		again, err := fresh.Partition(costs, o)
		if err != nil || !slices.Equal(got, again) {
			t.Fatalf("%+v: %v with used scratch, %v with fresh (%v)", o, got, again, err)
		}
		shuffled := slices.Clone(costs)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		bin, err := fresh.Partition(shuffled, o)
		if err != nil {
			t.Fatal(err)
		}
		if other := checkPartition(t, shuffled, o, bin); other != q {
			t.Fatalf("%+v: %v, and in another order of items %v", o, q, other)
		}
	}
}

// TestPartitionOptimum compares with the best of all assignments: LPT stays in
// its bound of 4/3 - 1/(3 bins), no bound of ours is above the optimum, and auto
// is as good as each method.
func TestPartitionOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	var b balance.Balancer
	optimal, cases := 0, 0
	for range 400 {
		costs := make([]int64, 1+rng.IntN(9))
		for i := range costs {
			costs[i] = rng.Int64N([]int64{4, 30, 1000}[rng.IntN(3)])
		}
		o := balance.Options{Bins: 1 + rng.IntN(4), Equal: rng.IntN(2) == 0}
		best := optimum(costs, o)
		most := map[string]int64{}
		for _, o.Method = range []string{balance.MethodAuto, balance.MethodLPT, balance.MethodKK} {
			bin, err := b.Partition(costs, o)
			if err != nil {
				t.Fatal(err)
			}
			q := checkPartition(t, costs, o, bin)
			if most[o.Method] = q.Max; q.TightBound > best || q.Max < best {
				t.Fatalf("%v %+v: largest load %d, bound %d, optimum %d", costs, o, q.Max, q.TightBound, best)
			}
		}
		if k := int64(o.Bins); !o.Equal && 3*k*most[balance.MethodLPT] > (4*k-1)*best {
			t.Errorf("%v %+v: LPT %d, optimum %d", costs, o, most[balance.MethodLPT], best)
		}
		if auto := most[balance.MethodAuto]; auto > min(most[balance.MethodLPT], most[balance.MethodKK]) {
			t.Errorf("%v %+v: auto is not the best of %v", costs, o, most)
		}
		cases++
		if most[balance.MethodAuto] == best {
			optimal++
		}
	}
	t.Logf("auto is optimal in %d of %d", optimal, cases)
	if optimal < cases*98/100 {
		t.Errorf("auto is optimal in %d of %d tiny cases only", optimal, cases)
	}
}

// optimum tries all assignments.
func optimum(costs []int64, o balance.Options) int64 {
	load, count := make([]int64, o.Bins), make([]int, o.Bins)
	quota := len(costs)
	if o.Equal {
		quota = (len(costs) + o.Bins - 1) / o.Bins
	}
	best := int64(math.MaxInt64)
	var try func(i int)
	try = func(i int) {
		if i == len(costs) {
			if !o.Equal || slices.Min(count) >= len(costs)/o.Bins {
				best = min(best, slices.Max(load))
			}
			return
		}
		for bin := range load {
			if count[bin] < quota {
				load[bin] += costs[i]
				count[bin]++
				try(i + 1)
				load[bin] -= costs[i]
				count[bin]--
			}
		}
	}
	try(0)
	return best
}

// TestPartitionGroups: the bins of a group are consecutive, and groups are as
// even as a flat partition into as many bins.
func TestPartitionGroups(t *testing.T) {
	costs := modelCost("7b", draw("LN", 20_000, 1))
	var b balance.Balancer
	for _, equal := range []bool{false, true} {
		o := balance.Options{Bins: 320, Groups: 16, Equal: equal}
		bin, err := b.Partition(costs, o)
		if err != nil {
			t.Fatal(err)
		}
		q := checkPartition(t, costs, o, bin)
		group := make([]int32, len(bin))
		for i, at := range bin {
			group[i] = at / 20
		}
		whole := checkPartition(t, costs, balance.Options{Bins: 16, Equal: equal}, group)
		t.Logf("equal %v: %v; groups: %v", equal, q, whole)
		if q.Gap() > 2e-4 || whole.Gap() > 1e-5 {
			t.Errorf("equal %v: %v; groups: %v", equal, q, whole)
		}
	}
}

func TestPartitionErrors(t *testing.T) {
	var b balance.Balancer
	ok := balance.Options{Bins: 2}
	for _, test := range []struct {
		costs []int64
		o     balance.Options
		want  string
	}{
		{nil, balance.Options{}, "0 bins; 1 to 16777216"},
		{nil, balance.Options{Bins: 1 << 25}, "33554432 bins"},
		{[]int64{1, -3}, ok, "item 1 has cost -3"},
		{[]int64{5, math.MaxInt64, 1}, ok, "items 0 to 1 sum to more than 2^62"},
		{[]int64{1}, balance.Options{Bins: 6, Groups: 4}, "4 groups for 6 bins"},
		{[]int64{1}, balance.Options{Bins: 6, Groups: -1}, "-1 groups"},
		{[]int64{1}, balance.Options{Bins: 6, Method: "ltp"}, `unknown balancing method "ltp"; use "auto", "lpt" or "kk"`},
	} {
		if bin, err := b.Partition(test.costs, test.o); err == nil || bin != nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v %+v: %v, %v; want an error with %q", test.costs, test.o, bin, err, test.want)
		}
	}
	for _, test := range []struct {
		costs []int64
		bin   []int32
		want  string
	}{
		{[]int64{1, 2}, []int32{0}, "2 items have 1 bins"},
		{[]int64{1, 2}, []int32{0, 2}, "item 1 is in bin 2; bins are 0 to 1"},
		{[]int64{-1}, []int32{0}, "item 0 has cost -1"},
	} {
		if _, err := b.Evaluate(test.costs, test.bin, ok); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v %v: %v, want an error with %q", test.costs, test.bin, err, test.want)
		}
	}
}

func TestPartitionExtremes(t *testing.T) {
	var b balance.Balancer
	for _, costs := range [][]int64{nil, {0}, {0, 0, 0}, {balance.MaxTotal}, {balance.MaxTotal - 3, 1, 1, 1}, {7, 0, 0, 0, 0, 0}} {
		for _, bins := range []int{1, 2, 5, 300} {
			for _, method := range []string{balance.MethodAuto, balance.MethodLPT, balance.MethodKK} {
				for _, equal := range []bool{false, true} {
					o := balance.Options{Bins: bins, Method: method, Equal: equal}
					bin, err := b.Partition(costs, o)
					if err != nil {
						t.Fatal(err)
					}
					if q := checkPartition(t, costs, o, bin); q.Max != q.TightBound {
						t.Errorf("%v %+v: largest load %d, optimum %d", costs, o, q.Max, q.TightBound)
					}
				}
			}
		}
	}
}

// TestPartitionItemBound: where one item is the bound, the bound is reached and
// reported as due to items.
func TestPartitionItemBound(t *testing.T) {
	costs := append(slices.Repeat([]int64{10}, 500), 9000, 8000)
	var b balance.Balancer
	o := balance.Options{Bins: 10}
	bin, err := b.Partition(costs, o)
	if err != nil {
		t.Fatal(err)
	}
	q := checkPartition(t, costs, o, bin)
	if !q.ItemBound || q.Max != 9000 || q.Gap() != 0 || !strings.HasSuffix(q.String(), "item-bound") {
		t.Errorf("%+v %v, want item-bound at 9000", q, q)
	}
}

// fixed is a method with a fixed result, which writes over its costs.
type fixed [][]int32

func (f fixed) Name() string { return "fixed" }

func (f fixed) Assign(costs []int64, _ int) ([][]int32, error) {
	clear(costs)
	return f, nil
}

type failing struct{ error }

func (f failing) Name() string                           { return "failing" }
func (f failing) Assign([]int64, int) ([][]int32, error) { return nil, f.error }

func TestCustom(t *testing.T) {
	var b balance.Balancer
	costs := []int64{5, 6, 7, 8}
	o := balance.Options{Bins: 3, Custom: fixed{{3}, {0, 1, 2}}}
	bin, err := b.Partition(costs, o)
	if err != nil || !slices.Equal(bin, []int32{1, 1, 1, 0}) || !slices.Equal(costs, []int64{5, 6, 7, 8}) {
		t.Errorf("%v, %v, costs %v", bin, err, costs)
	}
	for _, test := range []struct {
		o    balance.Options
		want string
	}{
		{balance.Options{Bins: 2, Custom: fixed{{0, 1}, {2}}}, `method "fixed": item 3 is in no bin`},
		{balance.Options{Bins: 2, Custom: fixed{{0, 1}, {2, 3, 1}}}, `method "fixed": item 1 is in bin 0 and in bin 1`},
		{balance.Options{Bins: 2, Custom: fixed{{0, 1, 1}, {2, 3}}}, `item 1 is in bin 0 and in bin 0`},
		{balance.Options{Bins: 2, Custom: fixed{{0, 1}, {2, 3, 4}}}, "bin 1 has item 4; items are 0 to 3"},
		{balance.Options{Bins: 2, Custom: fixed{{0, -1}}}, "bin 0 has item -1"},
		{balance.Options{Bins: 2, Custom: fixed{{0}, {1}, {2, 3}}}, "3 bins were returned; 2 were asked for"},
		{balance.Options{Bins: 2, Equal: true, Custom: fixed{{0, 1, 2}, {3}}}, "bin 0 has 3 items; equal counts of 4 items in 2 bins are 2 to 2"},
		{balance.Options{Bins: 3, Equal: true, Custom: fixed{{0, 1}, {2, 3}}}, "bin 2 has 0 items"},
		{balance.Options{Bins: 4, Groups: 2, Custom: fixed{{0, 1}, {2, 3}}}, "partitioning group 0 of 2: balancing 2 items"},
		{balance.Options{Bins: 4, Groups: 2, Custom: fixed{{0, 1}}}, "partitioning into 2 groups: balancing 4 items"},
	} {
		if _, err := b.Partition(costs, test.o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want an error with %q", test.o, err, test.want)
		}
	}
	cause := errors.New("no licence")
	if _, err := b.Partition(costs, balance.Options{Bins: 2, Custom: failing{cause}}); !errors.Is(err, cause) {
		t.Errorf("%v does not wrap the method's error", err)
	}
}

func TestPartitionAllocations(t *testing.T) {
	costs := modelCost("7b", draw("VLM", 5000, 1))
	for _, o := range []balance.Options{{Bins: 64}, {Bins: 50, Equal: true}, {Bins: 64, Groups: 8}, {Bins: 64, Method: balance.MethodKK}} {
		var b balance.Balancer
		run := func() {
			if _, err := b.Partition(costs, o); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 { // buffers change places while they grow
			run()
		}
		if n := testing.AllocsPerRun(5, run); n > 0 {
			t.Errorf("%+v: %v allocations in a call", o, n)
		}
	}
}

// draw returns n lengths: LN (lognormal text), VLM (text and image patches),
// Pareto (a heavy tail up to the context).
func draw(dist string, n int, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 1))
	clip := func(x, low, high float64) int64 { return int64(min(max(x, low), high)) }
	lengths := make([]int64, n)
	for i := range lengths {
		switch dist {
		case "LN":
			lengths[i] = clip(1000*math.Exp(rng.NormFloat64()), 16, 32768)
		case "VLM":
			text := 1 + rng.Float64()*63
			if rng.Float64() > 0.9823 {
				text = 64 + rng.ExpFloat64()*41
			}
			lengths[i] = int64(text) + clip(700*math.Exp(1.1*rng.NormFloat64()), 16, 16384)
		case "Pareto":
			lengths[i] = clip(48*math.Pow(1-rng.Float64(), -1/0.6), 48, 16384)
		default:
			panic(fmt.Sprintf("no distribution %q", dist))
		}
	}
	return lengths
}

var (
	dists  = []string{"LN", "VLM", "Pareto"}
	models = []string{"lin", "7b", "quad"}
)

// modelCost returns the costs of lengths: the length itself, the work of a layer
// stack of 7 G parameters, or attention alone.
func modelCost(model string, lengths []int64) []int64 {
	costs := make([]int64, len(lengths))
	for i, s := range lengths {
		switch model {
		case "lin":
			costs[i] = s
		case "7b":
			costs[i] = 24576*s + s*s
		case "quad":
			costs[i] = s * s
		default:
			panic(fmt.Sprintf("no cost model %q", model))
		}
	}
	return costs
}

// TestKKFallsBack: differencing that would take gigabytes is the longest processing time rule.
func TestKKFallsBack(t *testing.T) {
	costs := modelCost("7b", draw("LN", 1<<15, 1))
	var b balance.Balancer
	got, err := b.Partition(costs, balance.Options{Bins: 1<<15 + 1, Method: balance.MethodKK})
	if err != nil {
		t.Fatal(err)
	}
	got = slices.Clone(got)
	want, err := b.Partition(costs, balance.Options{Bins: 1<<15 + 1, Method: balance.MethodLPT})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("kk of 2^15 items in more bins is not lpt (error %v)", err)
	}
}
