package format

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

var little = binary.LittleEndian

const (
	megatronMagic  = "MMIDIDX\x00\x00"
	megatronHeader = 9 + 8 + 1 + 8 + 8 // magic, version, dtype, sequences, document indices
)

// megatronTypes are the element types by their code in the index.
var megatronTypes = [...]struct {
	name string
	size int64 // bytes; 0 if it cannot hold token ids
}{1: {"uint8", 1}, 2: {"int8", 1}, 3: {"int16", 2}, 4: {"int32", 4}, 5: {"int64", 8}, 6: {"float64", 0}, 7: {"float32", 0}, 8: {"uint16", 2}}

// megatron is an open pair. The index is a header, then three arrays: sizes
// (int32, tokens of each sequence), pointers (int64, its first byte in the
// .bin) and document_indices (int64, the first sequence of each document, and
// the number of sequences at the end). One more byte per sequence (its mode, of
// multimodal sets) may follow and is not read.
type megatron struct {
	uri       string // of the index, for messages
	idx, bin  *input
	dtype     int
	sequences int64
	documents int64
	limit     int64 // bytes of a document

	pointersAt  int64
	documentsAt int64
}

func openMegatron(ctx context.Context, st store.Store, obj store.Object) (m *megatron, err error) {
	prefix := strings.TrimSuffix(strings.TrimSuffix(obj.URI, ".bin"), ".idx")
	idx, err := partner(ctx, st, obj, prefix+".idx")
	if err != nil {
		return nil, err
	}
	bin, err := partner(ctx, st, obj, prefix+".bin")
	if err != nil {
		return nil, err
	}
	m = &megatron{uri: idx.URI}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.idx, err = openInput(ctx, st, idx); err != nil {
		return m, err
	}
	if m.bin, err = openInput(ctx, st, bin); err != nil {
		return m, err
	}
	return m, m.readHeader()
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
func (m *megatron) Close() error {
	var err error
	for _, f := range []*input{m.idx, m.bin} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

func (m *megatron) damage(field string, at int64, format string, args ...any) error {
	return fault.Userf("%s: %s at byte %d: %s: copy the pair again, or build it anew", m.uri, field, at, fmt.Sprintf(format, args...))
}

func (m *megatron) readIndex(p []byte, at int64) error {
	_, err := io.ReadFull(io.NewSectionReader(m.idx, at, int64(len(p))), p)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return m.damage("the index", m.idx.obj.Size, "it is cut off; byte %d is needed", at+int64(len(p)))
	}
	return err
}

func (m *megatron) readHeader() error {
	var h [megatronHeader]byte
	size := m.idx.obj.Size
	if err := m.readIndex(h[:min(size, 9)], 0); err != nil {
		return err
	}
	if magic := h[:min(size, 9)]; string(magic) != megatronMagic {
		return m.damage("magic", 0, "%q is not %q; it is no Megatron index (older TNTIDX sets must be converted)", magic, megatronMagic)
	}
	if err := m.readIndex(h[:], 0); err != nil {
		return err
	}
	if version := little.Uint64(h[9:]); version != 1 {
		return m.damage("version", 9, "%d is not known (valid: 1)", version)
	}
	m.dtype = int(h[17])
	if m.dtype == 0 || m.dtype >= len(megatronTypes) {
		return m.damage("dtype", 17, "code %d is not known (valid: 1 to 8)", m.dtype)
	}
	if t := megatronTypes[m.dtype]; t.size == 0 {
		return m.damage("dtype", 17, "%s does not hold token ids", t.name)
	}
	return m.layOut(little.Uint64(h[18:]), little.Uint64(h[26:]))
}

// layOut checks the counts of the header against the size of the index, and
// the ends of document_indices.
func (m *megatron) layOut(sequences, indices uint64) error {
	size := m.idx.obj.Size
	if sequences > uint64(size)/12 {
		return m.damage("sequence count", 18, "%d sequences do not fit in an index of %d bytes", sequences, size)
	}
	if indices == 0 || indices > uint64(size)/8 {
		return m.damage("document count", 26, "%d document indices do not fit in an index of %d bytes, and there is always one", indices, size)
	}
	m.sequences, m.documents = int64(sequences), int64(indices)-1
	m.pointersAt = megatronHeader + 4*m.sequences
	m.documentsAt = m.pointersAt + 8*m.sequences
	if end := m.documentsAt + 8*int64(indices); size != end && size != end+m.sequences {
		return m.damage("the index", size, "%d sequences and %d documents take %d bytes (or %d with modes), and it has %d", m.sequences, m.documents, end, end+m.sequences, size)
	}
	first, err := m.index(0)
	if err != nil {
		return err
	}
	last, err := m.index(m.documents)
	switch {
	case err != nil:
		return err
	case first != 0:
		return m.damage("document_indices", m.documentsAt, "the first document begins at sequence %d, not 0", first)
	case last != m.sequences:
		return m.damage("document_indices", m.documentsAt+8*m.documents, "the last document ends at sequence %d, not %d", last, m.sequences)
	}
	return m.checkBin()
}

// checkBin holds the .bin to where the last sequence ends.
func (m *megatron) checkBin() error {
	if m.sequences == 0 {
		return nil
	}
	var pointer, size [8]byte
	if err := m.readIndex(pointer[:], m.pointersAt+8*(m.sequences-1)); err != nil {
		return err
	}
	if err := m.readIndex(size[:4], megatronHeader+4*(m.sequences-1)); err != nil {
		return err
	}
	_, err := m.checkSpan(m.sequences-1, int64(little.Uint64(pointer[:])), int32(little.Uint32(size[:])))
	return err
}

// checkSpan returns how many bytes a sequence has in the .bin.
func (m *megatron) checkSpan(sequence, pointer int64, tokens int32) (int64, error) {
	if tokens < 0 {
		return 0, m.damage("sizes", megatronHeader+4*sequence, "sequence %d has %d tokens", sequence, tokens)
	}
	bytes := int64(tokens) * megatronTypes[m.dtype].size
	if pointer < 0 || pointer > m.bin.obj.Size || bytes > m.bin.obj.Size-pointer {
		return 0, m.damage("pointers", m.pointersAt+8*sequence, "sequence %d takes %d bytes from %d on, but %s has %d",
			sequence, bytes, pointer, m.bin.obj.URI, m.bin.obj.Size)
	}
	return bytes, nil
}

// documentReader reads documents one after the other.
type documentReader struct {
	m                        *megatron
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

func (m *megatron) documentsFrom(from, to int64) (*documentReader, error) {
	sequence, err := m.index(from)
	if err != nil {
		return nil, err
	}
	// 64 KiB are the entries of thousands of documents; fewer documents need less.
	part := func(at, width, count int64) *bufio.Reader {
		return bufio.NewReaderSize(io.NewSectionReader(m.idx, at, m.idx.obj.Size-at), int(min(width*max(count, 2), 64<<10)))
	}
	return &documentReader{
		m: m, doc: from, sequence: sequence,
		sizes:    part(megatronHeader+4*sequence, 4, 2*(to-from)),
		pointers: part(m.pointersAt+8*sequence, 8, 2*(to-from)),
		indices:  part(m.documentsAt+8*(from+1), 8, to-from),
		bin:      bufio.NewReaderSize(nil, readBytes),
		binAt:    -1,
	}, nil
}

// next reads the next document; its tokens, if wanted, are valid until the one
// after it.
func (d *documentReader) next(wanted bool) ([]int32, error) {
	d.bad = false
	end, err := d.entry(d.indices, 8)
	if err == nil {
		end, err = d.m.checkSequence(d.doc+1, end)
	}
	if err != nil {
		return nil, err
	}
	if end < d.sequence {
		return nil, d.m.damage("document_indices", d.m.documentsAt+8*(d.doc+1), "document %d ends at sequence %d but begins at %d", d.doc, end, d.sequence)
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
		return 0, d.m.damage("the index", d.m.idx.obj.Size, "it is cut off")
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
	n, err := d.m.checkSpan(d.sequence, at, int32(size))
	if err != nil {
		return nil, err
	}
	if at < d.last {
		return nil, d.m.damage("pointers", d.m.pointersAt+8*d.sequence, "sequence %d begins at %d, before the one before it (%d)", d.sequence, at, d.last)
	}
	d.last = at
	switch {
	case !wanted || n == 0:
		return nil, nil
	case n > d.m.limit-4*int64(len(d.tokens)):
		return TooLong(d.m.limit, "%s: document %d is", d.m.uri, d.doc-1), nil
	}
	return d.readTokens(at, n)
}

func (d *documentReader) readTokens(at, n int64) (bad, err error) {
	if d.binAt != at {
		d.bin.Reset(io.NewSectionReader(d.m.bin, at, d.m.bin.obj.Size-at))
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
		return fault.Userf("%s: document %d: a token at byte %d of %s is beyond 32 bits", d.m.uri, d.doc-1, at+int64(i), d.m.bin.obj.URI), nil
	}
	return nil, nil
}

// decode appends the tokens in raw. It returns the index of one that is beyond
// 32 bits, or -1.
func (d *documentReader) decode(raw []byte) (bad int) {
	from := len(d.tokens)
	count := len(raw) / int(megatronTypes[d.m.dtype].size)
	d.tokens = slices.Grow(d.tokens, count)[:from+count]
	out := d.tokens[from:]
	switch d.m.dtype {
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
