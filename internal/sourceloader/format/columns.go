package format

import "context"

// Column is a whole column of a batch, for whoever moves or makes batches by columns: a
// value for each good record, or the elements of lists one after the other. It shares the
// batch's memory and is read-only.
type Column struct {
	Kinds   []Kind  // with AbsentKind added where Value.Absent is set
	Numbers []int64 // of Int and Bool; bits of Float; else where the value begins in Bytes, Tokens or Elements
	Sizes   []int32 // bytes, token ids or elements; 0 for numbers
	Bytes   []byte
	Tokens  []int32
	// Elements of lists, or nil.
	Elements *Column
}

// AbsentKind is added to a Null of a Column that is Value.Absent.
const AbsentKind = isAbsent

// Columns returns the columns of a batch, which have a value for each record that is not
// bad; nil if there is none such.
func (b *Batch) Columns() []Column {
	columns := make([]Column, len(b.columns))
	for i := range b.columns {
		columns[i] = b.columns[i].whole()
	}
	return columns
}

func (c *column) whole() Column {
	w := Column{Kinds: c.kinds, Numbers: c.numbers, Sizes: c.sizes, Bytes: c.bytes, Tokens: c.tokens}
	if c.elements != nil {
		elements := c.elements.whole()
		w.Elements = &elements
	}
	return w
}

// Refused reports whether there is a bad record.
func (b *Batch) Refused() bool { return len(b.bad) > 0 }

// Rows are Record.Row of all records. They are the batch's, and read-only.
func (b *Batch) Rows() []int64 { return b.rows }

// Bad returns the error of record i if it is bad.
func (b *Batch) Bad(i int) error {
	if place := b.places[i]; place < 0 {
		return b.bad[^place]
	}
	return nil
}

// FromColumns makes a batch of columns, whose memory becomes the batch's. There is a row
// for each record, and an error for each that is bad; bad may be nil if none is. Columns
// have a value for each good record, in order.
func FromColumns(rows []int64, bad []error, columns []Column) *Batch {
	b := &Batch{rows: rows, size: int64(len(rows)) * rowBytes}
	if bad == nil {
		b.places = Ordinals(len(rows))
	} else {
		b.place(bad)
	}
	for _, c := range columns {
		own := c.own()
		b.size += own.bytesOf()
		b.columns = append(b.columns, own)
	}
	return b
}

// place sets where each record is, some of which may be bad.
func (b *Batch) place(bad []error) {
	b.places = make([]int32, len(b.rows))
	good := int32(0)
	for i, err := range bad {
		if err != nil {
			b.places[i] = int32(^len(b.bad))
			b.bad = append(b.bad, err)
			b.size += errorBytes
			continue
		}
		b.places[i] = good
		good++
	}
}

func (c *Column) own() column {
	o := column{kinds: c.Kinds, numbers: c.Numbers, sizes: c.Sizes, bytes: c.Bytes, tokens: c.Tokens}
	if c.Elements != nil {
		elements := c.Elements.own()
		o.elements = &elements
	}
	return o
}

// bytesOf is what the values of a column add to Bytes of a batch.
func (c *column) bytesOf() int64 {
	n := int64(len(c.kinds))*valueBytes + int64(len(c.bytes)) + 4*int64(len(c.tokens))
	if c.elements != nil {
		n += c.elements.bytesOf()
	}
	return n
}

// fileKey is the key of a context's file.
type fileKey struct{}

// WithFile returns a context for work on the records of one file, by its number in the
// manifest. What is drawn by chance for a record is keyed by it.
func WithFile(ctx context.Context, file int) context.Context {
	return context.WithValue(ctx, fileKey{}, file)
}

// FileOf returns the number that WithFile was given.
func FileOf(ctx context.Context) (file int, ok bool) {
	file, ok = ctx.Value(fileKey{}).(int)
	return file, ok
}
