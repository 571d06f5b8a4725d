package assemble

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
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

// Labels as copies of the ids are those that fill writes, however rows are cut.
func TestCopies(t *testing.T) {
	forRandom(t, 200, func(t *testing.T, _ *rand.Rand, l Layout, rows []batch.Row) {
		l.PP = 1
		for cp := range l.CP {
			p, err := l.layOut(rows, cp, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, tensors := p.write(nil)
			copied := 0
			for i, c := range p.columns() {
				if c.copies == nil {
					continue
				}
				w := tensors[i]
				w.Wire, w.Data = batch.AsCopies, batch.RunBytes(c.copies(p))
				both := []batch.WireTensor{tensors[0], w, tensors[i]}
				if err := errors.Join(w.Check(), batch.CheckCopies(both)); err != nil {
					t.Fatal(err)
				}
				if _, got := batch.Widen(nil, both); !bytes.Equal(got[1].Data, got[2].Data) {
					t.Errorf("cp %d: %s differs: runs %v", cp, c.Name, c.copies(p))
				}
				copied++
			}
			if copied == 0 {
				t.Error("no label is a copy")
			}
		}
	})
}

// Labels travel as copies where their client takes these, they are few, and their rank has the ids.
func TestCopiesTravel(t *testing.T) {
	long := []batch.Row{{Segments: [][]int32{make([]int32, 200), make([]int32, 300)}}, {Segments: [][]int32{make([]int32, 1)}}}
	for _, row := range long {
		for _, doc := range row.Segments {
			for i := range doc {
				doc[i] = int32(7*i + len(doc))
			}
		}
	}
	short := []batch.Row{{Segments: [][]int32{{1, 2, 3}, {4, 5}, {6, 7, 8, 9}}}}
	for _, format := range Formats() {
		l := Layout{Format: format, CPSlicing: Whole, SequenceLength: 512, CP: 1, PP: 1, Packed: true, Copies: true}
		if wire := wiresOf(t, l, long, 0); !slices.Contains(wire, batch.AsCopies) {
			t.Errorf("%s: long documents travel as %q", format, wire)
		}
		with, wire, err := l.Append(nil, long, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		l.Copies = false
		if _, got := batch.Widen(nil, wire); !reflect.DeepEqual(got, microbatch(t, l, long, 0, 0)) {
			t.Errorf("%s: as copies, tensors differ", format)
		}
		if without, _, err := l.Append(nil, long, 0, 0); err != nil || len(without) < len(with)+4*450 {
			t.Errorf("%s: %d bytes with copies, %d without, %v", format, len(with), len(without), err)
		}
		l.Copies, l.SequenceLength = true, 9
		if wire := wiresOf(t, l, short, 0); slices.Contains(wire, batch.AsCopies) {
			t.Errorf("%s: short documents travel as %q", format, wire)
		}
	}
	last := Layout{Format: Megatron, CPSlicing: Whole, SequenceLength: 512, CP: 1, PP: 2, Packed: true, Copies: true}
	if wire := wiresOf(t, last, long, 1); slices.Contains(wire, batch.AsCopies) {
		t.Errorf("without ids, labels travel as %q", wire)
	}
}

func wiresOf(t *testing.T, l Layout, rows []batch.Row, pp int) (wires []batch.Wire) {
	t.Helper()
	_, tensors, err := l.Append(nil, rows, 0, pp)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range tensors {
		wires = append(wires, w.Wire)
	}
	return wires
}
