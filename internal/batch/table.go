package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Table describes a rank's part of a step: its tensors, where they lie in the body that goes with
// it, and where its rows come from. Its bytes, of fixed width, are in docs/bytes.md; those of its
// layout, which are all but sizes and places, are the same from step to step as long as names,
// types and shapes are, so that a reader needs to look at them once.
type Table struct {
	Step           uint64
	Generation     uint64 // that the rank is of with this step
	Body           uint64 // bytes
	SequenceLength uint32 // tokens of a row
	Rows           uint32 // of the global batch
	End            bool   // there is no such step: besides Step and Topology nothing is set
	Topology       string // with End: the data goes on, for ranks of this mesh
	Joined         []string
	Microbatches   int
	Tensors        []Placed // by microbatch
	Lines          []Line   // by microbatch
}

// Placed is a tensor, by its place in a body.
type Placed struct {
	Microbatch   int
	Name         string
	DType        DType
	Wire         Wire
	Shape        []int // of at most MaxDims dimensions
	Offset, Size uint64
}

// Line is the lineage of one row. Origins are those of its documents, as AppendOrigin writes them.
type Line struct {
	Microbatch int
	Number     uint32 // of the row in the global batch
	Origins    []byte
}

// Origin is where a document comes from.
type Origin struct {
	Seq    uint64 // of its block
	Length uint32 // tokens
	Source uint32
	Index  uint32 // its place in the block
}

// MaxDims is one more than any tensor has.
const MaxDims = 5

// Sizes of the parts of a table, in bytes.
const (
	tableHead  = 64
	layoutSize = 8 + 8*MaxDims
	placeSize  = 16
	lineSize   = 16
	originSize = 24
)

// tableMagic begins a table; its last byte is the version.
const tableMagic = "MLT\x01"

const flagEnd = 1

var le = binary.LittleEndian

// AppendOrigin appends an origin as tables have it.
func AppendOrigin(b []byte, o Origin) []byte {
	b = le.AppendUint64(b, o.Seq)
	b = le.AppendUint32(b, o.Length)
	b = le.AppendUint32(b, o.Source)
	b = le.AppendUint32(b, o.Index)
	return le.AppendUint32(b, 0)
}

// Documents returns the origins of a row's documents.
func (l Line) Documents() []Origin {
	all := make([]Origin, len(l.Origins)/originSize)
	for i := range all {
		b := l.Origins[i*originSize:]
		all[i] = Origin{le.Uint64(b), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:])}
	}
	return all
}

// Append appends the table's bytes to b. An error says that it has what no table can.
func (t *Table) Append(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, make([]byte, tableHead)...)
	b, err := t.appendLayout(b)
	if err != nil {
		return nil, err
	}
	layout := len(b) - start - tableHead
	for _, p := range t.Tensors {
		b = le.AppendUint64(le.AppendUint64(b, p.Offset), p.Size)
	}
	documents := 0
	for _, l := range t.Lines {
		n := len(l.Origins) / originSize
		documents += n
		b = le.AppendUint32(le.AppendUint32(b, l.Number), uint32(l.Microbatch))
		b = le.AppendUint32(le.AppendUint32(b, uint32(n)), 0)
	}
	for _, l := range t.Lines {
		b = append(b, l.Origins...)
	}
	texts := len(b)
	for _, text := range append([]string{t.Topology}, t.Joined...) {
		b = append(le.AppendUint32(b, uint32(len(text))), text...)
	}
	if len(b)-start > math.MaxUint32 {
		return nil, fmt.Errorf("the table of step %d has %d bytes", t.Step, len(b)-start)
	}
	t.putHead(b[start:], layout, documents, len(b)-texts)
	return b, nil
}

func (t *Table) putHead(b []byte, layout, documents, texts int) {
	copy(b, tableMagic)
	if t.End {
		le.PutUint32(b[4:], flagEnd)
	}
	le.PutUint64(b[8:], t.Step)
	le.PutUint64(b[16:], t.Generation)
	le.PutUint64(b[24:], t.Body)
	for i, n := range []int{int(t.SequenceLength), int(t.Rows), t.Microbatches, len(t.Tensors), layout, len(t.Lines), documents, texts} {
		le.PutUint32(b[32+4*i:], uint32(n))
	}
}

