package megatron

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/input"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

var little = binary.LittleEndian

const (
	magic       = "MMIDIDX\x00\x00"
	headerBytes = 9 + 8 + 1 + 8 + 8 // magic, version, dtype, sequences, document indices
)

// types are the element types by their code in the index.
var types = [...]struct {
	name string
	size int64 // bytes; 0 if it cannot hold token ids
}{1: {"uint8", 1}, 2: {"int8", 1}, 3: {"int16", 2}, 4: {"int32", 4}, 5: {"int64", 8}, 6: {"float64", 0}, 7: {"float32", 0}, 8: {"uint16", 2}}

// pair is an open one. The index is a header, then three arrays: sizes
// (int32, tokens of each sequence), pointers (int64, its first byte in the
// .bin) and document_indices (int64, the first sequence of each document, and
// the number of sequences at the end). One more byte per sequence (its mode, of
// multimodal sets) may follow and is not read.
type pair struct {
	uri       string // of the index, for messages
	idx, bin  *input.File
	dtype     int
	sequences int64
	documents int64
	limit     int64 // bytes of a document

	pointersAt  int64
	documentsAt int64
}

func openPair(ctx context.Context, st store.Store, obj store.Object) (p *pair, err error) {
	prefix := prefixOf(obj.URI)
	idx, err := partner(ctx, st, obj, prefix+".idx")
	if err != nil {
		return nil, err
	}
	bin, err := partner(ctx, st, obj, prefix+".bin")
	if err != nil {
		return nil, err
	}
	p = &pair{uri: idx.URI}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	if p.idx, err = input.Open(ctx, st, idx); err != nil {
		return p, err
	}
	if p.bin, err = input.Open(ctx, st, bin); err != nil {
		return p, err
	}
	return p, p.readHeader()
}

// partner returns obj if it is the file uri, else looks that up.
func partner(ctx context.Context, st store.Store, obj store.Object, uri string) (store.Object, error) {
	if obj.URI == uri {
		return obj, nil
	}
	found, err := st.Stat(ctx, uri)
	if errors.Is(err, store.ErrNotExist) {
		return found, fault.Userf("%s: a Megatron dataset is a pair of .idx and .bin: %w", obj.URI, err)
	}
	return found, err
}

// Close closes both files.
func (p *pair) Close() error {
	var err error
	for _, f := range []*input.File{p.idx, p.bin} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

func (p *pair) damage(field string, at int64, format string, args ...any) error {
	return fault.Userf("%s: %s at byte %d: %s: copy the pair again, or rebuild it", p.uri, field, at, fmt.Sprintf(format, args...))
}

func (p *pair) readIndex(buf []byte, at int64) error {
	_, err := io.ReadFull(io.NewSectionReader(p.idx, at, int64(len(buf))), buf)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return p.damage("the index", p.idx.Object.Size, "it is cut off; byte %d is needed", at+int64(len(buf)))
	}
	return err
}

func (p *pair) readHeader() error {
	var h [headerBytes]byte
	size := p.idx.Object.Size
	if err := p.readIndex(h[:min(size, 9)], 0); err != nil {
		return err
	}
	if found := h[:min(size, 9)]; string(found) != magic {
		return p.damage("magic", 0, "%q is not %q: not a Megatron index (older TNTIDX sets must be converted)", found, magic)
	}
	if err := p.readIndex(h[:], 0); err != nil {
		return err
	}
	if version := little.Uint64(h[9:]); version != 1 {
		return p.damage("version", 9, "%d is not known (valid: 1)", version)
	}
	p.dtype = int(h[17])
	if p.dtype == 0 || p.dtype >= len(types) {
		return p.damage("dtype", 17, "code %d is not known (valid: 1 to 8)", p.dtype)
	}
	if t := types[p.dtype]; t.size == 0 {
		return p.damage("dtype", 17, "%s is not an integer type", t.name)
	}
	return p.layOut(little.Uint64(h[18:]), little.Uint64(h[26:]))
}

