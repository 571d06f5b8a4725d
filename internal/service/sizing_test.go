package service

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/jobspec"
)

// mixed is a job of three sources with stages.
func mixed(t *testing.T, stages string) *jobspec.Job {
	t.Helper()
	job, findings := jobspec.Parse("j.yaml", []byte(`
name: j
sources: [{name: a, files: /a/*.jsonl}, {name: b, files: /b/*.jsonl}, {name: c, files: /c/*.jsonl}]
batch: {sequence_length: 16, sequences: 1}
mix: {stages: [`+stages+`]}
`), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return job
}

// TestPeaks: a few looks at a schedule find what looking at each step finds, but for what rounding moves.
func TestPeaks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var stages []string
		from := 0
		for at := range 1 + rng.IntN(4) {
			stage := fmt.Sprintf("{from: %d, weights: {a: %d, b: %d, c: 1}", from, rng.IntN(3), rng.IntN(3))
			from += 1 + rng.IntN(30)
			if over := rng.IntN(60); at > 0 && over > 0 {
				stage += fmt.Sprintf(", ramp: %s, over: %d", []string{"linear", "cosine"}[rng.IntN(2)], over)
				from += over
			}
			stages = append(stages, stage+"}")
		}
		job, steps := mixed(t, strings.Join(stages, ", ")), 1+rng.Int64N(150)
		shares, by, static := peaks(job, steps)
		schedule := compile.Schedule(job)
		most, same, seen := make([]float64, 3), []bool{true, true, true}, map[float64]bool{}
		for step := range steps {
			for i, x := range schedule.Shares(step) {
				part := float64(x) / (1 << mix.Bits)
				most[i], same[i] = max(most[i], part), same[i] && x == schedule.Shares(0)[i]
				seen[part] = true
			}
		}
		for i := range most {
			if math.Abs(shares[i]-most[i]) > 1e-8 || len(by[i]) != int(min(steps, looks)) || slices.ContainsFunc(by[i], func(x float64) bool { return !seen[x] }) {
				t.Fatalf("seed %d, %d steps of %v: source %d has at most %v, want %v; in phases %v", seed, steps, stages, i, shares[i], most[i], by[i])
			}
		}
		if !reflect.DeepEqual(static, same) {
			t.Fatalf("seed %d, %d steps of %v: the same in all %v, want %v", seed, steps, stages, static, same)
		}
	}
}

// TestPeaksFar: as many steps as there are take no longer.
func TestPeaksFar(t *testing.T) {
	t.Parallel()
	job := mixed(t, "{weights: {a: 1, b: 1}}, {from: 1000000000000, ramp: linear, over: 1000000000, weights: {a: 1, c: 3}}, {from: 2000000000000, weights: {b: 1}}")
	shares, by, static := peaks(job, math.MaxInt64)
	if want := []float64{0.5, 1, 0.75}; !reflect.DeepEqual(shares, want) || len(by[0]) != looks || by[1][looks-1] != 1 || slices.Contains(static, true) {
		t.Errorf("at most %v, want %v; in phases %v; the same in all %v", shares, want, by, static)
	}
}
