package assemble

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/batch"
)

// Verify checks what the trainers really received of one microbatch and returns
// its rows. lengths holds the segment lengths of each row, known from the plan;
// parts returns the tensors delivered to a rank and is called once for each, by
// rising cp, then pp. Its tensors must stay valid until Verify returns.
//
// The rows are rebuilt from the token slices of the first stage. Then each rank's
// tensors are made again from them and compared: names, types, shapes and every
// byte. So Verify succeeds only if the parts are what Microbatch makes of the rows
// returned; whether those are the right rows, their digests tell. An error names
// the tensor, cp, pp, row and position of the first difference, and what was got
// and wanted; its class is fault.Bug, as a batch differs from the plan.
func (l Layout) Verify(lengths [][]int, parts func(cp, pp int) []batch.Tensor) ([]batch.Row, error) {
	return l.VerifyImages(lengths, make([][]batch.Image, len(lengths)), parts)
}

// VerifyImages is Verify for rows whose images are known, as ReadSources gives them:
// labels depend on where placeholders are. The rows returned have these images and, with
// Masks, the tokens without loss that the labels show; their digests tell whether those are right.
func (l Layout) VerifyImages(lengths [][]int, images [][]batch.Image, parts func(cp, pp int) []batch.Tensor) ([]batch.Row, error) {
	if err := l.Validate(); err != nil {
		return nil, err
	}
	rows, tokens, err := l.blankRows(lengths)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].Images = images[i]
	}
	delivered := make([][][]batch.Tensor, l.CP)
	for cp := range delivered {
		for pp := range l.PP {
			delivered[cp] = append(delivered[cp], parts(cp, pp))
		}
		if cp > 0 && l.CPSlicing == Whole {
			continue // it has the same tokens as rank 0, which the comparison checks
		}
		if err := l.gather(tokens, rows, cp, delivered[cp][0]); err != nil {
			return nil, fmt.Errorf("verifying cp %d pp 0: %w", cp, err)
		}
	}
	if l.Masks {
		if err := l.readMasked(rows, delivered); err != nil {
			return nil, fmt.Errorf("verifying which tokens carry loss: %w", err)
		}
	}
	var body []byte
	for cp := range delivered {
		for pp, got := range delivered[cp] {
			if body, err = l.compare(body, got, rows, cp, pp); err != nil {
				return nil, fmt.Errorf("verifying cp %d pp %d: %w", cp, pp, err)
			}
		}
	}
	return rows, nil
}

// blankRows returns rows of the given lengths whose documents lie end to end in
// tokens, still zero.
func (l Layout) blankRows(lengths [][]int) (rows []batch.Row, tokens []int32, err error) {
	total := 0
	for i, row := range lengths {
		sum := 0
		for _, n := range row {
			if n < 1 || n > l.SequenceLength || l.room(n) > l.SequenceLength-sum {
				return nil, nil, fmt.Errorf("verifying row %d: segments of %v tokens are not a row of at most %d", i, row, l.SequenceLength)
			}
			sum += l.room(n)
			total += n
		}
	}
	tokens = make([]int32, total)
	rest := tokens
	for _, row := range lengths {
		segments := make([][]int32, len(row))
		for i, n := range row {
			segments[i], rest = rest[:n:n], rest[n:]
		}
		rows = append(rows, batch.Row{Segments: segments})
	}
	return rows, tokens, nil
}

// gather copies the token slice of rank cp, found in what its first stage
// received, to its places in tokens, which rows view.
func (l Layout) gather(tokens []int32, rows []batch.Row, cp int, received []batch.Tensor) error {
	c := columns(l.Format)[0]
	i := slices.IndexFunc(received, func(t batch.Tensor) bool { return t.Name == c.Name })
	if i < 0 {
		return fmt.Errorf("tensor %s is missing", c.Name)
	}
	p, err := l.layOut(rows, cp, 0)
	if err != nil {
		return err
	}
	got, want := received[i], batch.Tensor{Name: c.Name, DType: c.DType, Shape: c.shape(p)}
	if err := checkHeader(got, want); err != nil {
		return err
	}
	at := 0 // element of the received tensor
	for line := range p.lines {
		used := p.lines[line].used
		for _, sp := range p.spans(line) {
			n := max(min(sp.to, used)-sp.from, 0)
			for j := range n {
				id := integer(got, at+j)
				if id < math.MinInt32 || id > math.MaxInt32 {
					return fmt.Errorf("tensor %s: %s: got %d, want a token id", c.Name, p.tokenPlace(want.Shape, at+j), id)
				}
				tokens[sp.from+j] = int32(id)
			}
			at += sp.len()
		}
		tokens = tokens[used:]
	}
	return nil
}