// layOut checks the counts of the header against the size of the index, and
// the ends of document_indices.
func (p *pair) layOut(sequences, indices uint64) error {
	size := p.idx.Object.Size
	if sequences > uint64(size)/12 {
		return p.damage("sequence count", 18, "%d sequences do not fit in an index of %d bytes", sequences, size)
	}
	if indices == 0 || indices > uint64(size)/8 {
		return p.damage("document count", 26, "%d document indices do not fit in an index of %d bytes, and there is always one", indices, size)
	}
	p.sequences, p.documents = int64(sequences), int64(indices)-1
	p.pointersAt = headerBytes + 4*p.sequences
	p.documentsAt = p.pointersAt + 8*p.sequences
	if end := p.documentsAt + 8*int64(indices); size != end && size != end+p.sequences {
		return p.damage("the index", size, "%d sequences and %d documents take %d bytes (or %d with modes), and it has %d", p.sequences, p.documents, end, end+p.sequences, size)
	}
	first, err := p.index(0)
	if err != nil {
		return err
	}
	last, err := p.index(p.documents)
	switch {
	case err != nil:
		return err
	case first != 0:
		return p.damage("document_indices", p.documentsAt, "the first document begins at sequence %d, not 0", first)
	case last != p.sequences:
		return p.damage("document_indices", p.documentsAt+8*p.documents, "the last document ends at sequence %d, not %d", last, p.sequences)
	}
	return p.checkBin()
}

// checkBin holds the .bin to where the last sequence ends.
func (p *pair) checkBin() error {
	if p.sequences == 0 {
		return nil
	}
	var pointer, size [8]byte
	if err := p.readIndex(pointer[:], p.pointersAt+8*(p.sequences-1)); err != nil {
		return err
	}
	if err := p.readIndex(size[:4], headerBytes+4*(p.sequences-1)); err != nil {
		return err
	}
	_, err := p.checkSpan(p.sequences-1, int64(little.Uint64(pointer[:])), int32(little.Uint32(size[:])))
	return err
}

// checkSpan returns how many bytes a sequence has in the .bin.
func (p *pair) checkSpan(sequence, pointer int64, tokens int32) (int64, error) {
	if tokens < 0 {
		return 0, p.damage("sizes", headerBytes+4*sequence, "sequence %d has %d tokens", sequence, tokens)
	}
	bytes := int64(tokens) * types[p.dtype].size
	if pointer < 0 || pointer > p.bin.Object.Size || bytes > p.bin.Object.Size-pointer {
		return 0, p.damage("pointers", p.pointersAt+8*sequence, "sequence %d takes %d bytes from %d on, but %s has %d",
			sequence, bytes, pointer, p.bin.Object.URI, p.bin.Object.Size)
	}
	return bytes, nil
}

// documentReader reads documents one after the other.
type documentReader struct {
	pair                     *pair
	sizes, pointers, indices *bufio.Reader
	bin                      *bufio.Reader
	binAt                    int64 // place of bin
	doc, sequence            int64 // the next ones
	last                     int64 // pointer of the sequence before
	bad                      bool  // the last error was of one record only
	number                   [8]byte
	raw                      []byte
	tokens                   []int32
}

func (p *pair) documentsFrom(from, to int64) (*documentReader, error) {
	sequence, err := p.index(from)
	if err != nil {
		return nil, err
	}
	// 64 KiB are the entries of thousands of documents; fewer documents need less.
	part := func(at, width, count int64) *bufio.Reader {
		return bufio.NewReaderSize(io.NewSectionReader(p.idx, at, p.idx.Object.Size-at), int(min(width*max(count, 2), 64<<10)))
	}
	return &documentReader{
		pair: p, doc: from, sequence: sequence,
		sizes:    part(headerBytes+4*sequence, 4, 2*(to-from)),
		pointers: part(p.pointersAt+8*sequence, 8, 2*(to-from)),
		indices:  part(p.documentsAt+8*(from+1), 8, to-from),
		bin:      bufio.NewReaderSize(nil, input.ReadBytes),
		binAt:    -1,
	}, nil
}

// held is the memory of the buffers, in bytes.
func (d *documentReader) held() int64 {
	buffered := d.sizes.Size() + d.pointers.Size() + d.indices.Size() + d.bin.Size()
	return int64(buffered + cap(d.raw) + 4*cap(d.tokens))
}

