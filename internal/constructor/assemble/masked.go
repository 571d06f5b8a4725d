package assemble

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/batch"
)

// untaught returns the runs, in each document of a row, of tokens that no label is: placeholders
// of images, and tokens without loss. It is nil if the row has none. Runs rise, and none
// overlaps another.
func untaught(row *batch.Row) [][]span {
	if len(row.Images) == 0 && len(row.Masked) == 0 {
		return nil
	}
	runs := make([][]span, len(row.Segments))
	for _, x := range row.Images {
		runs[x.Document] = append(runs[x.Document], span{x.At, x.At + x.Tokens})
	}
	for i, bounds := range row.Masked {
		for ; len(bounds) > 1; bounds = bounds[2:] {
			runs[i] = append(runs[i], span{int(bounds[0]), int(bounds[1])})
		}
		slices.SortFunc(runs[i], func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
	return runs
}

// checkMasked makes sure that a row's bounds lie in its documents.
func checkMasked(row *batch.Row) error {
	if len(row.Masked) > len(row.Segments) {
		return fmt.Errorf("%d documents have tokens without loss, the row has %d", len(row.Masked), len(row.Segments))
	}
	for i, bounds := range row.Masked {
		last := int32(0)
		for _, at := range bounds {
			if at <= last || int(at) > len(row.Segments[i]) {
				return fmt.Errorf("document %d has %d tokens, and a bound %d of those without loss after %d", i, len(row.Segments[i]), at, last)
			}
			last = at
		}
		if len(bounds)%2 != 0 {
			return fmt.Errorf("document %d has %d bounds of tokens without loss: a run has two", i, len(bounds))
		}
	}
	return nil
}

// lossOf says how the tensor that shows which tokens carry loss does so: the value of
// a token that is ignored, and whether the tensor has it at the token's own place or at the one
// before.
var lossOf = map[string]struct {
	name    string
	ignored float64
	own     bool
}{
	Megatron:    {"loss_mask", 0, false},
	MegatronTHD: {"loss_mask", 0, false},
	HF:          {"labels", ignored, true},
	Torchtitan:  {"labels", ignored, false},
	JAX:         {"targets_segmentation", 0, false},
}

// readMasked gives rows the tokens without loss that the labels of each CP rank show,
// apart from placeholders. rows have their tokens and images.
func (l Layout) readMasked(rows []batch.Row, delivered [][][]batch.Tensor) error {
	loss := lossOf[l.Format]
	taught := make([][]bool, 0, len(rows)) // of each line, the tokens that are targets
	for cp := range delivered {
		p, err := l.layOut(rows, cp, l.PP-1)
		if err != nil {
			return err
		}
		tensor := find(delivered[cp][l.PP-1], loss.name)
		if tensor == nil {
			return fmt.Errorf("tensor %s of cp %d is missing", loss.name, cp)
		}
		for i := len(taught); i < len(p.lines); i++ {
			taught = append(taught, make([]bool, p.lines[i].length+1))
		}
		size := 0
		for i := range p.lines {
			size += p.taken(i)
		}
		if err := tensor.Check(); err != nil {
			return err
		}
		if n := len(tensor.Data) / tensor.DType.Size(); n != size {
			return fmt.Errorf("tensor %s of cp %d has %d values for %d places", loss.name, cp, n, size)
		}
		at := 0
		for i := range p.lines {
			for _, sp := range p.spans(i) {
				for j := sp.from; j < sp.to; j++ {
					target := j
					if !loss.own {
						target++
					}
					taught[i][target] = value(tensor, at) != loss.ignored
					at++
				}
			}
		}
	}
	l.maskRows(rows, taught)
	return nil
}

// value returns element i of a tensor.
func value(t *batch.Tensor, i int) float64 {
	if t.DType == batch.Float32 {
		return float64(batch.Elements[float32](t.Data)[i])
	}
	return float64(integer(*t, i))
}

// maskRows sets the bounds of rows from the tokens of their lines that are targets.
func (l Layout) maskRows(rows []batch.Row, taught [][]bool) {
	line, at := 0, 0
	for r := range rows {
		row := &rows[r]
		images := untaught(row)
		for k, doc := range row.Segments {
			var bounds []int32
			for i := 1; i < len(doc); i++ {
				if taught[line][at+i] || images != nil && inside(images[k], i) {
					continue
				}
				if n := len(bounds); n > 0 && int(bounds[n-1]) == i {
					bounds[n-1]++
				} else {
					bounds = append(bounds, int32(i), int32(i)+1)
				}
			}
			if bounds != nil {
				row.Masked = append(row.Masked, make([][]int32, k+1-len(row.Masked))...)
				row.Masked[k] = bounds
			}
			if at += len(doc); l.Format == MegatronTHD {
				line, at = line+1, 0
			}
		}
		switch l.Format {
		case HF: // all rows are in one line
		case MegatronTHD:
			if left := l.left(row); left > 0 {
				line++
			}
		default:
			line, at = line+1, 0
		}
	}
}

// left returns the places of a row behind the segments of its documents.
func (l Layout) left(row *batch.Row) int {
	left := l.SequenceLength
	for _, doc := range row.Segments {
		left -= l.room(len(doc))
	}
	return left
}

func inside(runs []span, i int) bool {
	return slices.ContainsFunc(runs, func(run span) bool { return i >= run.from && i < run.to })
}
