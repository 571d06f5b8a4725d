package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// decoder reads a batch that a worker wrote, and believes nothing of it: the process may
// be out of its mind, or still writing. So each word is read once, and text is checked in
// the copy.
type decoder struct {
	memory []byte
	nodes  [][nodeWords]int
}

// boolBytes is what a bool takes that was decoded, of which a batch has eight in a byte.
const boolBytes = 1 + 8 + 4

// mostBools is how many a column may have in lists, so that it takes no more than a batch may.
const mostBools = MaxBatch / boolBytes

// errTooMany is that a column is a right one, and larger than is taken.
var errTooMany = fmt.Errorf("at most %d fit: give fewer, or bytes of eight each", mostBools)

// decode reads a batch of these columns that came from given rows. from is the
// row that each row came from: none falls, and all are below given.
func decode(memory []byte, all []Column, given int) (columns []format.Column, from []int32, err error) {
	if len(memory) < headWords*8 {
		return nil, nil, fmt.Errorf("it has %d bytes", len(memory))
	}
	var head [headWords]int
	for i := range head {
		head[i] = int(binary.LittleEndian.Uint64(memory[8*i:]))
	}
	rows, nodes := head[1], 0
	for _, c := range all {
		nodes += c.Type.nodes()
	}
	switch {
	case head[0] != batchMagic || head[2] != nodes || len(memory) < 8*(headWords+nodeWords*nodes):
		return nil, nil, fmt.Errorf("its head is %x, and %d nodes are wanted", head, nodes)
	case rows < 0 || rows > max(given, len(memory)/4):
		return nil, nil, fmt.Errorf("it says %d rows", rows)
	}
	d := &decoder{memory: memory, nodes: make([][nodeWords]int, nodes)}
	for i := range d.nodes {
		for j := range d.nodes[i] {
			d.nodes[i][j] = int(binary.LittleEndian.Uint64(memory[8*(headWords+nodeWords*i+j):]))
		}
	}
	if from, err = d.origins(head[3], rows, given); err != nil {
		return nil, nil, err
	}
	for _, column := range all {
		c, err := d.column(column.Type, rows)
		if err != nil {
			return nil, nil, fmt.Errorf("column %q: %w", column.Name, err)
		}
		columns = append(columns, c)
	}
	return columns, from, nil
}

// origins reads the row that each row came from; at 0 is one for one.
func (d *decoder) origins(at, rows, given int) ([]int32, error) {
	if at == 0 {
		if rows != given {
			return nil, fmt.Errorf("it has %d rows for %d", rows, given)
		}
		return format.Ordinals(rows), nil
	}
	data, err := d.slice(at, 4*rows)
	if err != nil {
		return nil, err
	}
	from := make([]int32, rows)
	last := int32(0)
	for i := range from {
		from[i] = int32(binary.LittleEndian.Uint32(data[4*i:]))
		if from[i] < last || int(from[i]) >= given {
			return nil, fmt.Errorf("row %d came from row %d of %d, after one from %d", i, from[i], given, last)
		}
		last = from[i]
	}
	return from, nil
}

func (d *decoder) slice(at, size int) ([]byte, error) {
	if at < 0 || at%alignment != 0 || size < 0 || at > len(d.memory) || size > len(d.memory)-at {
		return nil, fmt.Errorf("a buffer of %d bytes at %d of %d", size, at, len(d.memory))
	}
	return d.memory[at : at+size], nil
}

// column reads the next node, of this many values.
func (d *decoder) column(t Type, length int) (c format.Column, err error) {
	node := d.nodes[0]
	d.nodes = d.nodes[1:]
	if node[0] != length || node[1] < 0 || node[1] > length || node[1] > 0 && !t.Nullable {
		return c, fmt.Errorf("it has %d values, %d of them null, for %d of %s", node[0], node[1], length, t)
	}
	if t.Kind != format.Bool && length > len(d.memory)/4 || length > 8*len(d.memory) {
		return c, fmt.Errorf("%d values in %d bytes", length, len(d.memory))
	}
	c.Kinds = kinds(t.Kind, length)
	if node[1] > 0 {
		c.Kinds = slices.Clone(c.Kinds)
		if err := d.nulls(&c, node[2], node[1]); err != nil {
			return c, err
		}
	}
	switch t.Kind {
	case format.Int, format.Float:
		err = d.numbers(&c, node[4])
	case format.Bool:
		err = d.bools(&c, node[4])
	default:
		err = d.parts(&c, t, node)
	}
	return c, err
}

