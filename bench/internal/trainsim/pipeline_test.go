package trainsim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGoldenSchedules compares with schedules drawn by hand.
func TestGoldenSchedules(t *testing.T) {
	for _, c := range []struct {
		stages  int
		forward []float64
		want    float64
	}{
		{1, []float64{2, 5, 1}, 24}, // no pipeline: 3·(2+5+1)
		{4, nil, 0},
		{4, []float64{1}, 12}, // down 4·1, up 4·2
		{2, []float64{1, 1}, 9},
		// Stage 1: F0 1-2, B0 2-4, F1 4-6, B1 6-10. Stage 0: F1 1-3, B0 4-6, B1 10-14.
		{2, []float64{1, 2}, 14},
		// Stage 1: F0 2-4, B0 4-8, F1 8-9, B1 9-11. Stage 0: F1 2-3, B0 8-12, B1 12-14.
		{2, []float64{2, 1}, 14},
		// Stage 2: F0 2-3, B0 3-5, F1 7-10, B1 10-16, F2 16-17, B2 17-19.
		// Stage 1: F0 1-2, F1 4-7, B0 7-9, F2 9-10, B1 16-22, B2 22-24.
		// Stage 0: F0 0-1, F1 1-4, F2 4-5, B0 9-11, B1 22-28, B2 28-30.
		{3, []float64{1, 3, 1}, 30},
	} {
		if got := OneFOneB(c.stages, c.forward); got != c.want {
			t.Errorf("OneFOneB(%d, %v) = %v, want %v", c.stages, c.forward, got, c.want)
		}
	}
}

func TestEqualMicrobatches(t *testing.T) {
	for stages := 1; stages <= 9; stages++ {
		for m := 1; m <= 20; m++ {
			want := float64((m + stages - 1) * 3 * 7)
			if got := OneFOneB(stages, slices.Repeat([]float64{7}, m)); got != want {
				t.Errorf("%d stages, %d microbatches: %v, want %v", stages, m, got, want)
			}
		}
	}
}

// TestLongestPath compares with the longest of all paths through the passes, each
// path walked by itself.
func TestLongestPath(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		stages, forward := 1+r.IntN(4), make([]float64, 1+r.IntN(5))
		for i := range forward {
			forward[i] = float64(r.IntN(9))
		}
		want := longestPath(stages, forward)
		if got := OneFOneB(stages, forward); got != want {
			t.Fatalf("OneFOneB(%d, %v) = %v, but the longest path takes %v", stages, forward, got, want)
		}
	}
}

// pass is one pass of one microbatch in one stage.
type pass struct {
	stage, microbatch int
	backward          bool
}

// longestPath derives the order of a stage from another rule than the simulator:
// a stage may hold stages-s microbatches, and goes forward whenever it may.
func longestPath(stages int, forward []float64) float64 {
	before := map[pass]pass{} // the pass that the same stage runs before
	for s := range stages {
		var last pass
		for f, b := 0, 0; b < len(forward); {
			next := pass{s, b, true}
			if f < len(forward) && f-b < stages-s {
				next = pass{s, f, false}
				f++
			} else {
				b++
			}
			if f+b > 1 {
				before[next] = last
			}
			last = next
		}
	}
	var end func(pass) float64
	end = func(p pass) float64 {
		begin := 0.0
		if q, ok := before[p]; ok {
			begin = end(q)
		}
		switch {
		case !p.backward && p.stage > 0:
			begin = max(begin, end(pass{p.stage - 1, p.microbatch, false}))
		case p.backward && p.stage < stages-1:
			begin = max(begin, end(pass{p.stage + 1, p.microbatch, true}))
		}
		if p.backward {
			return begin + 2*forward[p.microbatch]
		}
		return begin + forward[p.microbatch]
	}
	longest := 0.0
	for s := range stages {
		longest = max(longest, end(pass{s, len(forward) - 1, true}))
	}
	return longest
}

func ExampleOneFOneB() {
	// Four stages and eight microbatches that take 1 forward and 2 backward: each
	// stage works for 24, and the pipeline fills and drains for 3·3.
	fmt.Println(OneFOneB(4, []float64{1, 1, 1, 1, 1, 1, 1, 1}))
	// The same work, unevenly cut.
	fmt.Println(OneFOneB(4, []float64{3, 1, 1, 1, 0.5, 0.5, 0.5, 0.5}))
	// Output:
	// 33
	// 49.5
}