// appendLayout appends names, types and shapes, with zeros up to a multiple of 8.
func (t *Table) appendLayout(b []byte) ([]byte, error) {
	start, numbers, names := len(b), map[string]int{}, []string{}
	for _, p := range t.Tensors {
		if len(p.Shape) > MaxDims || !p.DType.valid() {
			return nil, fmt.Errorf("tensor %s of %s has %d dimensions; a table takes %d", p.Name, p.DType, len(p.Shape), MaxDims)
		}
		n, known := numbers[p.Name]
		if !known {
			n = len(names)
			numbers[p.Name], names = n, append(names, p.Name)
		}
		b = append(le.AppendUint16(b, uint16(n)), byte(p.DType), byte(p.Wire))
		b = append(le.AppendUint16(b, uint16(p.Microbatch)), byte(len(p.Shape)), 0)
		for i := range MaxDims {
			d := 0
			if i < len(p.Shape) {
				d = p.Shape[i]
			}
			b = le.AppendUint64(b, uint64(d))
		}
	}
	if len(names) > math.MaxUint16 || t.Microbatches > math.MaxUint16 {
		return nil, fmt.Errorf("a batch has %d microbatches and %d names of tensors; a table takes %d of each", t.Microbatches, len(names), math.MaxUint16)
	}
	for _, name := range names {
		if len(name) < 1 || len(name) > math.MaxUint16 {
			return nil, fmt.Errorf("a tensor has a name of %d bytes; a table takes 1 to %d", len(name), math.MaxUint16)
		}
		b = append(le.AppendUint16(b, uint16(len(name))), name...)
	}
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	return b, nil
}

// errTable is part of the errors of bytes that are no table.
var errTable = errors.New("these bytes are not the table of a batch")

func noTable(text string, args ...any) error {
	return fmt.Errorf("%w: %s", errTable, fmt.Sprintf(text, args...))
}

// ReadTable reads the bytes of a table, whose lines stay views of raw. It refuses what Append
// does not write: tensors outside the body too, and sizes that their shapes do not have.
func ReadTable(raw []byte) (*Table, error) {
	if len(raw) < tableHead || string(raw[:len(tableMagic)]) != tableMagic {
		return nil, noTable("%d bytes that begin with %x", len(raw), raw[:min(len(raw), len(tableMagic))])
	}
	var n [8]uint64
	for i := range n {
		n[i] = uint64(le.Uint32(raw[32+4*i:]))
	}
	tensors, layout, lines, documents, texts := n[3], n[4], n[5], n[6], n[7]
	if want := tableHead + layout + placeSize*tensors + lineSize*lines + originSize*documents + texts; want != uint64(len(raw)) || layoutSize*tensors > layout || layout%8 != 0 {
		return nil, noTable("it has %d bytes, and says that it has %d", len(raw), want)
	}
	flags := le.Uint32(raw[4:])
	if flags&^flagEnd != 0 || n[2] > math.MaxUint16 {
		return nil, noTable("flags %x, %d microbatches", flags, n[2])
	}
	t := &Table{
		Step: le.Uint64(raw[8:]), Generation: le.Uint64(raw[16:]), Body: le.Uint64(raw[24:]),
		SequenceLength: uint32(n[0]), Rows: uint32(n[1]), End: flags == flagEnd, Microbatches: int(n[2]),
	}
	rest := raw[tableHead:]
	take := func(n uint64) (part []byte) {
		part, rest = rest[:n:n], rest[n:]
		return part
	}
	if err := t.readLayout(take(layout), int(tensors)); err != nil {
		return nil, err
	}
	if err := t.readPlaces(take(placeSize * tensors)); err != nil {
		return nil, err
	}
	if err := t.readLines(take(lineSize*lines), take(originSize*documents)); err != nil {
		return nil, err
	}
	return t, t.readTexts(rest)
}

