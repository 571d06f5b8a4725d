package strategy

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/planner/dgraph"
)

// drawn is what a draw gave, before a strategy could change it.
type drawn struct {
	buf   dgraph.Buffer
	rowOf []int32
}

// keepDrawn has the step keep what is drawn, to check its plan by, in memory that the step after it uses again.
func (s *Step) keepDrawn() *drawn {
	kept, draw := &s.runner.drawn, s.in.Draw
	s.in.Draw = func(shares []uint64) (*dgraph.Buffer, []int32, error) {
		buf, rowOf, err := draw(shares)
		if err == nil {
			kept.copy(buf, rowOf)
		}
		return buf, rowOf, err
	}
	return kept
}

func (d *drawn) copy(b *dgraph.Buffer, rowOf []int32) {
	d.rowOf, d.buf.Tokens = append(d.rowOf[:0], rowOf...), append(d.buf.Tokens[:0], b.Tokens...)
	d.buf.Source, d.buf.Seq, d.buf.Index = append(d.buf.Source[:0], b.Source...), append(d.buf.Seq[:0], b.Seq...), append(d.buf.Index[:0], b.Index...)
}

// same says whether the samples are still those that were drawn.
func (d *drawn) same(b *dgraph.Buffer) bool {
	return slices.Equal(d.buf.Source, b.Source) && slices.Equal(d.buf.Seq, b.Seq) && slices.Equal(d.buf.Index, b.Index) &&
		slices.Equal(d.buf.Tokens, b.Tokens)
}

// checkResult checks a plan that its strategy could change: no sample is dropped, no row is
// too full, and each place has one row. It returns the number of samples of each row.
func (s *Step) checkResult(d *drawn) ([]int32, error) {
	r := s.result
	switch {
	case !d.same(s.buf):
		return nil, fmt.Errorf("it changed the samples of the step, which Buffer returns to be read only")
	case r.tree != s.in.Tree || r.ranks != s.ranks() || r.Microbatches != s.microbatches || r.MicrobatchSize != s.in.Shape.MicrobatchSize ||
		(r.Width == nil) == s.in.Shape.Pool:
		return nil, fmt.Errorf("it changed the shape of the plan, which follows from the batch and the mesh")
	case r.Encoder != nil && len(r.Encoder) != s.buf.Images():
		return nil, fmt.Errorf("%d images have an encoder or -1, and there are %d", len(r.Encoder), s.buf.Images())
	}
	for image, bucket := range r.Encoder {
		if bucket < -1 || int(bucket) >= r.Encoders.Len() {
			return nil, fmt.Errorf("image %d goes to encoder %d; there are %d, counted from 0", image, bucket, r.Encoders.Len())
		}
	}
	if err := s.checkPlaces(r); err != nil {
		return nil, err
	}
	return s.checkRows(r.RowOf, d.rowOf, r.Width)
}

// checkRows checks a row for each sample, and returns the number of samples of each row. packed are
// the rows that samples were packed into; widths are those of rows, nil if all are 1.
func (s *Step) checkRows(rowOf, packed, widths []int32) ([]int32, error) {
	if len(rowOf) != len(packed) {
		return nil, fmt.Errorf("%d samples have a row or -1, and there are %d", len(rowOf), len(packed))
	}
	rows, m := s.in.Shape.Rows, max(s.in.Shape.Multiple, 1)
	if widths != nil {
		rows = len(widths)
	}
	tokens, count, lengths := make([]int64, rows), make([]int32, rows), s.buf.Tokens[:len(rowOf)]
	for i, row := range rowOf {
		if row == -1 && packed[i] < 0 {
			continue
		}
		if row < 0 || int(row) >= rows || packed[i] < 0 {
			return nil, s.wrongRow(i, row, rows)
		}
		n := lengths[i]
		if m > 1 {
			n = (n + m - 1) / m * m
		}
		room := int64(s.in.Shape.SequenceLength)
		if widths != nil {
			room *= int64(widths[row])
		}
		count[row]++
		if tokens[row] += int64(n); tokens[row] > room {
			return nil, fmt.Errorf("sample %v makes row %d %d tokens long; it has room for %d", s.buf.Ref(i), row, tokens[row], room)
		}
		if count[row] > 1 && !s.in.Shape.Packing {
			return nil, fmt.Errorf("sample %v is the second of row %d; without packing a row has one", s.buf.Ref(i), row)
		}
	}
	return count, nil
}

// wrongRow says what is wrong with the row of a sample.
func (s *Step) wrongRow(sample int, row int32, rows int) error {
	switch {
	case row < -1 || int(row) >= rows:
		return fmt.Errorf("sample %v goes to row %d; rows are 0 to %d", s.buf.Ref(sample), row, rows-1)
	case row < 0:
		return fmt.Errorf("sample %v, which belongs to this step, has no row", s.buf.Ref(sample))
	}
	return fmt.Errorf("sample %v, which waits for the next step, goes to row %d; give it -1", s.buf.Ref(sample), row)
}

// checkPlaces checks a place for each row: every place of every rank has one.
func (s *Step) checkPlaces(r *Result) error {
	rows, mbs, ranks := s.in.Shape.Rows, s.in.Shape.MicrobatchSize, s.ranks()
	if s.in.Shape.wide() {
		rows = len(r.Width)
	}
	if len(r.Rank) != rows || len(r.Microbatch) != rows || len(r.Position) != rows || r.Width != nil && len(r.Width) != rows {
		return fmt.Errorf("%d rows have a rank, %d a microbatch, %d a position, and there are %d rows", len(r.Rank), len(r.Microbatch), len(r.Position), rows)
	}
	row := make([]int32, s.in.Shape.Rows) // of each place, plus 1
	left := len(row)
	for i := range r.Rank {
		m, p := int(r.Microbatch[i]), int(r.Position[i])
		first, width := r.Span(i)
		if width < 1 || width > int(max(s.in.Shape.Widest, 1)) || width&(width-1) != 0 || first%width != 0 {
			return fmt.Errorf("row %d is %d ranks wide, from rank %d on; a width is a power of two up to %d, and its first rank a multiple of it",
				i, width, first, max(s.in.Shape.Widest, 1))
		}
		if first < 0 || first > ranks-width || m < 0 || m >= s.microbatches || p < 0 || p >= mbs {
			return fmt.Errorf("row %d goes to rank %d, microbatch %d, position %d; there are %d ranks of %d microbatches of %d rows, counted from 0",
				i, first, m, p, ranks, s.microbatches, mbs)
		}
		for rank := first; rank < first+width; rank++ {
			at := (rank*s.microbatches+m)*mbs + p
			if row[at] > 0 {
				return fmt.Errorf("rows %d and %d both go to rank %d, microbatch %d, position %d; each place has one row", row[at]-1, i, rank, m, p)
			}
			row[at] = int32(i) + 1
			left--
		}
	}
	if left > 0 {
		return fmt.Errorf("%d of %d places of the ranks have no row", left, len(row))
	}
	return nil
}
