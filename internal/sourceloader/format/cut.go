package format

// Concat returns the records of batches one after the other. One batch it returns as it is.
func Concat(batches []*Batch) *Batch {
	if len(batches) == 1 {
		return batches[0]
	}
	out := &Batch{}
	for _, b := range batches {
		out.copy(b, 0, b.Len())
	}
	return out
}

// copy appends copies of records lo to hi of a batch.
func (b *Batch) copy(from *Batch, lo, hi int) {
	var rec Record
	for i := lo; i < hi; i++ {
		from.Record(i, &rec)
		b.Add(&rec)
	}
}

// First returns copies of the first n records.
func (b *Batch) First(n int) *Batch {
	out := &Batch{}
	out.copy(b, 0, n)
	return out
}

// SizeOf is how many bytes record i is, wherever its values lie.
func (b *Batch) SizeOf(i int) int64 {
	n := int64(rowBytes)
	if b.part(i) != 0 {
		n += partBytes
	}
	place := int(b.places[i])
	if place < 0 {
		return n + errorBytes
	}
	for c := range b.columns {
		n += b.columns[c].sizeOf(place)
	}
	return n
}

func (c *column) sizeOf(i int) int64 {
	n, size := int64(valueBytes), int(c.sizes[i])
	switch c.kinds[i] &^ isAbsent {
	case String, Bytes:
		n += int64(size)
	case Tokens:
		n += 4 * int64(size)
	case List:
		for j := range size {
			n += c.elements.sizeOf(int(c.numbers[i]) + j)
		}
	}
	return n
}

// Cutter divides records that come in batches into batches of a target size, never between
// the parts of a record. The same records give the same batches, however they come. It is for one
// goroutine, and keeps what it was given until it has given that on.
type Cutter struct {
	target int64
	give   func(*Batch) error
	held   []stretch
	bytes  int64
}

// stretch is records lo to hi of a batch.
type stretch struct {
	batch  *Batch
	lo, hi int
}

// NewCutter returns a Cutter that calls give with each batch as soon as it has target bytes.
func NewCutter(target int64, give func(*Batch) error) *Cutter {
	return &Cutter{target: target, give: give}
}

// Held is how many bytes wait for more.
func (c *Cutter) Held() int64 { return c.bytes }

// Add takes the records that come next, whole ones.
func (c *Cutter) Add(b *Batch) error {
	lo := 0
	for i := range b.Len() {
		c.bytes += b.SizeOf(i)
		last := i+1 == b.Len()
		if c.bytes < c.target || !last && b.rows[i+1] == b.rows[i] {
			continue
		}
		c.held = append(c.held, stretch{b, lo, i + 1})
		lo = i + 1
		if err := c.give(c.Rest()); err != nil {
			return err
		}
	}
	if lo < b.Len() {
		c.held = append(c.held, stretch{b, lo, b.Len()})
	}
	return nil
}

// Rest returns what has less than target bytes, and starts over.
func (c *Cutter) Rest() *Batch {
	held := c.held
	c.held, c.bytes = nil, 0
	if len(held) == 1 && held[0].hi-held[0].lo == held[0].batch.Len() {
		return held[0].batch
	}
	out := &Batch{}
	for _, s := range held {
		out.copy(s.batch, s.lo, s.hi)
	}
	return out
}
