package parquet

import (
	"bytes"
	"context"
	"hash/crc32"
	"io"

	pq "github.com/parquet-go/parquet-go/format"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
)

const (
	// maxPageBytes bounds one page or dictionary, uncompressed. Writers aim at
	// 1 MiB; the longest seen are 100 MB (DuckDB's limit); a page of one image
	// or book is as long as that value.
	maxPageBytes = 256 << 20
	// A page of run-length code can hold any number of values in a few bytes,
	// whose levels take a byte or two each. A page may have maxRunValues
	// whatever its length is (a row group of 1 Mi equal rows is common) and
	// valuesPerByte beyond.
	maxRunValues  = 16 << 20
	valuesPerByte = 8
	// pageWindow is the size of one ranged read of a column chunk: few
	// requests to an object store, little memory for many columns. Writers end a page when its
	// values are past 1 MiB, and its levels come on top: a window of just that would end inside
	// every page, whose beginning would be moved to read the rest.
	pageWindow = 1<<20 + 1<<16
	// maxPageHeader bounds a page header, which may hold two statistics values.
	maxPageHeader = 16 << 20
	// plainDictionary is the name that writers of before Parquet 2.0 give to Plain for
	// dictionaries and to RLEDictionary for pages. Old files have it.
	plainDictionary = pq.Encoding(2)
)

// pageHeader is what is needed of Parquet's PageHeader.
type pageHeader struct {
	kind       pq.PageType
	size       int // uncompressed, in bytes
	compressed int
	crc        uint32
	hasCRC     bool
	values     int // with nulls
	encoding   pq.Encoding
	defLevels  pq.Encoding // version 1
	repLevels  pq.Encoding
	defBytes   int // version 2
	repBytes   int
	plain      bool // version 2: the values are not compressed
}

func (h *pageHeader) decode(buf []byte) (int, error) {
	*h = pageHeader{}
	t := &thriftReader{buf: buf}
	t.fields(thriftStruct, func(id int, typ byte) {
		switch id {
		case 1:
			h.kind = pq.PageType(t.int(typ))
		case 2:
			h.size = int(t.int(typ))
		case 3:
			h.compressed = int(t.int(typ))
		case 4:
			h.crc, h.hasCRC = uint32(t.int(typ)), true
		case 5:
			h.decodeV1(t, typ)
		case 7:
			h.decodeV1(t, typ) // a dictionary's header has the first two fields
		case 8:
			h.decodeV2(t, typ)
		default:
			t.skip(typ, false)
		}
	})
	if t.err != nil {
		return 0, t.err
	}
	return t.pos, h.validate()
}

func (h *pageHeader) decodeV1(t *thriftReader, typ byte) {
	t.fields(typ, func(id int, typ byte) {
		switch id {
		case 1:
			h.values = int(t.int(typ))
		case 2:
			h.encoding = pq.Encoding(t.int(typ))
		case 3:
			if typ == thriftI32 {
				h.defLevels = pq.Encoding(t.int(typ))
			}
		case 4:
			h.repLevels = pq.Encoding(t.int(typ))
		default:
			t.skip(typ, false)
		}
	})
}

func (h *pageHeader) decodeV2(t *thriftReader, typ byte) {
	t.fields(typ, func(id int, typ byte) {
		switch id {
		case 1:
			h.values = int(t.int(typ))
		case 4:
			h.encoding = pq.Encoding(t.int(typ))
		case 5:
			h.defBytes = int(t.int(typ))
		case 6:
			h.repBytes = int(t.int(typ))
		case 7:
			h.plain = !t.bool(typ)
		default:
			t.skip(typ, false)
		}
	})
}

func (h *pageHeader) validate() error {
	switch levels := h.defBytes + h.repBytes; {
	case h.size < 0 || h.compressed < 0 || h.values < 0 || h.defBytes < 0 || h.repBytes < 0:
		return fault.Userf("a page header holds a negative size (damaged)")
	case h.size > maxPageBytes:
		return fault.Userf("a page claims %d bytes, more than the limit of %d; write smaller pages", h.size, maxPageBytes)
	case h.values > maxRunValues+valuesPerByte*h.size:
		return fault.Userf("a page of %d bytes claims %d values, more than the limit of %d; write smaller pages", h.size, h.values, maxRunValues+valuesPerByte*h.size)
	case levels > h.compressed || levels > h.size:
		return fault.Userf("a page claims %d bytes of levels in %d bytes (damaged)", levels, min(h.compressed, h.size))
	}
	return nil
}

// chunkReader reads the bytes of one column chunk front to back through a
// window, and never a byte outside it.
type chunkReader struct {
	r        io.ReaderAt
	pos, end int64  // of the unread bytes, in the file
	window   []byte // bytes read from the file and not yet consumed
	buf      []byte
}

// left returns the number of bytes not yet consumed.
func (c *chunkReader) left() int64 { return int64(len(c.window)) + c.end - c.pos }

