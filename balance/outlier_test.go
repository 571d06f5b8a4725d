package balance_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/balance"
)

// TestOutlierLaws runs streams: nothing is lost or doubled, no sample waits for
// longer than the patience, ordinary samples do not wait, and outliers come
// together or after the patience.
func TestOutlierLaws(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	together, late := 0, 0
	for range 100 {
		q := balance.OutlierQueue{Release: 1 + rng.IntN(8), Patience: rng.Int64N(20)}
		for level := range rng.IntN(4) {
			q.Thresholds = append(q.Thresholds, int32(100*(level+1)))
		}
		if err := q.Check(); err != nil {
			t.Fatal(err)
		}
		level := func(s balance.Sample) int {
			return min(int(s.Tokens)/100, len(q.Thresholds))
		}
		var waiting []balance.Sample
		id := int64(0)
		seen := map[int64]bool{}
		for step := range int64(200) {
			var drawn []balance.Sample
			for range rng.IntN(10) {
				drawn = append(drawn, balance.Sample{ID: id, Tokens: 1 + rng.Int32N(400), Step: step})
				id++
			}
			before := slices.Clone(waiting)
			now, still := q.Next(step, waiting, drawn, nil, nil)
			if !slices.Equal(before, waiting) {
				t.Fatal("the state that was given has changed")
			}
			count := map[int]int{}
			for _, s := range now {
				if seen[s.ID] {
					t.Fatalf("sample %d comes twice", s.ID)
				}
				seen[s.ID] = true
				if level(s) == 0 && s.Step != step {
					t.Fatalf("an ordinary sample of %d tokens has waited", s.Tokens)
				}
				if step-s.Step > q.Patience {
					t.Fatalf("a sample has waited for %d steps, patience is %d", step-s.Step, q.Patience)
				}
				if count[level(s)]++; level(s) > 0 && step-s.Step < q.Patience {
					together++
				} else if level(s) > 0 {
					late++
				}
			}
			if len(now)+len(still) != len(waiting)+len(drawn) || int(id) != len(seen)+len(still) {
				t.Fatalf("step %d: %d samples in, %d out", step, len(waiting)+len(drawn), len(now)+len(still))
			}
			held := map[int]int{}
			for _, s := range still {
				if held[level(s)]++; held[level(s)] >= q.Release {
					t.Fatalf("%d samples of a level wait, %d are enough", held[level(s)], q.Release)
				}
			}
			waiting = still
		}
	}
	if together == 0 || late == 0 {
		t.Errorf("the streams show nothing: %d came together, %d late", together, late)
	}
}

// TestOutlierMaxPerStep: a step releases at most MaxPerStep, late ones first, then the
// highest level, and none waits forever.
func TestOutlierMaxPerStep(t *testing.T) {
	rng := rand.New(rand.NewPCG(53, 54))
	short := 0
	for range 100 {
		q := balance.OutlierQueue{Thresholds: []int32{100, 200}, Release: 1 + rng.IntN(6), Patience: rng.Int64N(10)}
		q.MaxPerStep = q.Release + rng.IntN(4)
		var waiting []balance.Sample
		for step := range int64(100) {
			var drawn []balance.Sample
			for n := rng.IntN(2); n < 4*q.MaxPerStep && (n < 2 || step%8 == 0); n++ {
				drawn = append(drawn, balance.Sample{Tokens: 1 + rng.Int32N(300), Step: step})
			}
			now, still := q.Next(step, waiting, drawn, nil, nil)
			out, late, left := 0, 0, 0
			for _, s := range now {
				if q.Level(s.Tokens) > 0 {
					out++
					if step-s.Step >= q.Patience {
						late++
					}
				}
			}
			for _, s := range still {
				if step-s.Step >= q.Patience {
					left++
				}
			}
			if out > q.MaxPerStep || left > 0 && late < q.MaxPerStep {
				t.Fatalf("%d of at most %d samples, %d late ones are left behind: %+v", out, q.MaxPerStep, left, q)
			}
			if left > 0 {
				short++
			}
			if len(still) > 200 {
				t.Fatalf("%d samples wait: %+v", len(still), q)
			}
			waiting = still
		}
	}
	if short == 0 {
		t.Error("there was always room: the test shows nothing")
	}
	q := balance.OutlierQueue{Thresholds: []int32{100, 200}, Release: 2, Patience: 9, MaxPerStep: 3}
	now, still := q.Next(1, []balance.Sample{{ID: 1, Tokens: 150}, {ID: 2, Tokens: 250}, {ID: 3, Tokens: 150}, {ID: 4, Tokens: 250}}, nil, nil, nil)
	if len(now) != 2 || now[0].ID != 2 || now[1].ID != 4 || len(still) != 2 {
		t.Errorf("%v and %v still waiting", now, still)
	}
}

