package format

import "slices"

// Good returns the records that are neither bad nor named by except, with some of the
// columns in this order, and their places in the batch. It shares the batch's memory.
func (b *Batch) Good(columns []int, except map[int]error) (good *Batch, records []int32) {
	good = &Batch{}
	for i, place := range b.places {
		if _, out := except[i]; out || place < 0 {
			continue
		}
		good.addKey(b.rows[i], b.part(i))
		good.places = append(good.places, int32(len(records)))
		records = append(records, int32(i))
	}
	for _, c := range columns {
		good.columns = append(good.columns, b.gather(c, records))
		if b.types != nil {
			good.types = append(good.types, b.types[c])
		}
	}
	good.takeLacks(b, columns, records)
	good.size = good.memory()
	return good, records
}

// addKey appends the row and part of a record.
func (b *Batch) addKey(row int64, part int32) {
	if part != 0 && b.parts == nil {
		b.parts = make([]int32, len(b.rows), cap(b.rows)+1)
	}
	if b.rows = append(b.rows, row); b.parts != nil {
		b.parts = append(b.parts, part)
	}
}

// Side is a column of one of the two batches of a Join.
type Side struct {
	Right  bool
	Column int
}

// Join makes a batch of records whose columns are those of a record of one batch, left,
// and of one of another, right.
type Join struct {
	left, right *Batch
	out         Batch
	records     [2][]int32 // of each good record, its places in left and right
}

// NewJoin returns a Join without records.
func NewJoin(left, right *Batch) *Join { return &Join{left: left, right: right} }

// Add appends a record of the values of record l of left and record r of right, which are
// not bad.
func (j *Join) Add(row int64, part int32, l, r int) {
	j.out.addKey(row, part)
	j.out.places = append(j.out.places, int32(len(j.records[0])))
	j.records[0], j.records[1] = append(j.records[0], int32(l)), append(j.records[1], int32(r))
}

// AddBad appends a bad record.
func (j *Join) AddBad(row int64, part int32, err error) {
	j.out.addKey(row, part)
	j.out.places = append(j.out.places, int32(^len(j.out.bad)))
	j.out.bad = append(j.out.bad, err)
}

// Batch returns the records with these columns. It shares memory with both batches where
// that holds no more than twice what it needs.
func (j *Join) Batch(columns []Side) *Batch {
	out := &j.out
	for _, side := range columns {
		from, at := j.left, j.records[0]
		if side.Right {
			from, at = j.right, j.records[1]
		}
		out.columns = append(out.columns, from.gather(side.Column, at))
		var typ Type // of what a function gave nothing is known
		if from.types != nil {
			typ = from.types[side.Column]
		}
		out.types = append(out.types, typ)
	}
	for right, from := range []*Batch{j.left, j.right} {
		of := make([]int, len(columns)) // columns of from that have a place in out
		for i, side := range columns {
			if of[i] = side.Column; side.Right != (right == 1) {
				of[i] = -1
			}
		}
		var records []int32 // of from, for every record of out
		for _, place := range out.places {
			if place < 0 {
				records = append(records, -1)
			} else {
				records = append(records, j.records[right][place])
			}
		}
		out.takeLacks(from, of, records)
	}
	out.size = out.memory()
	return out
}

// takeLacks copies what is said of absent values: column i of b is columns[i] of from,
// and record i of b is records[i] of from.
func (b *Batch) takeLacks(from *Batch, columns []int, records []int32) {
	if len(from.lacks) == 0 {
		return
	}
	at := map[int][]int{}
	for i, record := range records {
		at[int(record)] = append(at[int(record)], i)
	}
	for _, l := range from.lacks {
		for c, column := range columns {
			if column != l.column {
				continue
			}
			for _, record := range at[l.record] {
				b.lacks = append(b.lacks, lack{record, c, l.missing, l.has})
			}
		}
	}
}

// gather returns the values of a column in these records, which are not bad.
func (b *Batch) gather(number int, records []int32) column {
	if len(records) == 0 { // the batch may not even have columns
		return column{}
	}
	c := &b.columns[number]
	all := len(records) == len(c.kinds)
	for i := 0; all && i < len(records); i++ {
		all = int(b.places[records[i]]) == i
	}
	if all {
		return c.shared()
	}
	if 2*len(records) < len(c.kinds) { // do not hold on to what most records had
		var few column
		for _, r := range records {
			v := c.value(int(b.places[r]))
			few.add(&v)
		}
		return few
	}
	some := c.shared()
	some.kinds, some.numbers, some.sizes = nil, nil, nil
	for _, r := range records {
		at := b.places[r]
		some.kinds, some.numbers, some.sizes = append(some.kinds, c.kinds[at]), append(some.numbers, c.numbers[at]), append(some.sizes, c.sizes[at])
	}
	return some
}

// shared returns the column for a batch beside its own. Values added to the one are not
// written into the memory of the other.
func (c *column) shared() column {
	s := column{kinds: slices.Clip(c.kinds), numbers: slices.Clip(c.numbers), sizes: slices.Clip(c.sizes), bytes: slices.Clip(c.bytes), tokens: slices.Clip(c.tokens)}
	if c.elements != nil {
		elements := c.elements.shared()
		s.elements = &elements
	}
	return s
}

// memory is Bytes of a batch that may share values, each of which counts once.
func (b *Batch) memory() int64 {
	n := int64(rowBytes*len(b.rows)+partBytes*len(b.parts)) + int64(lackBytes*len(b.lacks)+errorBytes*len(b.bad))
	for i := range b.columns {
		n += b.columns[i].memory()
	}
	return n
}

func (c *column) memory() int64 {
	n := int64(valueBytes*len(c.kinds) + len(c.bytes) + 4*len(c.tokens))
	if c.elements != nil {
		n += c.elements.memory()
	}
	return n
}
