package strategy_test

import (
	"testing"

	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// TestCostsOfLengths: where samples have no images, a model is asked once for each
// length, another one in the next step again; where they have, for each sample. What
// rows cost is the same.
func TestCostsOfLengths(t *testing.T) {
	const length = 64
	var runner strategy.Runner
	for k, images := range []bool{false, true, false} {
		b := draw(t, uint64(k), 256, length, 97, true)
		if !images {
			b.buf.ImageOffsets, b.buf.Patches = nil, nil
		}
		asked := 0
		units := func(s cost.Sample) int64 { return int64(k+1)*s.Tokens*s.Tokens + s.Patches }
		m := cost.Func(func(s cost.Sample) int64 { asked++; return units(s) })
		r, err := runner.Run(text(m, 1, strategy.Balance{}), b.input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1}, 1))
		if err != nil {
			t.Fatal(err)
		}
		total, placed := int64(0), 0
		for i, row := range b.rowOf {
			if row >= 0 {
				placed++
				total += units(cost.Sample{Tokens: int64(b.buf.Tokens[i]), Patches: b.buf.PatchesOf(i)})
			}
		}
		if got := r.Modules[0].Buckets.Total; got != total {
			t.Errorf("images %v: rows cost %d, not %d", images, got, total)
		}
		if images && asked != placed || !images && asked > length {
			t.Errorf("images %v: the model was asked %d times for %d samples of up to %d tokens", images, asked, placed, length)
		}
	}
}
