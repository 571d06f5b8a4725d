package format

import "sync"

// spareColumns holds column readers whose memory the next row group can use
// again: else half of what reading tokens allocates is buffers, and clearing them
// costs more than filling them.
var spareColumns = sync.Pool{New: func() any { return &parquetColumn{pages: new(pageReader)} }}

// release gives the column's memory to the next one. No value of it may be used
// after.
func (c *parquetColumn) release() {
	p := c.pages
	*p = pageReader{
		in:      chunkReader{buf: spare(p.in.buf)},
		page:    parquetPage{reps: spare(p.page.reps), defs: spare(p.page.defs)},
		body:    spare(p.body),
		indexes: spare(p.indexes),
		plain:   p.plain.spare(),
		dict:    p.dict.spare(),
	}
	clear(c.entries[:cap(c.entries)]) // their values borrow
	clear(c.list[:cap(c.list)])
	*c = parquetColumn{pages: p, tokens: spare(c.tokens), entries: spare(c.entries), list: spare(c.list), kept: spare(c.kept)}
	spareColumns.Put(c)
}

// spare is the memory of values without the values.
func (v *parquetValues) spare() parquetValues {
	return parquetValues{words32: spare(v.words32), words64: spare(v.words64), offs: spare(v.offs), own: spare(v.own)}
}

// spare is the empty buffer, or none if it is larger than is worth keeping.
func spare[T any](buf []T) []T {
	if cap(buf) > maxScratch/4 {
		return nil
	}
	return buf[:0]
}