// peek returns the next n bytes, or fewer at the end of the chunk. They are
// valid until the next call.
func (c *chunkReader) peek(n int) ([]byte, error) {
	if n <= len(c.window) {
		return c.window[:n], nil
	}
	n = int(min(int64(n), c.left()))
	want := int(min(int64(max(n, pageWindow)), c.left()))
	if cap(c.buf) < want {
		buf := make([]byte, want)
		copy(buf, c.window)
		c.buf = buf
	} else {
		copy(c.buf[:want], c.window)
	}
	have := len(c.window)
	c.window = c.buf[:have]
	if want > have {
		if err := input.ReadFullAt(c.r, c.buf[have:want], c.pos); err != nil {
			return nil, err
		}
		c.pos += int64(want - have)
		c.window = c.buf[:want]
	}
	return c.window[:n], nil
}

func (c *chunkReader) skip(n int) { c.window = c.window[n:] }

// dataPage is one decoded data page. Its memory is reused for the next.
type dataPage struct {
	n    int // values, with nulls
	reps []uint8
	defs []uint8
	full bool // no nulls: all definition levels are the highest
	// values holds the values that are there. With a dictionary, values is the
	// dictionary and index says which.
	values *valueRun
	index  []int32
}

// pageReader decodes the pages of one column chunk one after the other. Not
// safe for concurrent use.
type pageReader struct {
	ctx   context.Context
	leaf  *node
	chunk columnChunk
	in    chunkReader
	seen  int64 // values of the pages so far

	page    dataPage
	body    []byte
	indexes []int32
	plain   valueRun
	dict    valueRun
	hasDict bool
	stored  []byte // of the dictionary, which its values may be part of
}

// open starts at a column's first page.
func (p *pageReader) open(ctx context.Context, r io.ReaderAt, f *footer, leaf *node) error {
	if leaf.column >= len(f.columns) {
		return fault.Userf("the row group has %d columns, the schema at least %d (damaged)", len(f.columns), leaf.column+1)
	}
	c := f.columns[leaf.column]
	start := c.start()
	switch {
	case c.encrypted:
		return fault.Userf("the column is encrypted; write it without encryption, keys are not supported")
	case c.external:
		return fault.Userf("the column is in another file, which is not supported; write files that hold their own data")
	case !c.present:
		return fault.Userf("the row group has no metadata for the column (damaged)")
	case c.physical != leaf.physical:
		return fault.Userf("the column is of type %s in the row group, %s in the schema (damaged)", c.physical, leaf.physical)
	case c.values < f.rows:
		return fault.Userf("the column claims %d values for %d rows (damaged)", c.values, f.rows)
	case start < 0 || c.size < 0 || c.values < 0 || start > f.dataEnd || c.size > f.dataEnd-start:
		return fault.Userf("the column claims %d bytes from offset %d, with data up to %d (damaged)", c.size, start, f.dataEnd)
	}
	p.ctx, p.leaf, p.chunk = ctx, leaf, c
	p.in.r, p.in.pos, p.in.end = r, start, f.chunkEnd(start, c.size)
	return nil
}

