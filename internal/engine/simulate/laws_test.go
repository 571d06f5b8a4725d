package simulate

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// random is a pipeline with 2 to 6 operators of any ratio, on up to three resources,
// with a limit from just enough for one task of each operator to plenty.
func random(r *rand.Rand) (Workload, int64) {
	w := Workload{Name: "random", Sources: 1 + r.IntN(40)}
	for i := range 1 + r.IntN(3) {
		w.Resources = append(w.Resources, schedule.Resource{Name: fmt.Sprint("r", i), Slots: schedule.Amount(2+r.IntN(7)) * schedule.Slot})
	}
	part := int64(1+r.IntN(200)) * MB // the greatest that an operator gives
	first, enough, count := part, int64(0), 1
	operators := 2 + r.IntN(5)
	for op := range operators {
		needs := make([]schedule.Amount, len(w.Resources))
		needs[r.IntN(len(needs))] = []schedule.Amount{schedule.Slot / 4, schedule.Slot / 2, schedule.Slot, schedule.Slot}[r.IntN(4)]
		pieces, seconds, noise := 1+r.IntN(4), 0.1+5*r.Float64(), []float64{0, 0.3}[r.IntN(2)]
		if count*pieces > 40 {
			pieces = 1
		}
		count *= pieces
		share := (0.1 + 2*r.Float64()) / float64(pieces) // of the input, for each piece
		cost := func(l Lineage) (schedule.Nanos, []int64) {
			own := rand.New(rand.NewPCG(uint64(op), l.Path))
			around := func(x float64) float64 { return x * (1 - noise*own.Float64()) }
			var out []int64
			for range pieces {
				if op == 0 {
					out = append(out, int64(around(float64(first))))
				} else if op+1 < operators {
					out = append(out, int64(around(share*float64(l.In))))
				}
			}
			return schedule.Nanos(around(seconds) * float64(schedule.Second)), out
		}
		st := Stage{Name: fmt.Sprint("op", op), Needs: needs, Cost: cost}
		if op == 0 {
			w.Declared = int64(pieces) * part
			st.Declared.Partition = part
			enough = part
		} else {
			st.Declared.Ratio = int64(share*float64(pieces)*1000) + 1
			enough += (part*st.Declared.Ratio + 999) / 1000
			part = int64(share*float64(part)) + 1
			st.Declared.Partition = part
		}
		w.Stages = append(w.Stages, st)
	}
	if operators > 2 && r.IntN(4) == 0 {
		at := 1 + r.IntN(operators-2)
		w.Stages[at].Gather = 1 + r.IntN(w.Sources)
		enough += 2 * largest(&w, at)
	}
	return w, enough + int64(r.ExpFloat64()*float64(enough))
}

// walk calls f with all tasks of a workload, without running it, and with what each gives.
func walk(w *Workload, f func(op int, l Lineage, out []int64)) {
	gathered := make(map[int]int64) // by the first source task
	at := 0
	var task func(op int, l Lineage)
	task = func(op int, l Lineage) {
		_, out := w.Stages[op].Cost(l)
		f(op, l, out)
		for i, size := range out {
			if n := w.Stages[op+1].Gather; n > 0 {
				at = op + 1
				gathered[l.Source/n*n] += size
			} else {
				task(op+1, l.below(i, size))
			}
		}
	}
	for i := range w.Sources {
		task(0, Lineage{Source: i}.below(i, 0))
	}
	for first, bytes := range gathered {
		if bytes > 0 {
			task(at, Lineage{Source: first}.below(first, 0).below(0, bytes))
		}
	}
}

// tasks counts what a workload consists of.
func tasks(w *Workload) (n int) {
	walk(w, func(int, Lineage, []int64) { n++ })
	return n
}

// largest is the most that the tasks give which come to one that gathers, and that one.
func largest(w *Workload, at int) (most int64) {
	bytes := map[int]int64{}
	walk(w, func(op int, l Lineage, out []int64) {
		for _, size := range out {
			if first := l.Source / w.Stages[at].Gather; op <= at {
				bytes[first] += size
			}
		}
	})
	for _, b := range bytes {
		most = max(most, b)
	}
	return most
}

// TestLaws runs random pipelines: each ends, each task runs once, the store is never
// over the limit, and two runs are the same. Half of them take the events of an instant in a random order.
func TestLaws(t *testing.T) {
	runs := 1000
	if testing.Short() {
		runs = 200
	}
	tight, gathers := 0, 0
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 7))
		w, limit := random(r)
		if newGathering(&w).op > 0 {
			gathers++
		}
		cfg := Config{Limit: limit, Pinned: r.IntN(2) == 0, Policy: schedule.Decide, Credits: true, Ties: seed % 2 * seed}
		var over, clash string
		seen := map[string]bool{}
		cfg.Trace = func(e Event) {
			if e.Used > limit {
				over = e.String()
			}
			if key := fmt.Sprint(e.Kind, e.Task); e.Kind != Stalled {
				if seen[key] {
					clash = e.String()
				}
				seen[key] = true
			}
		}
		res := Run(w, cfg)
		if want := tasks(&w); res.Stuck || res.Tasks != want || over != "" || clash != "" {
			t.Errorf("seed %d: limit %d MB, stuck %t, %d of %d tasks, over the limit at %q, twice at %q", seed, limit/MB, res.Stuck, res.Tasks, want, over, clash)
		}
		if res.Stalled > 0 {
			tight++
		}
		cfg.Trace = nil
		if again := Run(w, cfg); again != res {
			t.Errorf("seed %d: two runs differ: %+v and %+v", seed, res, again)
		}
	}
	if gathers < runs/10 {
		t.Errorf("a stage gathers in %d of %d runs", gathers, runs)
	}
	if tight < runs/20 {
		t.Errorf("outputs had to wait in %d of %d runs: the laws are not tested where they matter", tight, runs)
	}
}
