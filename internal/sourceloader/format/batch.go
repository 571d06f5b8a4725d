package format

import (
	"math"
	"slices"
)

// Batch is records by columns, in memory of its own: it may outlive its reader and
// cross to another goroutine. It is read-only once made.
type Batch struct {
	rows    []int64
	parts   []int32 // Record.Part of each record; nil if all are 0
	places  []int32 // of each record in the columns or, below 0, in bad as ^place
	bad     []error
	columns []column
	types   []Type // nil if not known
	lacks   []lack
	size    int64
}

// column holds one value for each good record, or the elements of lists one after
// the other. A value is a number, or a part of the store of its kind.
type column struct {
	kinds    []Kind // with isAbsent added
	numbers  []int64
	sizes    []int32
	bytes    []byte
	tokens   []int32
	elements *column // of lists
}

const isAbsent Kind = 1 << 7

// lack is Record.Lacks of one value.
type lack struct {
	record, column int
	missing        string
	has            []string
}

// Memory in bytes of what a batch holds besides bytes and tokens. All errors count the same: what one says may
// differ when the record is worked on again, and by their size records are cut into batches.
const (
	valueBytes = 1 + 8 + 4 // a value of a column
	lackBytes  = 56        // a lack without its names, which others share
	rowBytes   = 8 + 4     // a row and its place
	partBytes  = 4         // a part
	errorBytes = 256       // an error with its text
)

// Len is the number of records.
func (b *Batch) Len() int { return len(b.rows) }

// Bytes is the size of the records in the batch, in bytes. Memory may be up to twice
// that, as columns grow by doubling.
func (b *Batch) Bytes() int64 { return b.size }

// Key is the Row and the Part of record i.
func (b *Batch) Key(i int) (row int64, part int32) { return b.rows[i], b.part(i) }

// Record sets rec to record i, which borrows from the batch. The memory of
// rec.Values is used again.
func (b *Batch) Record(i int, rec *Record) {
	values := rec.Values[:0]
	*rec = Record{Row: b.rows[i], Part: b.part(i), Types: b.types}
	place := int(b.places[i])
	if place < 0 {
		rec.Err = b.bad[^place]
		return
	}
	for c := range b.columns {
		values = append(values, b.columns[c].value(place))
	}
	if rec.Values = values; len(b.lacks) == 0 {
		rec.Lacks = func(int) (string, []string) { return "", nil }
		return
	}
	rec.Lacks = func(column int) (string, []string) {
		for _, l := range b.lacks {
			if l.record == i && l.column == column {
				return l.missing, l.has
			}
		}
		return "", nil
	}
}

// value returns value i.
func (c *column) value(i int) Value {
	v := Value{Kind: c.kinds[i] &^ isAbsent, Absent: c.kinds[i]&isAbsent != 0}
	at, n := int(c.numbers[i]), int(c.sizes[i])
	switch v.Kind {
	case Int, Bool:
		v.Int = c.numbers[i]
	case Float:
		v.Float = math.Float64frombits(uint64(c.numbers[i]))
	case String, Bytes:
		v.Bytes = c.bytes[at : at+n : at+n]
	case Tokens:
		v.Tokens = c.tokens[at : at+n : at+n]
	case List:
		v.List = make([]Value, n)
		for j := range v.List {
			v.List[j] = c.elements.value(at + j)
		}
	}
	return v
}

func (b *Batch) part(i int) int32 {
	if b.parts == nil {
		return 0
	}
	return b.parts[i]
}

// Add appends a copy of a record, which has the columns of those before it.
func (b *Batch) Add(rec *Record) { b.add(rec, sizeOf(rec)) }

