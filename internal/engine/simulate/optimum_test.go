package simulate

import (
	"math/rand/v2"
	"testing"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/engine/solve"
)

// TestNearOptimum compares small pipelines of unit partitions with the solver's optimum. On four
// sources, of which the first are started without knowing anything, the policy may take up to twice as long;
// on average it has to be within 15 %.
func TestNearOptimum(t *testing.T) {
	sum, runs := 0.0, 60
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 3))
		p := solve.Problem{Sources: 4, Slots: []int{2 + r.IntN(2), 1 + r.IntN(2)}, Buffer: 3 + r.IntN(5), Pinned: r.IntN(2) == 0}
		p.Operators = []solve.Operator{{Ticks: 1 + r.IntN(4), Gives: 1 + r.IntN(3)}, {Ticks: 1 + r.IntN(2), Gives: 1}, {Ticks: 1 + r.IntN(2), Resource: 1}}
		w := Workload{Sources: p.Sources, Declared: int64(p.Operators[0].Gives) * Partition, Resources: slots(schedule.Amount(p.Slots[0]), schedule.Amount(p.Slots[1]))}
		for _, op := range p.Operators {
			w.Stages = append(w.Stages, Stage{Needs: [][]schedule.Amount{cpu(1), gpu(1)}[op.Resource], Declared: part, Cost: fixed(float64(op.Ticks), op.Gives, Partition)})
		}
		res, best := ours(w, int64(p.Buffer)*Partition, p.Pinned), p.Solve()
		if !best.Optimum {
			t.Fatalf("seed %d: the solver had to cut", seed)
		}
		ratio := res.Time.Seconds() / float64(best.Ticks)
		if res.Stuck || ratio < 1 || ratio > 2 {
			t.Errorf("seed %d: %g s, optimum %d, stuck %t: %+v", seed, res.Time.Seconds(), best.Ticks, res.Stuck, p)
		}
		sum += ratio
	}
	t.Logf("on average %.3f times the optimum", sum/float64(runs))
	if sum > 1.15*float64(runs) {
		t.Errorf("on average %.3f times the optimum", sum/float64(runs))
	}
}
