package assemble

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
)

// twoRows is a row of two documents with room for three tokens, and one that a
// single document fills. The expectations below were written by hand from the
// rules: Megatron's from GPTDataset and the batch keys of pretrain_gpt, its
// packed ones from data_schedule and Transformer Engine's order of slices, HF's
// from transformers' DataCollatorWithFlattening, torchtitan's from its text
// collator, MaxText's from its ShiftData.
var twoRows = []batch.Row{
	{Segments: [][]int32{{11, 12, 13}, {21, 22}}},
	{Segments: [][]int32{{31, 32, 33, 34, 35, 36, 37, 38}}},
}

// paddedRows have documents whose padding a multiple of 4 shows, and a rest.
var paddedRows = []batch.Row{
	{Segments: [][]int32{{11, 12, 13}, {21}}},
	{Segments: [][]int32{{31, 32, 33, 34, 35, 36}}},
}

// maskedRows are twoRows with tokens 12, 34, 35 and 38 without loss.
var maskedRows = []batch.Row{
	{Segments: twoRows[0].Segments, Masked: [][]int32{{1, 2}}},
	{Segments: twoRows[1].Segments, Masked: [][]int32{{3, 5, 7, 8}}},
}

const wantSegments = `
	cu_seqlens int32 [6]: 0 3 4 4 10 10
	cu_seqlens_padded int32 [6]: 0 4 8 12 20 24
	max_seqlen int32 [1]: 8`

const wantBounds = `
	cu_seqlens int32 [2 16]: 0 3 5 8 8 8 8 8 8 8 8 8 8 8 8 8 0 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8
	max_seqlen int32 [2]: 3 8`

