package assemble

import (
	"fmt"
	"math"

	"github.com/millrace-data/millrace/internal/batch"
)

// sequence is one line of a batch: documents end to end, then padding. A
// Megatron microbatch has one for each row, an HF microbatch a single one with
// the documents of all its rows.
type sequence struct {
	docs   [][]int32
	used   int // tokens of docs
	length int // used and the padding
}

// pad returns the number of padding tokens.
func (s *sequence) pad() int { return s.length - s.used }

// longest returns the length of the longest segment. Padding counts as one,
// since attention kernels run over it too and must not read past their bound.
func (s *sequence) longest() int {
	n := s.pad()
	for _, doc := range s.docs {
		n = max(n, len(doc))
	}
	return n
}

// sequences lays rows out as the format wants. Rows that break the plan's
// promises are an error of class fault.Bug: the plan made them, not the user.
func (l Layout) sequences(rows []batch.Row) ([]sequence, error) {
	if len(rows) == 0 {
		return nil, fmt.Errorf("assembling a microbatch: it has no row")
	}
	lines := make([]sequence, len(rows))
	for i, row := range rows {
		if err := l.checkRow(row); err != nil {
			return nil, fmt.Errorf("assembling row %d of a microbatch: %w", i, err)
		}
		lines[i] = sequence{docs: row.Segments, used: row.Tokens(), length: l.SequenceLength}
	}
	if l.Format == HF {
		return l.flatten(lines)
	}
	return lines, nil
}

func (l Layout) checkRow(row batch.Row) error {
	for i, segment := range row.Segments {
		if len(segment) == 0 {
			return fmt.Errorf("segment %d has no token", i)
		}
	}
	if n := row.Tokens(); n > l.SequenceLength {
		return fmt.Errorf("%d tokens do not fit the sequence length %d", n, l.SequenceLength)
	}
	if n := len(row.Segments); n > 1 && !l.Packed {
		return fmt.Errorf("it has %d segments, but the job does not pack", n)
	}
	return nil
}

// flatten joins lines into one, padded as little as the cut allows. No model
// takes an empty batch, so there is at least one token, be it padding.
func (l Layout) flatten(lines []sequence) ([]sequence, error) {
	flat := lines[0]
	if len(lines) > 1 {
		flat = sequence{}
		for _, line := range lines {
			flat.docs = append(flat.docs, line.docs...)
			flat.used += line.used
		}
	}
	flat.length = roundUp(max(flat.used, 1), l.multiple())
	if flat.length > math.MaxInt32 {
		return nil, fmt.Errorf("assembling a microbatch: its %d tokens overflow the int32 of cu_seq_lens", flat.length)
	}
	lines[0] = flat
	return lines[:1], nil
}
