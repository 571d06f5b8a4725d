package assemble

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
)

// cell is one position of a sequence, worked out one at a time.
type cell struct{ token, position, next, same, shifted, mask, segment, target string }

// cells is the format's rules position by position, with none of the package's
// code: the reference that the fast path is compared with. It returns the lines
// that are cut each by itself.
func cells(l Layout, rows []batch.Row) (lines [][]cell) {
	pad := cell{fmt.Sprint(l.PadID), "0", "0", "-100", "-100", "0", "0", "0"}
	for _, row := range rows {
		switch l.Format {
		case HF:
			lines = [][]cell{append(slices.Concat(lines...), rowCells(row)...)}
		case MegatronTHD:
			left := l.SequenceLength
			for k, doc := range row.Segments {
				line := documentCells(row, doc, k)
				for len(line)%l.DocumentMultiple != 0 {
					line = append(line, pad)
				}
				lines, left = append(lines, line), left-len(line)
			}
			if left > 0 {
				lines = append(lines, slices.Repeat([]cell{pad}, left))
			}
		default:
			line := rowCells(row)
			for i := 0; len(line) < l.SequenceLength; i++ {
				if l.Format == Torchtitan {
					pad.position = fmt.Sprint(i)
				}
				line = append(line, pad)
			}
			lines = append(lines, line)
		}
	}
	if l.Format == HF {
		lines[0] = padHF(l, lines[0], pad)
	}
	return lines
}

func rowCells(row batch.Row) (line []cell) {
	for k, doc := range row.Segments {
		line = append(line, documentCells(row, doc, k)...)
	}
	return line
}

// placeholder says whether a token of a document stands for part of an image.
func placeholder(row batch.Row, document, i int) bool {
	return slices.ContainsFunc(row.Images, func(x batch.Image) bool {
		return x.Document == document && i >= x.At && i < x.At+x.Tokens
	})
}

// noLoss says whether a token of a document carries no loss.
func noLoss(row batch.Row, document, i int) bool {
	if document >= len(row.Masked) {
		return false
	}
	masked := false
	for _, at := range row.Masked[document] {
		if i >= int(at) {
			masked = !masked
		}
	}
	return masked
}

func documentCells(row batch.Row, doc []int32, number int) (line []cell) {
	for i, id := range doc {
		segment := fmt.Sprint(number + 1)
		c := cell{fmt.Sprint(id), fmt.Sprint(i), "0", fmt.Sprint(id), "-100", "0", segment, "0"}
		if i == 0 || placeholder(row, number, i) || noLoss(row, number, i) {
			c.same = "-100"
		}
		if i+1 < len(doc) && !placeholder(row, number, i+1) && !noLoss(row, number, i+1) {
			c.next, c.mask, c.target = fmt.Sprint(doc[i+1]), "1", segment
			c.shifted = c.next
		}
		line = append(line, c)
	}
	return line
}

func padHF(l Layout, flat []cell, pad cell) []cell {
	multiple := map[string]int{Zigzag: 2 * l.CP, Contiguous: l.CP, Whole: 2 * l.CP}[l.CPSlicing]
	if l.CP == 1 {
		multiple = 1
	}
	for i := 0; len(flat) == 0 || len(flat)%multiple != 0; i++ {
		pad.position = fmt.Sprint(i)
		flat = append(flat, pad)
	}
	return flat
}

// cut returns what rank cp takes of line.
func cut(l Layout, line []cell, cp int) []cell {
	switch l.CPSlicing {
	case Zigzag:
		if len(line)%(2*l.CP) != 0 { // CP is 1
			return line
		}
		chunks := slices.Collect(slices.Chunk(line, len(line)/(2*l.CP)))
		return slices.Concat(chunks[cp], chunks[len(chunks)-1-cp])
	case Contiguous:
		return slices.Collect(slices.Chunk(line, len(line)/l.CP))[cp]
	default:
		return line
	}
}

func TestAgainstReference(t *testing.T) {
	token := func(c cell) string { return c.token }
	position := func(c cell) string { return c.position }
	next := func(c cell) string { return c.next }
	mask := func(c cell) string { return c.mask }
	shifted := func(c cell) string { return c.shifted }
	fields := map[string]func(cell) string{
		"megatron/tokens": token, "megatron/position_ids": position, "megatron/labels": next, "megatron/loss_mask": mask,
		"megatron-thd/tokens": token, "megatron-thd/position_ids": position, "megatron-thd/labels": next, "megatron-thd/loss_mask": mask,
		"hf/input_ids": token, "hf/position_ids": position, "hf/shift_labels": shifted,
		"hf/labels":        func(c cell) string { return c.same },
		"torchtitan/input": token, "torchtitan/positions": position, "torchtitan/labels": shifted,
		"jax/inputs": token, "jax/inputs_position": position, "jax/targets": next, "jax/targets_position": position,
		"jax/inputs_segmentation":  func(c cell) string { return c.segment },
		"jax/targets_segmentation": func(c cell) string { return c.target },
	}
	seen := map[string]bool{}
	forRandom(t, 600, func(t *testing.T, _ *rand.Rand, l Layout, rows []batch.Row) {
		for cp := range l.CP {
			for pp := range l.PP {
				for _, tensor := range microbatch(t, l, rows, cp, pp) {
					name := l.Format + "/" + tensor.Name
					field := fields[name]
					if field == nil {
						continue // bounds: see TestBounds
					}
					seen[name] = true
					checkColumn(t, l, rows, cp, tensor, field)
				}
			}
		}
	})
	if len(seen) != len(fields) {
		t.Errorf("only %v were compared", seen)
	}
}

func checkColumn(t *testing.T, l Layout, rows []batch.Row, cp int, tensor batch.Tensor, field func(cell) string) {
	t.Helper()
	want := fmt.Sprintf("\n\t%s %s ", tensor.Name, tensor.DType)
	lines := cells(l, rows)
	values, count := "", 0
	for _, line := range lines {
		for _, c := range cut(l, line, cp) {
			values += " " + field(c)
			count++
		}
	}
	if l.Format == MegatronTHD || l.Format == Torchtitan {
		want += fmt.Sprintf("[%d]:%s", count, values)
	} else {
		want += fmt.Sprintf("[%d %d]:%s", len(lines), count/len(lines), values)
	}
	if got := render([]batch.Tensor{tensor}); got != want {
		t.Errorf("cp %d:\ngot%s\nwant%s", cp, got, want)
	}
}
