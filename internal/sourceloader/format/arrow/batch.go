package arrow

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/compress"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
)

const (
	// maxInflated bounds the decompressed bytes of one batch's wanted columns.
	maxInflated = 1 << 30
	// maxValues bounds the values of a field, so that their number times
	// their width cannot overflow. The bytes of the file bound them tighter,
	// but for nulls and empty structs.
	maxValues = 1 << 40
	// readGap is the distance up to which two buffers are read in one request.
	readGap = 4 << 10
)

// vector is one field of a batch as loaded. Only the fields on the way to
// wanted leaves are there. Its lengths are checked at loading, so that indexes
// below n are safe.
type vector struct {
	f        *field
	n        int
	valid    []byte // bitmap, nil if nothing is null
	values   []byte // values, offsets, views, indexes of a dictionary
	more     []byte // text of offsets, sizes of list views
	views    [][]byte
	children []*vector // nil where not wanted
	dict     []*vector // values of a dictionary, in parts
}

// loader loads the wanted fields of one batch and the dictionaries they
// refer to.
type loader struct {
	ctx          context.Context
	file         messages
	wanted       map[*field]bool
	dictionaries []dictionaryPlace
	loaded       map[*field][]*vector
	inflated     int64 // bytes so far
	held         int64 // memory of the buffers that arrays refer to, in bytes
}

