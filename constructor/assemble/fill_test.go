package assemble

import (
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
)

// Positions travel in 16 bits as long as the last one of a row fits there, and
// arrive as what they are on both sides of that limit.
func TestPositionsOnTheWire(t *testing.T) {
	for _, test := range []struct {
		length int
		wire   batch.DType
	}{{1 << 16, batch.Uint16}, {1<<16 + 1, batch.Int32}} {
		l := Layout{Format: Megatron, CPSlicing: Whole, SequenceLength: test.length, CP: 1, PP: 1}
		rows := []batch.Row{{Segments: [][]int32{make([]int32, test.length)}}}
		_, wire, err := l.Append(nil, rows, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if wire[1].Name != "position_ids" || wire[1].Wire != test.wire {
			t.Fatalf("rows of %d: %s travels as %s, want position_ids as %s", test.length, wire[1].Name, wire[1].Wire, test.wire)
		}
		_, tensors := batch.Widen(nil, wire)
		for i := range test.length {
			if got := integer(tensors[1], i); got != int64(i) {
				t.Fatalf("rows of %d: position %d arrives as %d", test.length, i, got)
			}
		}
	}
}