func TestGolden(t *testing.T) {
	megatron := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 8, PadID: 9, CP: 1, PP: 1, Packed: true}
	hf := Layout{Format: HF, CPSlicing: Zigzag, SequenceLength: 8, PadID: 9, CP: 1, PP: 1, Packed: true}
	thd := Layout{Format: MegatronTHD, CPSlicing: Zigzag, SequenceLength: 12, CP: 1, PP: 1, Packed: true, DocumentMultiple: 4}
	titan := Layout{Format: Torchtitan, CPSlicing: Whole, SequenceLength: 8, PadID: 9, CP: 1, PP: 1, Packed: true}
	jax := Layout{Format: JAX, CPSlicing: Zigzag, SequenceLength: 8, PadID: 9, CP: 1, PP: 1, Packed: true}
	with := func(l Layout, cpSlicing string, cp, pp int) Layout {
		l.CPSlicing, l.CP, l.PP = cpSlicing, cp, pp
		return l
	}
	unpacked := megatron
	unpacked.Packed = false
	for _, test := range []struct {
		name   string
		layout Layout
		rows   []batch.Row
		cp, pp int
		want   string
	}{
		{"megatron", megatron, twoRows, 0, 0, `
	tokens int64 [2 8]: 11 12 13 21 22 9 9 9 31 32 33 34 35 36 37 38
	position_ids int64 [2 8]: 0 1 2 0 1 0 0 0 0 1 2 3 4 5 6 7
	labels int64 [2 8]: 12 13 0 22 0 0 0 0 32 33 34 35 36 37 38 0
	loss_mask float32 [2 8]: 1 1 0 1 0 0 0 0 1 1 1 1 1 1 1 0` + wantBounds},
		{"megatron, tokens without loss", with(megatron, Zigzag, 1, 2), maskedRows, 0, 1, `
	labels int64 [2 8]: 0 13 0 22 0 0 0 0 32 33 0 0 36 37 0 0
	loss_mask float32 [2 8]: 0 1 0 1 0 0 0 0 1 1 0 0 1 1 0 0` + wantBounds},
		{"torchtitan, tokens without loss", with(titan, Whole, 1, 1), maskedRows[:1], 0, 0, `
	input int64 [8]: 11 12 13 21 22 9 9 9
	positions int64 [8]: 0 1 2 0 1 0 1 2
	labels int64 [8]: -100 13 -100 22 -100 -100 -100 -100`},
		{"hf, tokens without loss", with(hf, Zigzag, 1, 2), maskedRows, 0, 1, `
	labels int64 [1 13]: -100 -100 13 -100 22 -100 32 33 -100 -100 36 37 -100
	cu_seq_lens_q int32 [4]: 0 3 5 13
	cu_seq_lens_k int32 [4]: 0 3 5 13
	max_length_q int32 []: 8
	max_length_k int32 []: 8`},
		{"megatron zigzag rank 0", with(megatron, Zigzag, 2, 1), twoRows, 0, 0, `
	tokens int64 [2 4]: 11 12 9 9 31 32 37 38
	position_ids int64 [2 4]: 0 1 0 0 0 1 6 7
	labels int64 [2 4]: 12 13 0 0 32 33 38 0
	loss_mask float32 [2 4]: 1 1 0 0 1 1 1 0` + wantBounds},
		{"megatron zigzag rank 1", with(megatron, Zigzag, 2, 1), twoRows, 1, 0, `
	tokens int64 [2 4]: 13 21 22 9 33 34 35 36
	position_ids int64 [2 4]: 2 0 1 0 2 3 4 5
	labels int64 [2 4]: 0 22 0 0 34 35 36 37
	loss_mask float32 [2 4]: 0 1 0 0 1 1 1 1` + wantBounds},
		{"megatron contiguous rank 1", with(megatron, Contiguous, 2, 1), twoRows, 1, 0, `
	tokens int64 [2 4]: 22 9 9 9 35 36 37 38
	position_ids int64 [2 4]: 1 0 0 0 4 5 6 7
	labels int64 [2 4]: 0 0 0 0 36 37 38 0
	loss_mask float32 [2 4]: 0 0 0 0 1 1 1 0` + wantBounds},
		{"megatron uncut rank 1", with(megatron, Whole, 2, 3), twoRows, 1, 2, `
	labels int64 [2 8]: 12 13 0 22 0 0 0 0 32 33 34 35 36 37 38 0
	loss_mask float32 [2 8]: 1 1 0 1 0 0 0 0 1 1 1 1 1 1 1 0` + wantBounds},
		{"megatron first stage", with(megatron, Zigzag, 1, 3), twoRows, 0, 0, `
	tokens int64 [2 8]: 11 12 13 21 22 9 9 9 31 32 33 34 35 36 37 38
	position_ids int64 [2 8]: 0 1 2 0 1 0 0 0 0 1 2 3 4 5 6 7` + wantBounds},
		{"megatron middle stage", with(megatron, Zigzag, 1, 3), twoRows, 0, 1, wantBounds},
		{"megatron not packed", unpacked, twoRows[1:], 0, 0, `
	tokens int64 [1 8]: 31 32 33 34 35 36 37 38
	position_ids int64 [1 8]: 0 1 2 3 4 5 6 7
	labels int64 [1 8]: 32 33 34 35 36 37 38 0
	loss_mask float32 [1 8]: 1 1 1 1 1 1 1 0`},
		{"megatron not packed, middle stage", with(unpacked, Zigzag, 1, 3), twoRows[1:], 0, 1, ""},
		{"megatron empty row", megatron, []batch.Row{{}}, 0, 0, `
	tokens int64 [1 8]: 9 9 9 9 9 9 9 9
	position_ids int64 [1 8]: 0 0 0 0 0 0 0 0
	labels int64 [1 8]: 0 0 0 0 0 0 0 0
	loss_mask float32 [1 8]: 0 0 0 0 0 0 0 0
	cu_seqlens int32 [1 16]: 0 8 8 8 8 8 8 8 8 8 8 8 8 8 8 8
	max_seqlen int32 [1]: 8`},
		{"thd", thd, paddedRows, 0, 0, `
	tokens int64 [24]: 11 12 13 0 21 0 0 0 0 0 0 0 31 32 33 34 35 36 0 0 0 0 0 0
	position_ids int64 [24]: 0 1 2 0 0 0 0 0 0 0 0 0 0 1 2 3 4 5 0 0 0 0 0 0
	labels int64 [24]: 12 13 0 0 0 0 0 0 0 0 0 0 32 33 34 35 36 0 0 0 0 0 0 0
	loss_mask float32 [24]: 1 1 0 0 0 0 0 0 0 0 0 0 1 1 1 1 1 0 0 0 0 0 0 0` + wantSegments},
		{"thd rank 0", with(thd, Zigzag, 2, 1), paddedRows, 0, 0, `
	tokens int64 [12]: 11 0 21 0 0 0 31 32 0 0 0 0
	position_ids int64 [12]: 0 0 0 0 0 0 0 1 0 0 0 0
	labels int64 [12]: 12 0 0 0 0 0 32 33 0 0 0 0
	loss_mask float32 [12]: 1 0 0 0 0 0 1 1 0 0 0 0` + wantSegments},
		{"thd rank 1", with(thd, Zigzag, 2, 1), paddedRows, 1, 0, `
	tokens int64 [12]: 12 13 0 0 0 0 33 34 35 36 0 0
	position_ids int64 [12]: 1 2 0 0 0 0 2 3 4 5 0 0
	labels int64 [12]: 13 0 0 0 0 0 34 35 36 0 0 0
	loss_mask float32 [12]: 1 0 0 0 0 0 1 1 1 0 0 0` + wantSegments},
		{"thd middle stage", with(thd, Zigzag, 2, 3), paddedRows, 1, 1, wantSegments},
		{"thd without any document", thd, []batch.Row{{}}, 0, 0, `
	tokens int64 [12]: 0 0 0 0 0 0 0 0 0 0 0 0
	position_ids int64 [12]: 0 0 0 0 0 0 0 0 0 0 0 0
	labels int64 [12]: 0 0 0 0 0 0 0 0 0 0 0 0
	loss_mask float32 [12]: 0 0 0 0 0 0 0 0 0 0 0 0
	cu_seqlens int32 [2]: 0 0
	cu_seqlens_padded int32 [2]: 0 12
	max_seqlen int32 [1]: 12`},
		{"torchtitan, middle stage", with(titan, Whole, 2, 3), twoRows, 1, 1, `
	input int64 [16]: 11 12 13 21 22 9 9 9 31 32 33 34 35 36 37 38
	positions int64 [16]: 0 1 2 0 1 0 1 2 0 1 2 3 4 5 6 7
	labels int64 [16]: 12 13 -100 22 -100 -100 -100 -100 32 33 34 35 36 37 38 -100`},
		{"jax", jax, twoRows, 0, 0, `
	inputs int32 [2 8]: 11 12 13 21 22 9 9 9 31 32 33 34 35 36 37 38
	inputs_position int32 [2 8]: 0 1 2 0 1 0 0 0 0 1 2 3 4 5 6 7
	inputs_segmentation int32 [2 8]: 1 1 1 2 2 0 0 0 1 1 1 1 1 1 1 1
	targets int32 [2 8]: 12 13 0 22 0 0 0 0 32 33 34 35 36 37 38 0
	targets_position int32 [2 8]: 0 1 2 0 1 0 0 0 0 1 2 3 4 5 6 7
	targets_segmentation int32 [2 8]: 1 1 0 2 0 0 0 0 1 1 1 1 1 1 1 0`},
		{"jax zigzag rank 1", with(jax, Zigzag, 2, 1), twoRows, 1, 0, `
	inputs int32 [2 4]: 13 21 22 9 33 34 35 36
	inputs_position int32 [2 4]: 2 0 1 0 2 3 4 5
	inputs_segmentation int32 [2 4]: 1 2 2 0 1 1 1 1
	targets int32 [2 4]: 0 22 0 0 34 35 36 37
	targets_position int32 [2 4]: 2 0 1 0 2 3 4 5
	targets_segmentation int32 [2 4]: 0 2 0 0 1 1 1 1`},
		{"hf", hf, twoRows, 0, 0, `
	input_ids int64 [1 13]: 11 12 13 21 22 31 32 33 34 35 36 37 38
	position_ids int64 [1 13]: 0 1 2 0 1 0 1 2 3 4 5 6 7
	labels int64 [1 13]: -100 12 13 -100 22 -100 32 33 34 35 36 37 38
	cu_seq_lens_q int32 [4]: 0 3 5 13
	cu_seq_lens_k int32 [4]: 0 3 5 13
	max_length_q int32 []: 8
	max_length_k int32 []: 8`},
		{"hf zigzag rank 0", with(hf, Zigzag, 2, 1), twoRows, 0, 0, `
	input_ids int64 [1 8]: 11 12 13 21 38 9 9 9
	position_ids int64 [1 8]: 0 1 2 0 7 0 1 2
	labels int64 [1 8]: -100 12 13 -100 38 -100 -100 -100
	shift_labels int64 [1 8]: 12 13 -100 22 -100 -100 -100 -100
	cu_seq_lens_q int32 [5]: 0 3 5 13 16
	cu_seq_lens_k int32 [5]: 0 3 5 13 16
	max_length_q int32 []: 8
	max_length_k int32 []: 8`},
		{"hf zigzag rank 1", with(hf, Zigzag, 2, 1), twoRows, 1, 0, `
	input_ids int64 [1 8]: 22 31 32 33 34 35 36 37
	position_ids int64 [1 8]: 1 0 1 2 3 4 5 6
	labels int64 [1 8]: 22 -100 32 33 34 35 36 37
	shift_labels int64 [1 8]: -100 32 33 34 35 36 37 38
	cu_seq_lens_q int32 [5]: 0 3 5 13 16
	cu_seq_lens_k int32 [5]: 0 3 5 13 16
	max_length_q int32 []: 8
	max_length_k int32 []: 8`},
		{"hf contiguous rank 1, last stage", with(hf, Contiguous, 2, 2), twoRows, 1, 1, `
	labels int64 [1 7]: 33 34 35 36 37 38 -100
	shift_labels int64 [1 7]: 34 35 36 37 38 -100 -100
	cu_seq_lens_q int32 [5]: 0 3 5 13 14
	cu_seq_lens_k int32 [5]: 0 3 5 13 14
	max_length_q int32 []: 8
	max_length_k int32 []: 8`},
		{"hf uncut, first stage", with(hf, Whole, 2, 2), twoRows[:1], 1, 0, `
	input_ids int64 [1 8]: 11 12 13 21 22 9 9 9
	position_ids int64 [1 8]: 0 1 2 0 1 0 1 2
	cu_seq_lens_q int32 [4]: 0 3 5 8
	cu_seq_lens_k int32 [4]: 0 3 5 8
	max_length_q int32 []: 3
	max_length_k int32 []: 3`},
		{"hf without any document", hf, []batch.Row{{}, {}}, 0, 0, `
	input_ids int64 [1 1]: 9
	position_ids int64 [1 1]: 0
	labels int64 [1 1]: -100
	cu_seq_lens_q int32 [2]: 0 1
	cu_seq_lens_k int32 [2]: 0 1
	max_length_q int32 []: 1
	max_length_k int32 []: 1`},
	} {
		tensors, err := test.layout.Microbatch(test.rows, test.cp, test.pp)
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
		} else if got := render(tensors); got != test.want {
			t.Errorf("%s:\ngot%s\nwant%s", test.name, got, test.want)
		}
	}
}