// next decodes the next data page, which is valid until the next call; nil at
// the end.
func (p *pageReader) next() (*dataPage, error) {
	for p.seen < p.chunk.values && p.in.left() > 0 {
		if err := p.ctx.Err(); err != nil {
			return nil, err
		}
		h, body, err := p.readPage()
		if err != nil {
			return nil, err
		}
		switch h.kind {
		case pq.DictionaryPage:
			err = p.readDictionary(h, body)
		case pq.DataPage, pq.DataPageV2:
			if int64(h.values) > p.chunk.values-p.seen {
				return nil, fault.Userf("the pages hold more than the %d values that the column claims (damaged)", p.chunk.values)
			}
			p.seen += int64(h.values)
			if h.kind == pq.DataPage {
				err = p.readV1(h, body)
			} else {
				err = p.readV2(h, body)
			}
			if err == nil && h.values > 0 {
				return &p.page, nil
			}
		case pq.IndexPage:
		default:
			err = fault.Userf("a page is of the unknown type %d", h.kind)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// readPage reads one page's header and body, as stored, and checks its CRC.
func (p *pageReader) readPage() (*pageHeader, []byte, error) {
	var h pageHeader
	for n := 1 << 10; ; n *= 4 {
		buf, err := p.in.peek(n)
		if err != nil {
			return nil, nil, err
		}
		used, err := h.decode(buf)
		if err == nil {
			p.in.skip(used)
			break
		}
		if err != errThriftShort || len(buf) < n || n >= maxPageHeader {
			return nil, nil, err
		}
	}
	if int64(h.compressed) > p.in.left() {
		return nil, nil, fault.Userf("a page claims %d bytes where the column has %d left (damaged)", h.compressed, p.in.left())
	}
	body, err := p.in.peek(h.compressed)
	if err != nil {
		return nil, nil, err
	}
	p.in.skip(h.compressed)
	if h.hasCRC && crc32.ChecksumIEEE(body) != h.crc {
		return nil, nil, fault.Userf("a page's checksum is %08x, its header says %08x: the file is damaged; write or copy it again", crc32.ChecksumIEEE(body), h.crc)
	}
	return &h, body, nil
}

func (p *pageReader) inflate(body []byte, size int) ([]byte, error) {
	if p.chunk.codec == pq.Uncompressed {
		return body, nil
	}
	out, err := decompress(p.chunk.codec, p.body, body, size)
	if err == nil {
		p.body = out
	}
	return out, err
}

func (p *pageReader) readDictionary(h *pageHeader, body []byte) error {
	if p.hasDict {
		return fault.Userf("the column has two dictionaries (damaged)")
	}
	body, err := p.inflate(body, h.size)
	if err != nil {
		return err
	}
	enc := h.encoding
	if enc == plainDictionary {
		enc = pq.Plain
	}
	p.hasDict = true
	// The values stay for all pages, so they need memory of their own.
	p.stored = bytes.Clone(body)
	return p.dict.decode(p.leaf, enc, p.stored, h.values)
}

// readV1 decodes a page whose levels are compressed along with its values.
func (p *pageReader) readV1(h *pageHeader, body []byte) error {
	body, err := p.inflate(body, h.size)
	if err != nil {
		return err
	}
	pg := &p.page
	pg.n = h.values
	if pg.reps, body, err = levelsV1(pg.reps, h.repLevels, body, h.values, p.leaf.maxRep); err != nil {
		return err
	}
	if pg.defs, body, err = levelsV1(pg.defs, h.defLevels, body, h.values, p.leaf.maxDef); err != nil {
		return err
	}
	return p.readValues(h.encoding, body)
}

// readV2 decodes a page whose levels stand uncompressed before its values.
func (p *pageReader) readV2(h *pageHeader, body []byte) error {
	pg := &p.page
	pg.n = h.values
	var err error
	if pg.reps, err = levels(pg.reps, body[:h.repBytes], h.values, p.leaf.maxRep); err != nil {
		return err
	}
	body = body[h.repBytes:]
	if pg.defs, err = levels(pg.defs, body[:h.defBytes], h.values, p.leaf.maxDef); err != nil {
		return err
	}
	body = body[h.defBytes:]
	if size := h.size - h.repBytes - h.defBytes; !h.plain && len(body) > 0 {
		if body, err = p.inflate(body, size); err != nil {
			return err
		}
	}
	return p.readValues(h.encoding, body)
}

func levelsV1(dst []uint8, enc pq.Encoding, body []byte, n, max int) ([]uint8, []byte, error) {
	if max == 0 {
		return dst[:0], body, nil
	}
	switch enc {
	case pq.RLE:
		runs, rest, err := prefixed(body)
		if err != nil {
			return nil, nil, err
		}
		dst, err = levels(dst, runs, n, max)
		return dst, rest, err
	case pq.BitPacked:
		dst = sizedInts(dst, n)
		used, err := unpackMSB(dst, body, levelWidth(max))
		if err != nil {
			return nil, nil, err
		}
		return dst, body[used:], checkLevels(dst, max)
	}
	return nil, nil, fault.Userf("the encoding %s is not supported for levels", enc)
}

func levels(dst []uint8, runs []byte, n, max int) ([]uint8, error) {
	if max == 0 {
		return dst[:0], nil
	}
	dst = sizedInts(dst, n)
	if err := decodeRuns(dst, runs, levelWidth(max)); err != nil {
		return nil, err
	}
	return dst, checkLevels(dst, max)
}

// checkLevels refuses levels beyond max, which only odd widths can hold.
func checkLevels(levels []uint8, max int) error {
	if max == 1<<levelWidth(max)-1 {
		return nil
	}
	for _, l := range levels {
		if int(l) > max {
			return fault.Userf("the page holds a level of %d, the schema allows %d (damaged)", l, max)
		}
	}
	return nil
}

// readValues decodes the values that are not null.
func (p *pageReader) readValues(enc pq.Encoding, body []byte) error {
	pg := &p.page
	there := pg.n
	if p.leaf.maxDef > 0 {
		there = bytes.Count(pg.defs, []byte{byte(p.leaf.maxDef)})
	}
	pg.full = there == pg.n
	if enc != plainDictionary && enc != pq.RLEDictionary {
		pg.values, pg.index = &p.plain, nil
		return p.plain.decode(p.leaf, enc, body, there)
	}
	p.indexes = sizedInts(p.indexes, there)
	pg.values, pg.index = &p.dict, p.indexes
	if there == 0 {
		return nil
	}
	if !p.hasDict {
		return fault.Userf("a page needs a dictionary, and the column has none (damaged)")
	}
	width, runs, err := bitWidthOf(body)
	if err != nil {
		return err
	}
	if err := decodeRuns(p.indexes, runs, width); err != nil {
		return err
	}
	for _, i := range p.indexes {
		if uint32(i) >= uint32(p.dict.n) {
			return fault.Userf("a page refers to entry %d of a dictionary of %d (damaged)", uint32(i), p.dict.n)
		}
	}
	return nil
}