// load reads the batch of m, whose columns are the children of root.
func (l *loader) load(m *message, batch flatTable, root *field) (*vector, error) {
	if err := l.ctx.Err(); err != nil {
		return nil, err
	}
	w := &batchWalker{loader: l, m: m, batch: batch}
	w.nodes, w.nodeCount = batch.vector(1, 16)
	w.buffers, w.bufferCount = batch.vector(2, 16)
	w.counts, w.countCount = batch.vector(4, 8)
	a := &vector{f: root, n: int(batch.int64(0)), children: make([]*vector, len(root.children))}
	for i, f := range root.children {
		child, err := w.walk(f, l.wanted[f])
		if err != nil {
			return nil, err
		}
		if a.children[i] = child; child != nil && child.n != a.n {
			return nil, fault.Userf("the field %s has %d values in a batch of %d rows (damaged)", f, child.n, a.n)
		}
	}
	if batch.b.damaged {
		return nil, batch.b.err()
	}
	if err := w.fetch(); err != nil {
		return nil, err
	}
	for _, check := range w.checks {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// batchWalker goes through the fields of a batch in the order in which their
// nodes and buffers are listed.
type batchWalker struct {
	loader *loader
	m      *message
	batch  flatTable

	nodes, nodeCount     int // vector of lengths and null counts
	buffers, bufferCount int // vector of offsets and lengths
	counts, countCount   int // vector of numbers of view buffers

	requests []bufferRequest
	checks   []func() error // to run when the buffers are there
}

type bufferRequest struct {
	off, size int64 // in the body
	into      *[]byte
}

// walk passes over the field and all below it. If it is wanted, its buffers are
// requested and the array is returned.
func (w *batchWalker) walk(f *field, wanted bool) (*vector, error) {
	if w.nodeCount == 0 {
		return nil, fault.Userf("the batch ends before the field %s (damaged)", f)
	}
	n, nulls := w.batch.i64At(w.nodes), w.batch.i64At(w.nodes+8)
	w.nodes, w.nodeCount = w.nodes+16, w.nodeCount-1
	if n < 0 || n > maxValues || nulls < 0 {
		return nil, fault.Userf("the field %s claims %d values, %d of them null (damaged)", f, n, nulls)
	}
	a := &vector{f: f, n: int(n)}
	into := []*[]byte{&a.valid, &a.values, &a.more}
	count := f.nodeBuffers(w.m.version)
	if f.dictionary == nil && f.isView() {
		extra, err := w.viewCount(f)
		if err != nil {
			return nil, err
		}
		a.views = make([][]byte, extra)
		into = into[:2]
		for i := range a.views {
			into = append(into, &a.views[i])
		}
		count += extra
	}
	if err := w.request(f, count, into, wanted, nulls); err != nil {
		return nil, err
	}
	if f.dictionary == nil {
		a.children = make([]*vector, len(f.children))
		for i, c := range f.children {
			child, err := w.walk(c, wanted && w.loader.wanted[c])
			if err != nil {
				return nil, err
			}
			a.children[i] = child
		}
	}
	if !wanted {
		return nil, nil
	}
	w.checks = append(w.checks, a.check)
	if f.dictionary == nil {
		return a, nil
	}
	var err error
	a.dict, err = w.loader.dictionary(f)
	return a, err
}

func (w *batchWalker) viewCount(f *field) (int, error) {
	if w.countCount == 0 {
		return 0, fault.Userf("the batch does not say how many buffers the field %s has (damaged)", f)
	}
	n := w.batch.i64At(w.counts)
	w.counts, w.countCount = w.counts+8, w.countCount-1
	if n < 0 || n > int64(w.bufferCount) {
		return 0, fault.Userf("the field %s claims %d buffers, %d are left (damaged)", f, n, w.bufferCount)
	}
	return int(n), nil
}

// request takes the next count buffers of the batch.
func (w *batchWalker) request(f *field, count int, into []*[]byte, wanted bool, nulls int64) error {
	if count > w.bufferCount {
		return fault.Userf("the batch ends before the buffers of the field %s (damaged)", f)
	}
	for i := range count {
		off, size := w.batch.i64At(w.buffers), w.batch.i64At(w.buffers+8)
		w.buffers, w.bufferCount = w.buffers+16, w.bufferCount-1
		if off < 0 || size < 0 || off > w.m.size || size > w.m.size-off {
			return fault.Userf("the field %s claims %d bytes at %d of a body of %d (damaged)", f, size, off, w.m.size)
		}
		noNulls := i == 0 && nulls == 0 // the bitmap may be anything then
		if wanted && size > 0 && i < len(into) && !noNulls {
			w.requests = append(w.requests, bufferRequest{off, size, into[i]})
		}
	}
	return nil
}

// fetch reads the requested buffers, those that stand together in one request,
// and decompresses them.
func (w *batchWalker) fetch() error {
	slices.SortStableFunc(w.requests, func(a, b bufferRequest) int { return cmp.Compare(a.off, b.off) })
	for left := w.requests; len(left) > 0; {
		start, end, n := left[0].off, left[0].off+left[0].size, 1
		for n < len(left) && left[n].off <= end+readGap {
			end = max(end, left[n].off+left[n].size)
			n++
		}
		data := make([]byte, end-start)
		if err := input.ReadFullAt(w.loader.file.h, data, w.m.body+start); err != nil {
			return err
		}
		kept := false // something refers to data
		for _, r := range left[:n] {
			from := r.off - start
			stored := data[from : from+r.size : from+r.size]
			buf, inflated, err := w.inflate(stored)
			if err != nil {
				return err
			}
			if inflated {
				w.loader.held += int64(cap(buf))
			}
			kept = kept || !inflated
			*r.into = buf
		}
		if kept {
			w.loader.held += int64(cap(data))
		}
		left = left[n:]
	}
	return nil
}

// inflate undoes the compression of a buffer: the length comes first, -1 says
// that the rest is not compressed. inflated reports whether buf is new memory.
func (w *batchWalker) inflate(stored []byte) (buf []byte, inflated bool, err error) {
	compression, ok := w.batch.table(3)
	if !ok {
		return stored, false, nil
	}
	if len(stored) < 8 {
		return nil, false, fault.Userf("a compressed buffer has %d bytes (damaged)", len(stored))
	}
	size, src := int64(binary.LittleEndian.Uint64(stored)), stored[8:]
	if size == -1 {
		return src, false, nil
	}
	if size < 0 || size > maxInflated-w.loader.inflated {
		return nil, false, fault.Userf("a compressed buffer claims %d bytes, more than the %d of a batch; write smaller batches", size, maxInflated)
	}
	w.loader.inflated += size
	out, err := decompress(compression.int8(0, 0), src, int(size))
	if err != nil && fault.ClassOf(err) != fault.User {
		err = fault.Userf("decompressing a buffer: %w", err)
	}
	if err == nil && int64(len(out)) != size {
		err = fault.Userf("a compressed buffer holds %d bytes and claims %d (damaged)", len(out), size)
	}
	return out, true, err
}

func decompress(codec int8, src []byte, size int) ([]byte, error) {
	switch codec {
	case 0:
		return compress.Inflate(lz4.NewReader(bytes.NewReader(src)), nil, len(src), size)
	case 1:
		if size <= 256*len(src) {
			return compress.DecodeZstd(make([]byte, 0, size), src)
		}
		// Far more than usual is claimed: memory follows what is really there.
		r, err := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return compress.Inflate(r, nil, len(src), size)
	}
	return nil, fault.Userf("the compression %d is not supported (LZ4 frame and zstd are)", codec)
}

// dictionary loads the values that the indexes of f refer to: the last whole
// dictionary of its id, and what was added to it since.
func (l *loader) dictionary(f *field) ([]*vector, error) {
	if parts, ok := l.loaded[f]; ok {
		return parts, nil
	}
	values := *f
	values.dictionary = nil
	l.wanted[&values] = true
	root := &field{kind: kindStruct, children: []*field{&values}}
	parts := []*vector{}
	for _, at := range ofDictionary(l.dictionaries, f.dictionary.id) {
		m, err := l.file.message(at.off)
		if err != nil {
			return nil, err
		}
		if m == nil || m.kind != headerDictionary || placeOf(at.off, m) != at {
			return nil, fault.Userf("the dictionary %d is not at offset %d any more (damaged, or it changed)", f.dictionary.id, at.off)
		}
		batch, ok := m.header.table(1)
		if !ok {
			return nil, fault.Userf("the dictionary %d has no values (damaged)", f.dictionary.id)
		}
		a, err := l.load(m, batch, root)
		if err != nil {
			return nil, err
		}
		parts = append(parts, a.children[0])
	}
	l.loaded[f] = parts
	return parts, nil
}