// add appends a copy of a record of this size.
func (b *Batch) add(rec *Record, size int64) {
	b.size += size
	b.addKey(rec.Row, rec.Part)
	if rec.Err != nil {
		b.places = append(b.places, int32(^len(b.bad)))
		b.bad = append(b.bad, rec.Err)
		return
	}
	b.places = append(b.places, int32(len(b.rows)-1-len(b.bad)))
	if b.columns == nil {
		b.columns = make([]column, len(rec.Values))
		b.types = slices.Clone(rec.Types)
	}
	for i := range b.columns {
		b.columns[i].add(&rec.Values[i])
		if rec.Values[i].Absent && rec.Lacks != nil {
			b.addLack(rec, len(b.rows)-1, i)
		}
	}
}

// addLack notes what the record lacks. Records that have the same fields share them.
func (b *Batch) addLack(rec *Record, at, column int) {
	missing, has := rec.Lacks(column)
	l := lack{at, column, missing, has}
	if n := len(b.lacks); n > 0 && slices.Equal(b.lacks[n-1].has, has) {
		l.has = b.lacks[n-1].has
	} else {
		l.has = slices.Clone(has)
	}
	b.lacks = append(b.lacks, l)
}

// add appends a copy of a value.
func (c *column) add(v *Value) {
	kind, number, size := v.Kind, int64(0), 0
	if v.Absent {
		kind |= isAbsent
	}
	switch v.Kind {
	case Int, Bool:
		number = v.Int
	case Float:
		number = int64(math.Float64bits(v.Float))
	case String, Bytes:
		number, size = int64(len(c.bytes)), len(v.Bytes)
		c.bytes = append(c.bytes, v.Bytes...)
	case Tokens:
		number, size = int64(len(c.tokens)), len(v.Tokens)
		c.tokens = append(c.tokens, v.Tokens...)
	case List:
		if c.elements == nil {
			c.elements = &column{}
		}
		number, size = int64(len(c.elements.kinds)), len(v.List)
		// Elements stand together; those of their own lists are a level below.
		for i := range v.List {
			c.elements.add(&v.List[i])
		}
	}
	c.kinds = append(c.kinds, kind)
	c.numbers = append(c.numbers, number)
	c.sizes = append(c.sizes, int32(size))
}

// sizeOf is what a record adds to Bytes of a batch, in bytes.
func sizeOf(rec *Record) int64 {
	n := int64(rowBytes)
	if rec.Part != 0 {
		n += partBytes
	}
	if rec.Err != nil {
		return n + errorBytes
	}
	for i := range rec.Values {
		n += sizeOfValue(&rec.Values[i])
		if rec.Values[i].Absent && rec.Lacks != nil {
			n += lackBytes
		}
	}
	return n
}

func sizeOfValue(v *Value) int64 {
	n := int64(valueBytes + len(v.Bytes) + 4*len(v.Tokens))
	for i := range v.List {
		n += sizeOfValue(&v.List[i])
	}
	return n
}

// BatchReader reads the records of a Reader in batches, for whoever hands them to
// another goroutine. It is not safe for concurrent use. The Reader stays the
// caller's to close.
type BatchReader struct {
	r     Reader
	ahead *Record // read, but for the next batch
	err   error   // what ended the reader
}

// NewBatchReader returns a reader of what r still has.
func NewBatchReader(r Reader) *BatchReader { return &BatchReader{r: r} }

// ReadBatch returns the next records, as many as limit bytes hold but at least one,
// and the position behind them; io.EOF if there are no more. What was read before
// an error of the file is returned first, the error by the next call.
func (b *BatchReader) ReadBatch(limit int64) (*Batch, Position, error) {
	batch, next := &Batch{}, Position(0)
	for {
		if b.ahead == nil && b.err == nil {
			b.ahead, b.err = b.r.Next()
		}
		if b.err != nil && batch.Len() == 0 {
			return nil, 0, b.err
		}
		size := int64(0)
		if b.err == nil {
			size = sizeOf(b.ahead)
		}
		if batch.Len() > 0 && (b.err != nil || batch.size+size > limit) {
			return batch, next, nil
		}
		batch.add(b.ahead, size)
		next, b.ahead = b.ahead.After(), nil
	}
}