// integer returns element i of a tensor of int32 or int64.
func integer(t batch.Tensor, i int) int64 {
	if t.DType == batch.Int32 {
		return int64(int32(binary.LittleEndian.Uint32(t.Data[4*i:])))
	}
	return int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
}

// compare assembles in body what rank (cp, pp) must have got and returns an
// error about the first difference. It returns body for the next call.
func (l Layout) compare(body []byte, got []batch.Tensor, rows []batch.Row, cp, pp int) ([]byte, error) {
	p, err := l.layOut(rows, cp, pp)
	if err != nil {
		return body, err
	}
	body, wire := p.write(body[:0])
	body, want := batch.Widen(body, wire)
	if g, w := names(got), names(want); !slices.Equal(g, w) {
		return body, fmt.Errorf("got the tensors %v, want %v", g, w)
	}
	for i, c := range p.columns() {
		if err := checkHeader(got[i], want[i]); err != nil {
			return body, err
		}
		if bytes.Equal(got[i].Data, want[i].Data) {
			continue
		}
		at := firstDifference(got[i].Data, want[i].Data) / c.DType.Size()
		place := fmt.Sprintf("element %v", unravel(want[i].Shape, at))
		if c.perToken {
			place = p.tokenPlace(want[i].Shape, at)
		}
		return body, fmt.Errorf("tensor %s: %s: got %s, want %s", c.Name, place, got[i].Element(at), want[i].Element(at))
	}
	return body, nil
}

func names(tensors []batch.Tensor) []string {
	list := make([]string, len(tensors))
	for i, t := range tensors {
		list[i] = t.Name
	}
	return list
}

// checkHeader compares all of a tensor but its values.
func checkHeader(got, want batch.Tensor) error {
	if got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
		return fmt.Errorf("tensor %s: got %s of shape %v, want %s of shape %v", want.Name, got.DType, got.Shape, want.DType, want.Shape)
	}
	return got.Check()
}

// firstDifference returns the first index where a and b, which differ and have
// equal lengths, do so.
func firstDifference(a, b []byte) int {
	i := 0
	for a[i] == b[i] {
		i++
	}
	return i
}

// unravel returns the index in each dimension of element i in C order.
func unravel(shape []int, i int) []int {
	index := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		index[d] = i % shape[d]
		i /= shape[d]
	}
	return index
}

// tokenPlace names element i of a per-token tensor: its index there, and the
// row of the microbatch and the position in it that the element describes.
func (p *part) tokenPlace(shape []int, i int) string {
	index := unravel(shape, i)
	row, position := p.place(i)
	switch p.layout.Format {
	case HF:
		for row < len(p.rows) && position >= p.rows[row].Tokens() {
			position -= p.rows[row].Tokens()
			row++
		}
		if row == len(p.rows) {
			return fmt.Sprintf("element %v (padding position %d)", index, position)
		}
	case MegatronTHD:
		for _, line := range p.lines[:row] {
			position += line.length
		}
		row, position = position/p.layout.SequenceLength, position%p.layout.SequenceLength
	}
	return fmt.Sprintf("element %v (row %d position %d)", index, row, position)
}

// place returns the line and the position in it of the i-th token of the rank.
func (p *part) place(i int) (line, position int) {
	for ; ; line++ {
		for _, sp := range p.spans(line) {
			if i < sp.len() {
				return line, sp.from + i
			}
			i -= sp.len()
		}
	}
}
