package balance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// rankLoads replays spans. It fails if a group is not aligned or a piece too long.
func rankLoads(t testing.TB, tokens []int32, costs []int64, spans []balance.Span, o balance.SplitOptions) (load []int64, split int) {
	t.Helper()
	load = make([]int64, o.Ranks)
	for i, s := range spans {
		if s.Ranks < 1 || s.Ranks&(s.Ranks-1) != 0 || s.First%s.Ranks != 0 || s.First < 0 || int(s.First+s.Ranks) > o.Ranks {
			t.Fatalf("sample %d is on ranks %d to %d of %d", i, s.First, s.First+s.Ranks-1, o.Ranks)
		}
		if o.Tokens > 0 && tokens[i] > o.Tokens*s.Ranks {
			t.Fatalf("sample %d has %d tokens on %d ranks, want %d a rank at most", i, tokens[i], s.Ranks, o.Tokens)
		}
		cost := costs[i]
		if s.Ranks > 1 {
			cost += (cost*int64(o.Overhead) + 999) / 1000
			split++
		}
		for r := s.First; r < s.First+s.Ranks; r++ {
			load[r] += (cost + int64(s.Ranks) - 1) / int64(s.Ranks)
		}
	}
	return load, split
}

type splitCase struct {
	costedWorkload
	ranks int
}

func splitCases() (all []splitCase) {
	for _, size := range []struct{ ranks, samples int }{{64, 2048}, {256, 4096}, {1024, 16384}} {
		for _, w := range withCosts(
			workload{name: "lognormal", lengths: lognormal(size.samples, 32768), capacity: 32768},
			workload{name: "images-and-text", lengths: imagesAndText(size.samples, 32768), capacity: 32768},
		) {
			all = append(all, splitCase{w, size.ranks})
		}
	}
	return all
}

// evenness returns largest over mean cost of ranks, by costs without overhead,
// and the least that would be possible without splitting.
func evenness(costs []int64, load []int64) (got, unsplit float64) {
	total := int64(0)
	for _, c := range costs {
		total += c
	}
	mean := float64(total) / float64(len(load))
	return float64(slices.Max(load)) / mean, max(1, float64(slices.Max(costs))/mean)
}

// TestSplitGoals is the goal for quality: the largest load at most 0.2 % above
// the mean where one sample alone is several times the mean; with an overhead,
// less above than the overhead.
func TestSplitGoals(t *testing.T) {
	var s balance.Splitter
	for _, c := range splitCases() {
		for _, overhead := range []int{0, 50, 100} {
			o := balance.SplitOptions{Ranks: c.ranks, Tokens: 8192, Overhead: overhead}
			spans, most, err := s.Split(c.lengths, c.costs, o)
			if err != nil {
				t.Fatal(err)
			}
			load, split := rankLoads(t, c.lengths, c.costs, spans, o)
			if most != slices.Max(load) {
				t.Fatalf("the largest load is %d, Split says %d", slices.Max(load), most)
			}
			got, unsplit := evenness(c.costs, load)
			t.Logf("%4d ranks %-16s %-4s overhead %3d: max/mean %.4f, %d samples split; %.2f without splitting", c.ranks, c.name, c.cost, overhead, got, split, unsplit)
			if limit := 1.002 + float64(overhead)/1000; got > limit {
				t.Errorf("max/mean %.4f, want %.4f", got, limit)
			}
		}
	}
}

// TestSplitLaws: every sample has an aligned group, pieces are not too long, and
// the same input gives the same output.
func TestSplitLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(41, 42))
	var s balance.Splitter // one for all, so that stale scratch would show
	for range 1000 {
		o := balance.SplitOptions{Ranks: 1 + rng.IntN(96), Overhead: rng.IntN(200)}
		tokens := anyLengths(rng, rng.IntN(200), 4096)
		if rng.IntN(2) == 0 && o.Ranks%4 == 0 {
			o.Tokens = 1024 + rng.Int32N(1024)
		}
		costs := make([]int64, len(tokens))
		for i, n := range tokens {
			costs[i] = []int64{cost7b(n), rng.Int64N(1 << 30), rng.Int64N(2)}[rng.IntN(3)]
		}
		spans, most, err := s.Split(tokens, costs, o)
		if err != nil {
			t.Fatal(err)
		}
		if load, _ := rankLoads(t, tokens, costs, spans, o); most != slices.Max(load) {
			t.Fatalf("the largest load is %d, Split says %d", slices.Max(load), most)
		}
		var fresh balance.Splitter
		again, _, err := fresh.Split(tokens, costs, o)
		if err != nil || !slices.Equal(again, spans) {
			t.Fatalf("another Splitter has another result (error %v)", err)
		}
	}
}

