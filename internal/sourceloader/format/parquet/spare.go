package parquet

import (
	"sync"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// spareColumns holds column readers whose memory the next row group can use
// again: else half of what reading tokens allocates is buffers, and clearing them
// costs more than filling them.
var spareColumns = sync.Pool{New: func() any { return &column{pages: new(pageReader)} }}

// release implements reader.
func (c *column) release() {
	p := c.pages
	*p = pageReader{
		in:      chunkReader{buf: spare(p.in.buf)},
		page:    dataPage{reps: spare(p.page.reps), defs: spare(p.page.defs)},
		body:    spare(p.body),
		indexes: spare(p.indexes),
		plain:   p.plain.spare(),
		dict:    p.dict.spare(),
	}
	clear(c.entries[:cap(c.entries)]) // their values borrow
	clear(c.list[:cap(c.list)])
	*c = column{pages: p, tokens: spare(c.tokens), entries: spare(c.entries), list: spare(c.list), kept: spare(c.kept)}
	spareColumns.Put(c)
}

// held implements reader: the window of the file, the decoded
// page and dictionary, and scratch of values.
func (c *column) held() int64 {
	p := c.pages
	pages := cap(p.in.buf) + cap(p.page.reps) + cap(p.page.defs) + cap(p.body) + 4*cap(p.indexes)
	values := 4*cap(c.tokens) + entryBytes*cap(c.entries) + format.ValueBytes*cap(c.list) + cap(c.kept)
	return int64(pages+values) + p.plain.held() + p.dict.held() + int64(cap(p.stored))
}

// entryBytes is the memory of a entry.
const entryBytes = format.ValueBytes + 8

func (v *valueRun) held() int64 {
	return int64(4*cap(v.words32) + 8*cap(v.words64) + 4*cap(v.offs) + cap(v.own))
}

// held is the memory of the metadata that a reader keeps, in bytes, about.
func (f *footer) held() int64 {
	return int64(chunkBytes*cap(f.columns) + elementBytes*cap(f.elements))
}

// held is the memory of the index, in bytes, about.
func (x *index) held() int64 { return x.groups.Bytes() + elementBytes*int64(cap(x.elements)) }

const (
	chunkBytes   = 56  // memory of a columnChunk
	elementBytes = 320 // of an element and its node, with a short name
)

// spare is the memory of values without the values.
func (v *valueRun) spare() valueRun {
	return valueRun{words32: spare(v.words32), words64: spare(v.words64), offs: spare(v.offs), own: spare(v.own)}
}

// maxScratch is the most that is kept of the buffers of a column.
const maxScratch = 8 << 20

// spare is the empty buffer, or none if it is larger than is worth keeping.
func spare[T any](buf []T) []T {
	if cap(buf) > maxScratch/4 {
		return nil
	}
	return buf[:0]
}