// TestOutlierBalance checks the queue's purpose: microbatches of a fixed number of
// samples are more even over a stream when each giant meets others.
func TestOutlierBalance(t *testing.T) {
	lengths := lognormal(7, 64*400, 32768)
	const ranks, size = 8, 64
	spread := func(q balance.OutlierQueue) float64 {
		var waiting []balance.Sample
		var b balance.Balancer
		sum, steps := 0.0, 0
		for step := range int64(400) {
			var drawn []balance.Sample
			for i := range int64(size) {
				id := step*size + i
				drawn = append(drawn, balance.Sample{ID: id, Tokens: lengths[id], Step: step})
			}
			var now []balance.Sample
			now, waiting = q.Next(step, waiting, drawn, nil, nil)
			costs, total := make([]int64, len(now)), int64(0)
			for i, s := range now {
				costs[i] = costQuad(s.Tokens)
				total += costs[i]
			}
			o := balance.Options{Bins: ranks + 1, Method: balance.MethodLPT}
			bins, err := b.Partition(costs, o)
			if err != nil {
				t.Fatal(err)
			}
			loads := make([]int64, o.Bins)
			for i, bin := range bins {
				loads[bin] += costs[i]
			}
			most := slices.Max(loads)
			sum += float64(most) * (ranks + 1) / float64(total)
			steps++
		}
		return sum / float64(steps)
	}
	plain := spread(balance.OutlierQueue{Release: 1})
	held := spread(balance.OutlierQueue{Thresholds: []int32{4000, 8000}, Release: ranks + 1, Patience: 50})
	t.Logf("largest over mean cost: %.3f without the queue, %.3f with it", plain, held)
	if held > 0.9*plain {
		t.Errorf("largest over mean cost: %.3f without the queue, %.3f with it", plain, held)
	}
}

func TestOutlierRefuses(t *testing.T) {
	for _, q := range []balance.OutlierQueue{
		{},
		{Release: 1, Patience: -1},
		{Release: 1, MaxPerStep: -1},
		{Release: 1, Thresholds: []int32{0}},
		{Release: 1, Thresholds: []int32{5, 5}},
		{Release: 1, Thresholds: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}},
	} {
		if q.Check() == nil {
			t.Errorf("%+v: no error", q)
		}
	}
}

func ExampleOutlierQueue_Next() {
	q := balance.OutlierQueue{Thresholds: []int32{1000}, Release: 2, Patience: 8}
	var waiting []balance.Sample
	for step, drawn := range [][]balance.Sample{
		{{ID: 1, Tokens: 50}, {ID: 2, Tokens: 4000}},
		{{ID: 3, Tokens: 60}, {ID: 4, Tokens: 70}},
		{{ID: 5, Tokens: 3000}, {ID: 6, Tokens: 80}},
	} {
		for i := range drawn {
			drawn[i].Step = int64(step)
		}
		var now []balance.Sample
		now, waiting = q.Next(int64(step), waiting, drawn, nil, nil)
		for _, s := range now {
			fmt.Print(s.ID, " ")
		}
		fmt.Println("and", len(waiting), "waiting")
	}
	// Output:
	// 1 and 1 waiting
	// 3 4 and 1 waiting
	// 2 5 6 and 0 waiting
}
