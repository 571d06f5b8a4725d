package assemble

import (
	"fmt"
	"iter"
	"math"

	"github.com/millrace-data/millrace/internal/batch"
)

// sequence is one line of a batch, cut for CP by itself: documents end to end,
// then padding. A microbatch has one for each row. An HF microbatch has a single
// one with the documents of all its rows, a MegatronTHD microbatch one for each
// document and one without any for what is left of a row.
type sequence struct {
	docs     [][]int32
	untaught [][]span // runs in each document of tokens that are no targets; nil if none has any
	used     int      // tokens of docs
	length   int      // used and the padding
}

// within walks over the documents of which a span has a part, and says which.
func (s *sequence) within(sp span) iter.Seq2[int, span] {
	return func(yield func(int, span) bool) {
		start := 0
		for k, doc := range s.docs {
			if start >= sp.to {
				return
			}
			if in := (span{max(sp.from-start, 0), min(sp.to-start, len(doc))}); in.from < in.to && !yield(k, in) {
				return
			}
			start += len(doc)
		}
	}
}

// untaughtOf returns the runs of document k.
func (s *sequence) untaughtOf(k int) []span {
	if s.untaught == nil {
		return nil
	}
	return s.untaught[k]
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
	for i, row := range rows {
		if err := l.checkRow(row); err != nil {
			return nil, fmt.Errorf("assembling row %d of a microbatch: %w", i, err)
		}
	}
	if l.Format == MegatronTHD {
		return l.segments(rows)
	}
	lines := make([]sequence, len(rows))
	for i, row := range rows {
		lines[i] = sequence{docs: row.Segments, untaught: untaught(&row), used: row.Tokens(), length: l.SequenceLength}
	}
	if l.Format == HF {
		return l.flatten(lines)
	}
	return lines, nil
}

func (l Layout) checkRow(row batch.Row) error {
	room := 0
	for i, segment := range row.Segments {
		if len(segment) == 0 {
			return fmt.Errorf("segment %d has no token", i)
		}
		room += l.room(len(segment))
	}
	if err := checkImages(&row); err != nil {
		return err
	}
	if err := checkMasked(&row); err != nil {
		return err
	}
	if room > l.SequenceLength {
		return fmt.Errorf("%d tokens do not fit the sequence length %d (documents are padded to a multiple of %d)",
			room, l.SequenceLength, max(l.DocumentMultiple, 1))
	}
	if n := len(row.Segments); n > 1 && !l.Packed {
		return fmt.Errorf("it has %d segments, but the job does not pack", n)
	}
	return nil
}

// segments makes a line of every document of rows and of the rest of each row.
func (l Layout) segments(rows []batch.Row) ([]sequence, error) {
	if len(rows) > math.MaxInt32/l.SequenceLength {
		return nil, fmt.Errorf("assembling a microbatch: its %d rows of %d tokens overflow the int32 of cu_seqlens", len(rows), l.SequenceLength)
	}
	count := len(rows)
	for _, row := range rows {
		count += len(row.Segments)
	}
	lines := make([]sequence, 0, count)
	for _, row := range rows {
		left := l.SequenceLength
		runs := untaught(&row)
		for i, doc := range row.Segments {
			line := sequence{docs: row.Segments[i : i+1], used: len(doc), length: l.room(len(doc))}
			if runs != nil {
				line.untaught = runs[i : i+1]
			}
			lines = append(lines, line)
			left -= line.length
		}
		if left > 0 {
			lines = append(lines, sequence{length: left})
		}
	}
	return lines, nil
}

// flatten joins lines into one, padded as little as the cut allows. No model
// takes an empty batch, so there is at least one token, be it padding.
func (l Layout) flatten(lines []sequence) ([]sequence, error) {
	flat := lines[0]
	if len(lines) > 1 {
		flat = sequence{}
		for _, line := range lines {
			if line.untaught != nil || flat.untaught != nil {
				flat.untaught = append(flat.untaught, make([][]span, len(flat.docs)-len(flat.untaught))...)
				flat.untaught = append(flat.untaught, line.untaught...)
			}
			flat.docs = append(flat.docs, line.docs...)
			flat.used += line.used
		}
		if flat.untaught != nil {
			flat.untaught = append(flat.untaught, make([][]span, len(flat.docs)-len(flat.untaught))...)
		}
	}
	flat.length = roundUp(max(flat.used, 1), l.multiple())
	if flat.length > math.MaxInt32 {
		return nil, fmt.Errorf("assembling a microbatch: its %d tokens overflow the int32 of cu_seq_lens", flat.length)
	}
	lines[0] = flat
	return lines[:1], nil
}
