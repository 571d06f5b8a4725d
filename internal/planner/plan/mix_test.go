package plan_test

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/testdata"
)

// published reads the recipes of published mixtures: weights by source.
func published(t testing.TB) map[string][]float64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testdata.Dir(t), "mixtures", "mixtures.json"))
	if err != nil {
		t.Fatal(err)
	}
	var recipes []struct {
		Name    string
		Weights map[string]float64
	}
	if err := json.Unmarshal(data, &recipes); err != nil {
		t.Fatal(err)
	}
	all := map[string][]float64{}
	for _, r := range recipes {
		var names []string
		for name := range r.Weights {
			names = append(names, name)
		}
		sort.Strings(names)
		for _, name := range names {
			all[r.Name] = append(all[r.Name], r.Weights[name])
		}
	}
	return all
}

// lognormal sources: documents of a few hundred to a few thousand tokens, cut at
// the length of a row, every source with a mean of its own.
type lognormal struct {
	seed   uint64
	most   int32
	median []float64
}

func newLognormal(seed uint64, sources int, most int32) lognormal {
	rng := rand.New(rand.NewPCG(seed, 0))
	l := lognormal{seed: seed, most: most}
	for range sources {
		l.median = append(l.median, math.Exp(4.5+3.5*rng.Float64()))
	}
	return l
}

func (l lognormal) lengths(source int32, seq int64) []int32 {
	rng := rand.New(rand.NewPCG(l.seed, uint64(source)<<40+uint64(seq)))
	lengths := make([]int32, 200)
	for i := range lengths {
		n := l.median[source] * math.Exp(1.1*rng.NormFloat64())
		lengths[i] = int32(min(max(n, 1), float64(l.most)))
	}
	return lengths
}

// ledger follows a core's draws against the schedule in exact numbers.
type ledger struct {
	share    []*big.Rat
	consumed []int64
	longest  []int32 // sample drawn so far
	total    int64
}

func newLedger(weights []float64) ledger {
	l := ledger{consumed: make([]int64, len(weights)), longest: make([]int32, len(weights))}
	sum := new(big.Rat)
	for _, w := range weights {
		sum.Add(sum, new(big.Rat).SetFloat64(w))
	}
	for _, w := range weights {
		l.share = append(l.share, new(big.Rat).Quo(new(big.Rat).SetFloat64(w), sum))
	}
	return l
}

// lag is how many tokens a source is behind its share of all tokens drawn.
func (l *ledger) lag(source int) float64 {
	r := new(big.Rat).Mul(l.share[source], new(big.Rat).SetInt64(l.total))
	lag, _ := r.Sub(r, new(big.Rat).SetInt64(l.consumed[source])).Float64()
	return lag
}

// draws runs a core and gives the ledger of each step to visit.
func draws(t testing.TB, weights []float64, steps int64, rows int, length int32, visit func(step int64, l *ledger)) {
	t.Helper()
	src := newLognormal(uint64(len(weights)), len(weights), length)
	cfg := plan.Config{
		Schedule: mix.NewSchedule([]mix.Stage{{Weights: weights}}), SequenceLength: length, Rows: rows,
		Packing: true, Ahead: 1, Window: 1,
	}
	for range weights {
		cfg.Sources = append(cfg.Sources, plan.Source{Name: "s", Blocks: 1 << 40})
	}
	core, l := plan.New(cfg), newLedger(weights)
	effects := core.Start()
	for done := int64(0); done < steps; {
		var next []plan.Effect
		for _, e := range effects {
			switch e := e.(type) {
			case plan.Want:
				next = append(next, core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: src.lengths(e.Source, e.Seq)})...)
			case plan.Publish:
				for i, n := range e.Step.Drawn {
					l.consumed[i] += n
					l.total += n
				}
				for _, r := range append(e.Step.Samples(), e.Step.After.Carry...) {
					l.longest[r.Source] = max(l.longest[r.Source], r.Length)
				}
				visit(e.Step.Step, &l)
				done++
				next = append(next, core.Apply(plan.Acked{Step: done})...)
			case plan.Fail:
				t.Fatal(e.Err)
			}
		}
		if effects = next; len(effects) == 0 && done < steps {
			t.Fatalf("the core stands still after %d steps", done)
		}
	}
}

// TestMixLaw: at the end of every step no source is ahead of its share of the
// tokens by more than the longest of its own samples so far. The lag is bounded,
// as all lags sum to zero: by one such sample of every other source together; it
// is held here to `most` rows, and does not grow. A token is allowed for the
// rounding of shares (2^-32) and of saved deficits (2^-13 a step).
func TestMixLaw(t *testing.T) {
	const (
		rows   = 8
		length = 4096
		most   = 1.5
	)
	steps := int64(1000)
	if testing.Short() {
		steps = 200
	}
	for name, weights := range published(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ahead, early, late float64
			draws(t, weights, steps, rows, length, func(step int64, l *ledger) {
				if step > 100 && step%7 > 0 {
					return // exact numbers take their time
				}
				for i := range weights {
					lag := l.lag(i)
					longest := float64(l.longest[i])
					ahead = max(ahead, -lag/max(longest, 1))
					if -lag > longest+1 {
						t.Fatalf("step %d: source %d of weight %g is %.1f tokens ahead", step, i, weights[i], -lag)
					}
					if step < steps/2 {
						early = max(early, lag)
					} else {
						late = max(late, lag)
					}
				}
			})
			t.Logf("%d sources: at most %.2f of its own samples ahead; lag at most %.0f tokens in the first half, %.0f in the second", len(weights), ahead, early, late)
			if early > most*length || late > most*length {
				t.Errorf("the lag is %.0f tokens, then %.0f; it should stay below %.1f rows of %d", early, late, most, length)
			}
		})
	}
}
