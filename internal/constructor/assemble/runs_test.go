package assemble

import (
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
)

// What follows from where documents lie travels as a few runs, however long these are.
func TestRuns(t *testing.T) {
	l := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 16, CP: 2, PP: 1, Packed: true}
	rows := []batch.Row{
		{Segments: [][]int32{make([]int32, 5), make([]int32, 6)}, Images: []batch.Image{{Document: 1, At: 3, Tokens: 2}}},
		{Segments: [][]int32{make([]int32, 16)}},
	}
	_, wire, err := l.Append(nil, rows, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Rank 0 of 2 has [0, 4) and [12, 16) of each row.
	want := map[string][][3]int32{
		"position_ids": {{4, 0, 1}, {4, 0, 0}, {4, 0, 1}, {4, 12, 1}},
		"loss_mask":    {{4, 1, 0}, {4, 0, 0}, {7, 1, 0}, {1, 0, 0}},
	}
	for _, w := range wire {
		if runs := want[w.Name]; runs != nil && !slices.Equal(sent(t, w), runs) {
			t.Errorf("%s travels as %v, want %v", w.Name, sent(t, w), runs)
		}
	}
	_, wire, err = l.Append(nil, rows, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Rank 1 has [4, 12): the end of the first document, the second with its image, padding.
	mask, runs := sent(t, wire[3]), [][3]int32{{1, 0, 0}, {2, 1, 0}, {2, 0, 0}, {1, 1, 0}, {2, 0, 0}, {8, 1, 0}}
	if !slices.Equal(mask, runs) {
		t.Errorf("rank 1: loss_mask travels as %v, want %v", mask, runs)
	}
}

// sent returns length, first and step of each run of a tensor.
func sent(t *testing.T, w batch.WireTensor) (runs [][3]int32) {
	t.Helper()
	if w.Wire != batch.AsRuns {
		t.Fatalf("%s travels as %q", w.Name, w.Wire)
	}
	for _, r := range batch.Elements[batch.Run](w.Data) {
		runs = append(runs, [3]int32{r.Length, r.First, r.Step})
	}
	return runs
}