// next reads the next document; its tokens, if wanted, are valid until the one
// after it.
func (d *documentReader) next(wanted bool) ([]int32, error) {
	d.bad = false
	end, err := d.entry(d.indices, 8)
	if err == nil {
		end, err = d.pair.checkSequence(d.doc+1, end)
	}
	if err != nil {
		return nil, err
	}
	if end < d.sequence {
		return nil, d.pair.damage("document_indices", d.pair.documentsAt+8*(d.doc+1), "document %d ends at sequence %d but begins at %d", d.doc, end, d.sequence)
	}
	d.doc++
	d.tokens = d.tokens[:0]
	var problem error
	for ; d.sequence < end; d.sequence++ {
		bad, err := d.readSequence(wanted && problem == nil)
		if err != nil {
			return nil, err
		}
		if problem == nil {
			problem = bad
		}
	}
	d.bad = problem != nil
	return d.tokens, problem
}

// entry reads the next number of width bytes from a part of the index.
func (d *documentReader) entry(r *bufio.Reader, width int) (int64, error) {
	p := d.number[:width]
	_, err := io.ReadFull(r, p)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return 0, d.pair.damage("the index", d.pair.idx.Object.Size, "it is cut off")
	case err != nil:
		return 0, err
	case width == 4:
		return int64(int32(little.Uint32(p))), nil
	}
	return int64(little.Uint64(p)), nil
}

// readSequence appends the tokens of the next sequence. bad is what is wrong
// with the document, err with the file.
func (d *documentReader) readSequence(wanted bool) (bad, err error) {
	size, err := d.entry(d.sizes, 4)
	if err != nil {
		return nil, err
	}
	at, err := d.entry(d.pointers, 8)
	if err != nil {
		return nil, err
	}
	n, err := d.pair.checkSpan(d.sequence, at, int32(size))
	if err != nil {
		return nil, err
	}
	if at < d.last {
		return nil, d.pair.damage("pointers", d.pair.pointersAt+8*d.sequence, "sequence %d begins at %d, before the one before it (%d)", d.sequence, at, d.last)
	}
	d.last = at
	switch {
	case !wanted || n == 0:
		return nil, nil
	case n > d.pair.limit-types[d.pair.dtype].size*int64(len(d.tokens)):
		return format.TooLong(d.pair.limit, "%s: document %d is", d.pair.uri, d.doc-1), nil
	}
	return d.readTokens(at, n)
}

func (d *documentReader) readTokens(at, n int64) (bad, err error) {
	if d.binAt != at {
		d.bin.Reset(io.NewSectionReader(d.pair.bin, at, d.pair.bin.Object.Size-at))
	}
	d.binAt = at + n
	if int64(cap(d.raw)) < n {
		d.raw = make([]byte, n)
	}
	raw := d.raw[:n]
	if _, err := io.ReadFull(d.bin, raw); err != nil {
		return nil, err
	}
	if i := d.decode(raw); i >= 0 {
		return fault.Userf("%s: document %d: a token at byte %d of %s is beyond 32 bits", d.pair.uri, d.doc-1, at+int64(i), d.pair.bin.Object.URI), nil
	}
	return nil, nil
}

// decode appends the tokens in raw. It returns the index of one that is beyond
// 32 bits, or -1.
func (d *documentReader) decode(raw []byte) (bad int) {
	from := len(d.tokens)
	count := len(raw) / int(types[d.pair.dtype].size)
	d.tokens = slices.Grow(d.tokens, count)[:from+count]
	out := d.tokens[from:]
	switch d.pair.dtype {
	case 1:
		for i := range out {
			out[i] = int32(raw[i])
		}
	case 2:
		for i := range out {
			out[i] = int32(int8(raw[i]))
		}
	case 3:
		for i := range out {
			out[i] = int32(int16(little.Uint16(raw[2*i:])))
		}
	case 4:
		for i := range out {
			out[i] = int32(little.Uint32(raw[4*i:]))
		}
	case 5:
		for i := range out {
			wide := int64(little.Uint64(raw[8*i:]))
			if out[i] = int32(wide); wide != int64(out[i]) {
				return 8 * i
			}
		}
	case 8:
		for i := range out {
			out[i] = int32(little.Uint16(raw[2*i:]))
		}
	}
	return -1
}