// render returns tensors as text, one line each.
func render(tensors []batch.Tensor) string {
	var text strings.Builder
	for _, t := range tensors {
		if err := t.Check(); err != nil {
			return err.Error()
		}
		fmt.Fprintf(&text, "\n\t%s %s %v:", t.Name, t.DType, t.Shape)
		for i := range len(t.Data) / t.DType.Size() {
			text.WriteString(" " + t.Element(i))
		}
	}
	return text.String()
}

// The width of cu_seqlens is the power of two that fits the fullest row.
func TestBoundsWidth(t *testing.T) {
	l := Layout{Format: Megatron, CPSlicing: Whole, SequenceLength: 64, CP: 1, PP: 3, Packed: true}
	for segments, want := range map[int]int{0: 16, 1: 16, 14: 16, 15: 32, 30: 32, 31: 64, 62: 64, 63: 128, 64: 128} {
		row := batch.Row{}
		for range segments {
			row.Segments = append(row.Segments, []int32{1})
		}
		tensors, err := l.Microbatch([]batch.Row{{}, row}, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := tensors[0].Shape[1]; got != want {
			t.Errorf("%d segments: cu_seqlens is %d wide, want %d", segments, got, want)
		}
		if got := tensors[0].Element(want + segments); got != fmt.Sprint(segments) {
			t.Errorf("%d segments: the last document ends at %s", segments, got)
		}
		if last := tensors[0].Element(2*want - 1); last != "64" {
			t.Errorf("%d segments: the last bound is %s, want 64", segments, last)
		}
	}
}

// Where rows have several widths, the ranks of all stages get how many share this one.
func TestRanksOfRow(t *testing.T) {
	l := Layout{Format: MegatronTHD, CPSlicing: Zigzag, SequenceLength: 8, CP: 4, PP: 3, Packed: true, Split: true}
	for _, width := range []int{1, 2, 4} {
		over := l.Over(width)
		over.DocumentMultiple = 2 * width
		for cp := range width {
			for pp := range l.PP {
				tensors, err := over.Microbatch(twoRows[:1], cp, pp)
				if err != nil {
					t.Fatal(err)
				}
				if ranks := find(tensors, "local_cp_size"); ranks == nil || ranks.DType != batch.Int32 || len(ranks.Data) != 4 || ranks.Element(0) != fmt.Sprint(width) {
					t.Errorf("cp %d pp %d of %d ranks get %v", cp, pp, width, ranks)
				}
			}
		}
	}
	l.CP, l.Split = 1, false
	if tensors, err := l.Microbatch(twoRows, 0, 0); err != nil || find(tensors, "local_cp_size") != nil {
		t.Errorf("rows of one width: %v, %v", tensors, err)
	}
}

func ExampleLayout_Microbatch() {
	layout := Layout{Format: HF, CPSlicing: Whole, SequenceLength: 8, CP: 1, PP: 1, Packed: true}
	rows := []batch.Row{{Segments: [][]int32{{11, 12, 13}, {21, 22}}}}
	tensors, err := layout.Microbatch(rows, 0, 0)
	if err != nil {
		fmt.Println(err)
	}
	for _, t := range tensors[:3] {
		fmt.Print(t.Name, t.Shape)
		for i := range t.Shape[1] {
			fmt.Print(" ", t.Element(i))
		}
		fmt.Println()
	}
	// Output:
	// input_ids[1 5] 11 12 13 21 22
	// position_ids[1 5] 0 1 2 0 1
	// labels[1 5] -100 12 13 -100 22
}
