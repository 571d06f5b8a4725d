package simulate

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

var (
	rewrite = flag.Bool("rewrite", false, "write the transcripts in testdata")
	orders  = flag.Uint64("orders", 30, "random orders of events of the same instant that TestTies tries")
)

func ours(w Workload, limit int64, pinned bool) Result {
	return Run(w, Config{Limit: limit, Pinned: pinned, Policy: schedule.Decide, Credits: true})
}

// TestTranscript compares a small run, event by event, with testdata.
func TestTranscript(t *testing.T) {
	w := Microbenchmark()
	w.Sources, w.Resources = 4, slots(3, 1)
	for _, name := range []string{"pinned", "released"} {
		var text strings.Builder
		Run(w, Config{Limit: 5 * Partition, Pinned: name == "pinned", Policy: schedule.Decide, Credits: true, Trace: Transcript(&text)})
		file := filepath.Join("testdata", name+".txt")
		if *rewrite {
			if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != text.String() {
			t.Errorf("%s: the run is not that of the transcript (%v); look at the difference after go test -rewrite", file, err)
		}
	}
}

// TestLimits holds the goals of the microbenchmark: at most 156 s with a store of 1
// GB or more, 168 s below, nothing over the limit, nothing stuck.
func TestLimits(t *testing.T) {
	for _, pinned := range []bool{true, false} {
		for _, b := range []int64{5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 30, 40, 45, 60, 80, 120, 160, 240, 320} {
			goal := 156.0
			if b < 10 {
				goal = 168
			}
			res := ours(Microbenchmark(), b*Partition, pinned)
			if res.Stuck || res.Tasks != 1760 || res.PeakStore > b*Partition || res.Time.Seconds() > goal {
				t.Errorf("pinned %t, %d partitions: %+v, want at most %g s", pinned, b, res, goal)
			}
		}
	}
}

// TestTies holds the same goals in random orders of what happens at the same instant.
func TestTies(t *testing.T) {
	for _, pinned := range []bool{true, false} {
		for _, b := range []int64{5, 6, 7, 8, 9, 10, 11, 15, 30} {
			goal, slowest := 168.0, 0.0
			if b >= 10 {
				goal = 156
			}
			for seed := uint64(1); seed <= *orders; seed++ {
				res := Run(Microbenchmark(), Config{Limit: b * Partition, Pinned: pinned, Policy: schedule.Decide, Credits: true, Ties: seed})
				if res.Stuck || res.Tasks != 1760 || res.PeakStore > b*Partition || res.Time.Seconds() > goal {
					t.Errorf("pinned %t, %d partitions, order %d: %+v, want at most %g s", pinned, b, seed, res, goal)
				}
				slowest = max(slowest, res.Time.Seconds())
			}
			t.Logf("pinned %t, %.1f GB: the slowest of %d orders takes %.1f s", pinned, float64(b)/10, *orders, slowest)
		}
	}
}

// TestDelays holds runs whose tasks each take 16 ms longer on average, 3 % of the short ones, to 1.06 times the exact run: a
// delay is made up for, and does not add to that of the next source.
func TestDelays(t *testing.T) {
	for _, b := range []int64{5, 6, 7, 8, 9, 10, 12, 15, 20, 40} {
		exact, sum := ours(Microbenchmark(), b*Partition, true), 0.0
		for seed := range uint64(5) {
			res := ours(Microbenchmark().Delayed(schedule.Second*16/1000, seed), b*Partition, true)
			if res.Stuck || res.PeakStore > b*Partition {
				t.Errorf("%d partitions, seed %d: %+v", b, seed, res)
			}
			sum += res.Time.Seconds()
		}
		t.Logf("%.1f GB: %.1f s, %.3f of the exact run", float64(b)/10, sum/5, sum/5/exact.Time.Seconds())
		if sum/5 > 1.06*exact.Time.Seconds() {
			t.Errorf("%d partitions: %.1f s on average, want at most 1.06 x %.1f s", b, sum/5, exact.Time.Seconds())
		}
	}
}

// TestBaselines holds the simulator against figures that were found without it (see
// docs/engine.md): if a baseline moves, the model did.
func TestBaselines(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy schedule.Policy
		limit  int64
		want   float64
	}{
		{"conservative", Conservative(5*Partition, Partition, 0), 5, 1040},
		{"conservative", Conservative(5*Partition, Partition, 0), 20, 261.5},
		{"conservative", Conservative(5*Partition, Partition, 0), 60, 153},
		{"static", Static(5, 3, 4), 15, 165},
		{"greedy", Greedy, 5, 167.5},
		{"greedy", Greedy, 15, 182},
		{"greedy", Greedy, 40, 153},
	} {
		res := Run(Microbenchmark(), Config{Limit: c.limit * Partition, Pinned: true, Policy: c.policy})
		if res.Stuck || res.Time.Seconds() != c.want {
			t.Errorf("%s at %d partitions: %g s, want %g", c.name, c.limit, res.Time.Seconds(), c.want)
		}
	}
}

// TestStuck makes sure that a run that cannot go on says so.
func TestStuck(t *testing.T) {
	res := Run(Microbenchmark(), Config{Limit: 10 * Partition, Policy: Greedy})
	if !res.Stuck {
		t.Errorf("every slot holds an output that does not fit, and the run ended: %+v", res)
	}
}

// TestChanges holds the goals of the workload that changes and of fractional
// parallelism, against the best that fixed numbers of tasks do.
func TestChanges(t *testing.T) {
	for _, limit := range []int64{12, 40} {
		w := Changing(400)
		best := schedule.Nanos(0)
		for k := schedule.Amount(1); k < 8; k++ {
			res := Run(w, Config{Limit: limit * Partition, Pinned: true, Policy: Static(int(k), 1, int(8-k))})
			if !res.Stuck && (best == 0 || res.Time < best) {
				best = res.Time
			}
		}
		if res := ours(w, limit*Partition, true); res.Stuck || res.Time.Seconds()*1.25 > best.Seconds() {
			t.Errorf("limit %d: %+v, best static %g s", limit, res, best.Seconds())
		}
	}
	for _, limit := range []int64{8, 16, 40} {
		res, fixed := ours(Fractional(512), limit*Partition, true), Run(Fractional(512), Config{Limit: limit * Partition, Pinned: true, Policy: Static(4, 4)})
		if res.Stuck || res.Time.Seconds() > 0.76*fixed.Time.Seconds() {
			t.Errorf("limit %d: %g s, 4-4 %g s", limit, res.Time.Seconds(), fixed.Time.Seconds())
		}
	}
}

// TestNoise holds the medians under noise to 1.08 times those of the best baseline.
func TestNoise(t *testing.T) {
	if testing.Short() {
		t.Skip("a few hundred runs")
	}
	for _, b := range []int64{5, 10, 15, 30, 60} {
		median := func(policy func() schedule.Policy, credits bool) float64 {
			var times []float64
			for seed := range uint64(20) {
				res := Run(Microbenchmark().Noisy(0.3, seed), Config{Limit: b * Partition, Pinned: true, Policy: policy(), Credits: credits})
				if res.Stuck {
					t.Errorf("%d partitions, seed %d: stuck", b, seed)
				}
				times = append(times, res.Time.Seconds())
			}
			slices.Sort(times)
			return (times[9] + times[10]) / 2
		}
		own := median(func() schedule.Policy { return schedule.Decide }, true)
		best := min(median(func() schedule.Policy { return Greedy }, false), median(func() schedule.Policy { return Static(5, 3, 4) }, false))
		if own > 1.08*best {
			t.Errorf("%d partitions: median %g s, best baseline %g s", b, own, best)
		}
	}
}
