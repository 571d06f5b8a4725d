package assemble

import (
	"iter"
	"slices"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
)

// part is what one rank receives of one microbatch, laid out but not written.
type part struct {
	layout Layout
	cp, pp int
	rows   []batch.Row
	lines  []sequence // the rows as the format lays them out
}

// spans returns what the rank takes of line i.
func (p *part) spans(i int) [2]span { return p.layout.spans(p.lines[i].length, p.cp) }

// taken returns the number of tokens that the rank takes of line i.
func (p *part) taken(i int) int {
	spans := p.spans(i)
	return spans[0].len() + spans[1].len()
}

// layOut checks its arguments and lays rows out for the rank (cp, pp).
func (l Layout) layOut(rows []batch.Row, cp, pp int) (*part, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	if cp < 0 || cp >= l.CP || pp < 0 || pp >= l.PP {
		return nil, fault.Userf("no rank has cp %d and pp %d: the mesh has cp 0 to %d and pp 0 to %d", cp, pp, l.CP-1, l.PP-1)
	}
	lines, err := l.sequences(rows)
	if err != nil {
		return nil, err
	}
	return &part{l, cp, pp, rows, lines}, nil
}

// columns walks over the columns that the rank receives, numbered from 0.
func (p *part) columns() iter.Seq2[int, *column] {
	return func(yield func(int, *column) bool) {
		n, all := 0, columns(p.layout.Format)
		for i := range all {
			c := &all[i]
			if !c.Stages.has(p.pp, p.layout.PP) || !c.When.holds(p.layout) {
				continue
			}
			if !yield(n, c) {
				return
			}
			n++
		}
	}
}

// tensors returns the rank's tensors without their data, but for runs, and the
// bytes they take in a body, from an aligned start to the end of the last one.
func (p *part) tensors() ([]batch.WireTensor, int) {
	var tensors []batch.WireTensor
	size := 0
	for _, c := range p.columns() {
		t := batch.WireTensor{Tensor: batch.Tensor{Name: c.Name, DType: c.DType, Shape: c.shape(p)}, Wire: c.wireOf()}
		switch {
		case t.Wire == batch.AsRuns:
			t.Data = batch.RunBytes(c.runs(p))
		case c.copies != nil && p.copies():
			if runs := c.copies(p); len(runs)*fewCopied <= byteSize(t)/batch.Int32.Size() {
				t.Wire, t.Data = batch.AsCopies, batch.RunBytes(runs)
			}
		}
		tensors = append(tensors, t)
		size = batch.Aligned(size) + byteSize(t)
	}
	return tensors, size
}

// fewCopied is how many elements a run has to have on the average for labels to travel as copies: a client
// takes longer for each run than for some elements.
const fewCopied = 64

// copies reports whether labels may travel as copies of the ids, which the rank then gets, too.
func (p *part) copies() bool {
	return p.layout.Copies && columns(p.layout.Format)[0].Stages.has(p.pp, p.layout.PP)
}

// wireOf is how a column travels: int32 need not become int32.
func (c *column) wireOf() batch.Wire {
	if c.wire == batch.AsInt32 && c.DType == batch.Int32 {
		return batch.AsIs
	}
	return c.wire
}

// byteSize returns the bytes that t travels in.
func byteSize(t batch.WireTensor) int {
	size := t.DType.Size()
	switch t.Wire {
	case batch.AsRuns, batch.AsCopies:
		return len(t.Data)
	case batch.AsInt32:
		size = batch.Int32.Size()
	}
	for _, n := range t.Shape {
		size *= n
	}
	return size
}

// Microbatch returns the tensors of one microbatch for the rank (cp, pp), in
// the order of Keys, as the rank's trainer sees them. rows are the rows of this
// microbatch of the rank's DP bucket, in order. A middle stage of a Megatron job
// that does not pack receives none.
//
// A row may hold no document: it is all padding. Errors are of class
// fault.User for an invalid Layout or coordinates outside the mesh, fault.Bug
// for rows that break the plan's promises (too long, empty document, several
// documents without Packed).
func (l Layout) Microbatch(rows []batch.Row, cp, pp int) ([]batch.Tensor, error) {
	_, wire, err := l.Append(nil, rows, cp, pp)
	if err != nil {
		return nil, err
	}
	_, tensors := batch.Widen(nil, wire)
	return tensors, nil
}

// Size returns the bytes that Append adds to a body of aligned length.
func (l Layout) Size(rows []batch.Row, cp, pp int) (int, error) {
	p, err := l.layOut(rows, cp, pp)
	if err != nil {
		return 0, err
	}
	_, size := p.tensors()
	return size, nil
}

// Append is Microbatch as it travels, into a body given by the caller: it appends
// the tensors, each at an offset of body that is a multiple of batch.Alignment,
// with zeros in the gaps, and returns the longer body. batch.Widen makes of them
// what Microbatch returns. Data aliases that body; if body had room for Size
// bytes beyond its aligned length nothing is moved, so tensors of earlier calls
// go on aliasing it too. It reads nothing of what was in the spare room before: a
// body may be reused as body[:0]. On an error body is returned as it was.
func (l Layout) Append(body []byte, rows []batch.Row, cp, pp int) ([]byte, []batch.WireTensor, error) {
	p, err := l.layOut(rows, cp, pp)
	if err != nil {
		return body, nil, err
	}
	body, tensors := p.write(body)
	return body, tensors, nil
}

// write appends the rank's tensors to body.
func (p *part) write(body []byte) ([]byte, []batch.WireTensor) {
	tensors, size := p.tensors()
	if len(tensors) == 0 {
		return body, nil
	}
	body = slices.Grow(body, batch.Aligned(len(body))+size-len(body))
	for i, c := range p.columns() {
		start := batch.Aligned(len(body))
		end := start + byteSize(tensors[i])
		clear(body[len(body):start])
		body = body[:end]
		data := body[start:end:end]
		switch tensors[i].Wire {
		case batch.AsRuns, batch.AsCopies:
			copy(data, tensors[i].Data)
		default:
			c.fill(data, p)
		}
		tensors[i].Data = data
	}
	return body, tensors
}