func (d *decoder) nulls(c *format.Column, at, want int) error {
	bits, err := d.slice(at, (len(c.Kinds)+7)/8)
	if err != nil {
		return err
	}
	found := 0
	for i := range c.Kinds {
		if bits[i/8]>>(i%8)&1 == 0 {
			c.Kinds[i] = format.Null
			found++
		}
	}
	if found != want {
		return fmt.Errorf("%d nulls of %d", found, want)
	}
	return nil
}

func (d *decoder) numbers(c *format.Column, at int) error {
	data, err := d.slice(at, 8*len(c.Kinds))
	if err != nil {
		return err
	}
	c.Numbers, c.Sizes = copied[int64](data), zeros(len(c.Kinds))
	blank(c)
	return nil
}

func (d *decoder) bools(c *format.Column, at int) error {
	data, err := d.slice(at, (len(c.Kinds)+7)/8)
	if err != nil {
		return err
	}
	c.Numbers, c.Sizes = make([]int64, len(c.Kinds)), zeros(len(c.Kinds))
	for i := range c.Numbers {
		c.Numbers[i] = int64(data[i/8] >> (i % 8) & 1)
	}
	blank(c)
	return nil
}

// blank has a null of numbers be 0, whatever its place holds.
func blank(c *format.Column) {
	if count(c.Kinds, format.Null) == 0 {
		return
	}
	for i, kind := range c.Kinds {
		if kind == format.Null {
			c.Numbers[i] = 0
		}
	}
}

// parts reads values of many elements: texts, bytes, token ids, lists.
func (d *decoder) parts(c *format.Column, t Type, node [nodeWords]int) error {
	count, err := d.offsets(c, node[3])
	if err != nil {
		return err
	}
	if t.Kind == format.List {
		if t.Of.Kind == format.Bool && count > mostBools {
			return fmt.Errorf("%d bools in lists, %w", count, errTooMany)
		}
		elements, err := d.column(*t.Of, count)
		c.Elements = &elements
		return err
	}
	width := 1
	if t.Kind == format.Tokens {
		width = 4
	}
	data, err := d.slice(node[4], width*count)
	if err != nil {
		return err
	}
	if t.Kind == format.Tokens {
		c.Tokens = copied[int32](data)
		return nil
	}
	c.Bytes = slices.Clone(data)
	if t.Kind == format.String {
		return checkText(c)
	}
	return nil
}

// offsets reads where values begin and how long they are, and returns the elements of all.
func (d *decoder) offsets(c *format.Column, at int) (count int, err error) {
	n := len(c.Kinds)
	data, err := d.slice(at, 4*(n+1))
	if err != nil {
		return 0, err
	}
	c.Numbers, c.Sizes = make([]int64, n), make([]int32, n)
	last := int32(binary.LittleEndian.Uint32(data))
	if last != 0 {
		return 0, fmt.Errorf("the first offset is %d", last)
	}
	for i := range n {
		next := int32(binary.LittleEndian.Uint32(data[4*(i+1):]))
		null := c.Kinds[i] == format.Null
		if next < last || null && next != last {
			return 0, fmt.Errorf("value %d is from %d to %d", i, last, next)
		}
		if !null {
			c.Numbers[i], c.Sizes[i] = int64(last), next-last
		}
		last = next
	}
	return int(last), nil
}

// checkText checks that each value is UTF-8: the bytes of all are, and each begins with a character.
func checkText(c *format.Column) error {
	valid := utf8.Valid(c.Bytes)
	for i, at := range c.Numbers {
		valid = valid && (c.Sizes[i] == 0 || utf8.RuneStart(c.Bytes[at]))
	}
	if !valid {
		return errors.New("text that is not UTF-8")
	}
	return nil
}

// join appends columns of the same types to others.
func join(to, more []format.Column) []format.Column {
	if to == nil {
		return more
	}
	for i := range to {
		joinColumn(&to[i], &more[i])
	}
	return to
}

func joinColumn(to, more *format.Column) {
	elements := 0
	if to.Elements != nil {
		elements = len(to.Elements.Kinds)
	}
	for i, at := range more.Numbers {
		switch more.Kinds[i] {
		case format.String, format.Bytes:
			at += int64(len(to.Bytes))
		case format.Tokens:
			at += int64(len(to.Tokens))
		case format.List:
			at += int64(elements)
		}
		to.Numbers = append(to.Numbers, at)
	}
	to.Kinds, to.Sizes = append(to.Kinds, more.Kinds...), append(to.Sizes, more.Sizes...)
	to.Bytes, to.Tokens = append(to.Bytes, more.Bytes...), append(to.Tokens, more.Tokens...)
	if more.Elements != nil {
		joinColumn(to.Elements, more.Elements)
	}
}
