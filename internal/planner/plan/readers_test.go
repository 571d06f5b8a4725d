package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// TestReaders: readers that can do more at a time are asked for more blocks, each
// source's part of them, as far as they have memory; and plans are the same.
func TestReaders(t *testing.T) {
	for _, c := range []struct {
		name    string
		readers []plan.Reader
		most    []int64 // blocks asked for beyond the one that is drawn from, by source
	}{
		{"nothing is known of them", nil, []int64{1, 1}},
		{"one at a time", both(0, 1, 1<<20), []int64{1, 1}},
		{"eight at a time for both", both(0, 8, 1<<20), []int64{7, 3}},
		{"eight for each", both(1, 8, 1<<20), []int64{9, 9}},
		{"memory for 20 blocks", both(1, 8, 80e3), []int64{5, 5}}, // a quarter of them
		{"no memory", both(1, 8, 400), []int64{1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plans, most := readAhead(t, c.readers)
			if want, _ := readAhead(t, nil); !slices.Equal(plans, want) {
				t.Error("the plans depend on the readers")
			}
			if !slices.Equal(most, c.most) {
				t.Errorf("blocks ahead %v, want %v", most, c.most)
			}
		})
	}
}

// both are readers of two sources, of the second one in this group.
func both(group, blocks int, memory int64) []plan.Reader {
	r := plan.Reader{Blocks: blocks, Memory: memory}
	other := r
	other.Group = group
	return []plan.Reader{r, other}
}

// readAhead plans 40 steps of two sources, three parts of the first and one of the
// second, in blocks of 100 samples of 10 tokens. It returns the plans, and how many blocks
// beyond the one that was drawn from were asked for at most.
func readAhead(t *testing.T, readers []plan.Reader) (plans []string, most []int64) {
	core := plan.New(plan.Config{
		SequenceLength: 100, Rows: 4, Packing: true, Ahead: 1, Window: 1,
		Sources:  []plan.Source{{Name: "much", Blocks: 50}, {Name: "less", Blocks: 50}},
		Schedule: mix.NewSchedule([]mix.Stage{{Weights: []float64{3, 1}}}),
	})
	effects := append(core.Start(), core.Apply(plan.Readers{Of: readers})...)
	block := plan.BlockRead{Lengths: slices.Repeat([]int32{10}, 100), Bytes: 4000}
	asked, most := make([]int64, 2), make([]int64, 2)
	for len(plans) < 40 {
		if len(effects) == 0 {
			t.Fatalf("nothing happens after %d steps", len(plans))
		}
		e := effects[0]
		effects = effects[1:]
		switch e := e.(type) {
		case plan.Want:
			asked[e.Source] = max(asked[e.Source], e.Seq)
			block.Source, block.Seq = e.Source, e.Seq
			effects = append(effects, core.Apply(block)...)
		case plan.Publish:
			plans = append(plans, fmt.Sprint(e.Step.Rows, e.Step.After.Cursors))
			for i, cur := range e.Step.After.Cursors {
				most[i] = max(most[i], asked[i]-cur.Seq)
			}
			effects = append(effects, core.Apply(plan.Acked{Step: int64(len(plans))})...)
		}
	}
	return plans, most
}
