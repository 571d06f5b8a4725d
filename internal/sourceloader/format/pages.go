package format

import (
	"encoding/binary"
	"errors"
	"iter"
)

// A batch may leave memory, but for what has no form outside of it: errors, types, and what records lack.

// Outline is what stays in memory of a batch whose pages are elsewhere.
type Outline struct{ kept Batch }

// Outline returns that of the batch.
func (b *Batch) Outline() *Outline {
	return &Outline{Batch{bad: b.bad, types: b.types, lacks: b.lacks, size: b.size}}
}

// Bytes is the memory that it takes.
func (o *Outline) Bytes() int64 {
	return int64(lackBytes*len(o.kept.lacks) + errorBytes*len(o.kept.bad))
}

// mostPage is the size of a page, in bytes, at most: so much memory it takes to write or read a batch.
const mostPage = 64 << 10

// errPages says that pages are not those of a batch. They were read as they were written, so it is a bug.
var errPages = errors.New("the pages of a batch are of another one")

// Pages returns all of the batch but its outline, each page borrowed until the next one. Only this version
// of the program reads them.
func (b *Batch) Pages() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		w := &pageWriter{yield: yield, page: make([]byte, 0, mostPage+8)}
		w.longs(b.rows)
		w.ints(b.parts)
		w.ints(b.places)
		w.number(int64(len(b.columns)))
		for i := range b.columns {
			w.column(&b.columns[i])
		}
		if len(w.page) > 0 && !w.over {
			yield(w.page)
		}
	}
}

type pageWriter struct {
	yield func([]byte) bool
	page  []byte
	over  bool // nobody wants more
}

// room ends the page if it is full.
func (w *pageWriter) room() {
	if len(w.page) >= mostPage {
		w.over = w.over || !w.yield(w.page)
		w.page = w.page[:0]
	}
}

func (w *pageWriter) number(n int64) {
	w.room()
	w.page = binary.LittleEndian.AppendUint64(w.page, uint64(n))
}

func (w *pageWriter) longs(all []int64) {
	w.number(int64(len(all)))
	for _, n := range all {
		w.number(n)
	}
}

func (w *pageWriter) ints(all []int32) {
	w.number(int64(len(all)))
	for _, n := range all {
		w.room()
		w.page = binary.LittleEndian.AppendUint32(w.page, uint32(n))
	}
}

func (w *pageWriter) bytes(all []byte) {
	w.number(int64(len(all)))
	for len(all) > 0 {
		w.room()
		n := min(len(all), mostPage-len(w.page))
		w.page, all = append(w.page, all[:n]...), all[n:]
	}
}

func (w *pageWriter) column(c *column) {
	kinds := make([]byte, len(c.kinds))
	for i, k := range c.kinds {
		kinds[i] = byte(k)
	}
	w.bytes(kinds)
	w.longs(c.numbers)
	w.ints(c.sizes)
	w.bytes(c.bytes)
	w.ints(c.tokens)
	if c.elements == nil {
		w.number(0)
		return
	}
	w.number(1)
	w.column(c.elements)
}

// Fill returns the batch whose outline this is. The pages are those of Pages, in their order; each is used before the
// next is asked for.
func (o *Outline) Fill(pages iter.Seq[[]byte]) (*Batch, error) {
	next, stop := iter.Pull(pages)
	defer stop()
	r := &pageReader{next: next}
	b := o.kept
	b.rows, b.parts, b.places = r.longs(), r.ints(), r.ints()
	for range r.count() {
		b.columns = append(b.columns, r.column())
	}
	_, more := next()
	if r.err != nil || more || len(r.page) > 0 || len(b.places) != len(b.rows) {
		return nil, errPages
	}
	return &b, nil
}

type pageReader struct {
	next func() ([]byte, bool)
	page []byte
	err  error
}

// take returns the next bytes, n or fewer if a page ends before; they are never none unless something is wrong.
func (r *pageReader) take(n int) []byte {
	if len(r.page) == 0 && r.err == nil {
		page, ok := r.next()
		if !ok {
			r.err = errPages
		}
		r.page = page
	}
	n = min(n, len(r.page))
	taken := r.page[:n]
	r.page = r.page[n:]
	return taken
}

// whole returns the next n bytes, which a page has together.
func (r *pageReader) whole(n int) []byte {
	taken := r.take(n)
	if len(taken) < n {
		r.err = errPages
		return make([]byte, n)
	}
	return taken
}

// count is how many elements follow.
func (r *pageReader) count() int64 {
	n := int64(binary.LittleEndian.Uint64(r.whole(8)))
	if r.err != nil {
		return 0
	}
	return n
}

func (r *pageReader) longs() (all []int64) {
	n := r.count()
	if n > 0 {
		all = make([]int64, n)
	}
	for i := range all {
		all[i] = int64(binary.LittleEndian.Uint64(r.whole(8)))
	}
	return all
}

func (r *pageReader) ints() (all []int32) {
	n := r.count()
	if n > 0 {
		all = make([]int32, n)
	}
	for i := range all {
		all[i] = int32(binary.LittleEndian.Uint32(r.whole(4)))
	}
	return all
}

func (r *pageReader) bytes() (all []byte) {
	n := r.count()
	if n > 0 {
		all = make([]byte, 0, n)
	}
	for int64(len(all)) < n && r.err == nil {
		all = append(all, r.take(int(n)-len(all))...)
	}
	return all
}

func (r *pageReader) column() (c column) {
	for _, k := range r.bytes() {
		c.kinds = append(c.kinds, Kind(k))
	}
	c.numbers, c.sizes, c.bytes, c.tokens = r.longs(), r.ints(), r.bytes(), r.ints()
	if r.count() > 0 {
		elements := r.column()
		c.elements = &elements
	}
	return c
}