// TestSplitNearOptimum compares with the best of all assignments of few samples.
func TestSplitNearOptimum(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 44))
	var s balance.Splitter
	sum := 0.0
	const rounds = 200
	for range rounds {
		o := balance.SplitOptions{Ranks: 4, Overhead: 50 * rng.IntN(3)}
		costs := make([]int64, 1+rng.IntN(5))
		tokens := slices.Repeat([]int32{1}, len(costs))
		for i := range costs {
			costs[i] = 1 + rng.Int64N(1<<(4+rng.IntN(12)))
		}
		_, most, err := s.Split(tokens, costs, o)
		if err != nil {
			t.Fatal(err)
		}
		best := most
		spans := make([]balance.Span, len(costs))
		var try func(i int)
		try = func(i int) {
			if i == len(costs) {
				load, _ := rankLoads(t, tokens, costs, spans, o)
				best = min(best, slices.Max(load))
				return
			}
			for _, span := range []balance.Span{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {0, 2}, {2, 2}, {0, 4}} {
				spans[i] = span
				try(i + 1)
			}
		}
		try(0)
		sum += float64(most) / float64(best)
	}
	t.Logf("the largest load is %.3f times the optimum on average", sum/rounds)
	if sum/rounds > 1.05 {
		t.Errorf("the largest load is %.3f times the optimum on average, want 1.05", sum/rounds)
	}
}

func TestSplitRefuses(t *testing.T) {
	var s balance.Splitter
	for _, test := range []struct {
		name   string
		tokens []int32
		costs  []int64
		o      balance.SplitOptions
	}{
		{"no ranks", []int32{1}, []int64{1}, balance.SplitOptions{}},
		{"overhead below none", []int32{1}, []int64{1}, balance.SplitOptions{Ranks: 2, Overhead: -1}},
		{"no room on a rank", []int32{1}, []int64{1}, balance.SplitOptions{Ranks: 2, Tokens: -1}},
		{"a cost missing", []int32{1, 1}, []int64{1}, balance.SplitOptions{Ranks: 2}},
		{"a negative cost", []int32{1}, []int64{-1}, balance.SplitOptions{Ranks: 2}},
		{"a cost too large", []int32{1}, []int64{1 << 40}, balance.SplitOptions{Ranks: 2}},
		{"an empty sample", []int32{0}, []int64{1}, balance.SplitOptions{Ranks: 2}},
		{"too long for the widest group", []int32{21}, []int64{1}, balance.SplitOptions{Ranks: 6, Tokens: 10}},
	} {
		if _, _, err := s.Split(test.tokens, test.costs, test.o); err == nil {
			t.Errorf("%s: no error", test.name)
		}
	}
	if _, _, err := s.Split([]int32{20}, []int64{1}, balance.SplitOptions{Ranks: 6, Tokens: 10}); err != nil {
		t.Error(err)
	}
}

func BenchmarkSplit(b *testing.B) {
	for _, c := range splitCases() {
		for _, overhead := range []int{0, 50, 100} {
			b.Run(fmt.Sprintf("ranks=%d/%s/%s/overhead=%d", c.ranks, c.name, c.cost, overhead), func(b *testing.B) {
				var s balance.Splitter
				var spans []balance.Span
				o := balance.SplitOptions{Ranks: c.ranks, Tokens: 8192, Overhead: overhead}
				if _, _, err := s.Split(c.lengths, c.costs, o); err != nil { // grows the scratch
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					var err error
					if spans, _, err = s.Split(c.lengths, c.costs, o); err != nil {
						b.Fatal(err)
					}
				}
				load, split := rankLoads(b, c.lengths, c.costs, spans, o)
				got, unsplit := evenness(c.costs, load)
				groups := map[balance.Span]bool{}
				for _, s := range spans {
					if s.Ranks > 1 {
						groups[s] = true
					}
				}
				idle := int64(0)
				for _, l := range load {
					idle += slices.Max(load) - l
				}
				b.ReportMetric(got, "max/mean")
				b.ReportMetric(unsplit, "unsplit")
				b.ReportMetric(100*float64(idle)/float64(slices.Max(load))/float64(len(load)), "idle%")
				b.ReportMetric(float64(split), "split")
				b.ReportMetric(float64(len(groups)), "groups")
			})
		}
	}
}

// One sample is most of the work: four ranks share it.
func ExampleSplitter_Split() {
	tokens := []int32{16000, 2000, 2000, 1000, 500}
	costs := []int64{16000, 2000, 2000, 1000, 500}
	var splitter balance.Splitter
	spans, most, err := splitter.Split(tokens, costs, balance.SplitOptions{Ranks: 4, Tokens: 8192})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(spans, most)
	// Output: [{0 4} {0 1} {1 1} {2 1} {3 1}] 6000
}