func (t *Table) readLayout(raw []byte, tensors int) error {
	names, err := readNames(raw[layoutSize*tensors:], tensors)
	if err != nil {
		return err
	}
	t.Tensors = make([]Placed, tensors)
	before := 0
	for i := range t.Tensors {
		b, p := raw[layoutSize*i:], &t.Tensors[i]
		name, dims := int(le.Uint16(b)), int(b[6])
		p.DType, p.Wire, p.Microbatch = DType(b[2]), Wire(b[3]), int(le.Uint16(b[4:]))
		if name >= len(names) || !p.DType.valid() || int(p.Wire) >= len(wires) || p.Microbatch < before || p.Microbatch >= t.Microbatches || dims > MaxDims || b[7] != 0 {
			return noTable("tensor %d is %x", i, b[:8])
		}
		before = p.Microbatch
		p.Name, p.Shape = names[name], make([]int, dims)
		for k := range MaxDims {
			d := le.Uint64(b[8+8*k:])
			if d > math.MaxInt || k >= dims && d != 0 {
				return noTable("tensor %s has a dimension of %d", p.Name, d)
			}
			if k < dims {
				p.Shape[k] = int(d)
			}
		}
	}
	return nil
}

// readNames reads what lies behind the entries of a layout: names, of which there are at most as
// many as tensors, and up to 7 zeros.
func readNames(raw []byte, most int) (names []string, err error) {
	for len(raw) >= 2 && len(names) < most {
		n := int(le.Uint16(raw))
		if n == 0 && len(raw) < 8 {
			break // a name is never empty
		}
		if n > len(raw)-2 {
			return nil, noTable("a name is cut off")
		}
		names, raw = append(names, string(raw[2:2+n])), raw[2+n:]
	}
	if len(raw) >= 8 || slices.ContainsFunc(raw, func(b byte) bool { return b != 0 }) {
		return nil, noTable("%d bytes follow its names", len(raw))
	}
	return names, nil
}

func (t *Table) readPlaces(raw []byte) error {
	for i := range t.Tensors {
		p := &t.Tensors[i]
		p.Offset, p.Size = le.Uint64(raw[placeSize*i:]), le.Uint64(raw[placeSize*i+8:])
		if p.Offset%Alignment != 0 || p.Offset > t.Body || p.Size > t.Body-p.Offset {
			return noTable("tensor %s has %d bytes at %d of %d", p.Name, p.Size, p.Offset, t.Body)
		}
	}
	return nil
}

func (t *Table) readLines(raw, origins []byte) error {
	before := 0
	for ; len(raw) > 0; raw = raw[lineSize:] {
		l := Line{Number: le.Uint32(raw), Microbatch: int(le.Uint32(raw[4:]))}
		size := originSize * uint64(le.Uint32(raw[8:]))
		if l.Microbatch < before || l.Microbatch >= t.Microbatches || size > uint64(len(origins)) || le.Uint32(raw[12:]) != 0 {
			return noTable("row %d of microbatch %d has %d bytes of lineage in %d", l.Number, l.Microbatch, size, len(origins))
		}
		before = l.Microbatch
		l.Origins, origins = origins[:size:size], origins[size:]
		t.Lines = append(t.Lines, l)
	}
	if len(origins) > 0 {
		return noTable("%d bytes of lineage are of no row", len(origins))
	}
	return nil
}

func (t *Table) readTexts(raw []byte) error {
	var texts []string
	for len(raw) > 0 {
		if len(raw) < 4 || uint64(le.Uint32(raw)) > uint64(len(raw)-4) {
			return noTable("a text is cut off")
		}
		n := le.Uint32(raw)
		texts, raw = append(texts, string(raw[4:4+n])), raw[4+n:]
	}
	if len(texts) == 0 {
		return noTable("it has no topology")
	}
	t.Topology, t.Joined = texts[0], texts[1:]
	return nil
}

// Tensor returns a tensor as it lies in body, which has the table's bytes. An error says that its
// size is not that of its shape.
func (p Placed) Tensor(body []byte) (WireTensor, error) {
	end := p.Offset + p.Size
	w := WireTensor{Tensor{p.Name, p.DType, p.Shape, body[p.Offset:end:end]}, p.Wire}
	return w, w.Check()
}
