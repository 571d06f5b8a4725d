package assemble

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
)

// benchRows are four rows of 8192 tokens in documents of the given length, with
// a little padding at the end.
func benchRows(doc int) []batch.Row {
	rows := make([]batch.Row, 4)
	for i := range rows {
		for left := 8000; left > 0; left -= doc {
			rows[i].Segments = append(rows[i].Segments, make([]int32, min(doc, left)))
		}
	}
	return rows
}

func BenchmarkAppend(b *testing.B) {
	for _, format := range Formats() {
		for _, cp := range []int{1, 4} {
			for _, doc := range []int{50, 600, 8000} {
				b.Run(fmt.Sprintf("%s/cp=%d/doc=%d", format, cp, doc), func(b *testing.B) {
					l := Layout{Format: format, CPSlicing: Zigzag, SequenceLength: 8192, CP: cp, PP: 1, Packed: true}
					switch format {
					case MegatronTHD:
						l.DocumentMultiple, l.SequenceLength = l.multiple(), 10240 // room for their padding
					case Torchtitan:
						l.CPSlicing = Whole
					}
					rows := benchRows(doc)
					size, err := l.Size(rows, 0, 0)
					if err != nil {
						b.Fatal(err)
					}
					body := make([]byte, 0, size)
					b.SetBytes(int64(size))
					b.ReportAllocs()
					for b.Loop() {
						if _, _, err := l.Append(body, rows, 0, 0); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// BenchmarkMicrobatch pays for fresh memory each time.
func BenchmarkMicrobatch(b *testing.B) {
	l := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 8192, CP: 1, PP: 1, Packed: true}
	rows := benchRows(600)
	size, err := l.Size(rows, 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Microbatch(rows, 0, 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	l := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 8192, CP: 2, PP: 1, Packed: true}
	rows := benchRows(600)
	var all [][]batch.Tensor
	size := 0
	for cp := range l.CP {
		tensors, err := l.Microbatch(rows, cp, 0)
		if err != nil {
			b.Fatal(err)
		}
		for _, t := range tensors {
			size += len(t.Data)
		}
		all = append(all, tensors)
	}
	lengths := lengthsOf(rows)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Verify(lengths, func(cp, _ int) []batch.Tensor { return all[cp] }); err != nil {
			b.Fatal(err)
		}
	}
}

// A reused body leaves only the small allocations that do not grow with tokens.
func TestAppendAllocations(t *testing.T) {
	l := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 8192, CP: 1, PP: 1, Packed: true}
	body := make([]byte, 0, 2<<20)
	for _, doc := range []int{50, 8000} {
		rows := benchRows(doc)
		allocs := testing.AllocsPerRun(10, func() {
			if _, _, err := l.Append(body, rows, 0, 0); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 16 {
			t.Errorf("documents of %d tokens: %v allocations, want at most 16", doc, allocs)
		}
	}
}
