// Package samples is the form in which samples travel from loaders to
// constructors: Arrow record batches, one per block, in one IPC file.
//
// It owns the Arrow schema and the checksum of samples, and nothing else. A decoded Set
// borrows from the bytes it was decoded from: a caller that keeps it keeps those.
package samples

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Set is a run of samples: sample i has the tokens
// Tokens[Offsets[i]:Offsets[i+1]], or Lent[i] if these are in a loader's memory, and Kept[c][i] is its value of kept column c
// (nil if none).
type Set struct {
	Tokens  []int32
	Offsets []int32 // one more than samples; the first is 0
	// Lent are read-only. Whoever keeps one of them keeps Loan, by which the loader knows. Such a set is not encoded.
	Lent [][]int32
	Loan any
	Kept [][][]byte
	// Masked has the bounds of the runs of tokens without loss in each sample: from, to,
	// from, to; nil if samples have none.
	Masked [][]int32
	// Images are those of each sample, in the order of their placeholders; nil if
	// samples have none.
	Images [][]Image
}

// Image is an image of a sample.
type Image struct {
	At      int32    // place of its first placeholder in the sample
	H, W    int32    // patches along the sides
	SHA     [32]byte // SHA-256 of the encoded image
	Origin  string   // file and record, for messages; only with data
	Data    []byte   // nil if not requested
	Decoded bool     // Data is patches, not the encoded image
}

// Len is the number of samples.
func (s *Set) Len() int { return max(len(s.Offsets)-1, len(s.Lent)) }

// Sample returns the tokens of sample i.
func (s *Set) Sample(i int) []int32 {
	if s.Lent != nil {
		return s.Lent[i]
	}
	return s.Tokens[s.Offsets[i]:s.Offsets[i+1]]
}

// Encode writes sets as an Arrow IPC file with the columns "tokens"
// (list<int32>), "kept.0", "kept.1", ... (binary, nullable) and, if any set has
// them, "masked" (list<int32>) and "images" (list of structs, see imageFields). All sets have the same
// number of kept columns; fewer count as columns of nulls.
func Encode(sets []Set) ([]byte, error) {
	w, err := NewWire(sets)
	if err != nil {
		return nil, err
	}
	defer w.Release()
	out := bytes.NewBuffer(make([]byte, 0, w.Size))
	_, err = w.WriteTo(out)
	return out.Bytes(), err
}

// Wire is sets on their way: what Encode returns, without a copy of it. It borrows the sets' tokens,
// and the data of images that lie one after the other in memory; the rest it has copied.
type Wire struct {
	Size    int64 // bytes that WriteTo writes
	schema  *arrow.Schema
	records []arrow.RecordBatch
	encoded []byte // of a small file, which NewWire keeps; nil for others, which are encoded twice
}

// smallWire is the largest size, in bytes, of a file that NewWire keeps: copying it costs less than encoding it again.
const smallWire = 32 << 10

// NewWire makes sets ready to be written.
func NewWire(sets []Set) (*Wire, error) {
	kept, masked, images := 0, false, false
	for i := range sets {
		if sets[i].Lent != nil {
			return nil, errors.New("encoding samples: their tokens are lent; ask for a copy")
		}
		kept = max(kept, len(sets[i].Kept))
		masked = masked || sets[i].Masked != nil
		images = images || sets[i].Images != nil
	}
	w := &Wire{schema: schemaOf(kept, masked, images)}
	for i := range sets {
		w.records = append(w.records, record(w.schema, &sets[i]))
	}
	out := &counting{to: io.Discard, kept: make([]byte, 0, 4<<10)}
	if err := w.encode(out); err != nil {
		return nil, err
	}
	w.Size, w.encoded = out.n, out.kept
	return w, nil
}

// WriteTo writes the file, in pieces as small as its parts are. It may be called again, and gives the
// same bytes.
func (w *Wire) WriteTo(to io.Writer) (int64, error) {
	if w.encoded != nil {
		n, err := to.Write(w.encoded)
		return int64(n), err
	}
	out := &counting{to: to}
	err := w.encode(out)
	return out.n, err
}

func (w *Wire) encode(out *counting) error {
	file, err := ipc.NewFileWriter(out, ipc.WithSchema(w.schema))
	if err != nil {
		return fmt.Errorf("encoding samples: %w", err)
	}
	for _, rec := range w.records {
		if err := file.Write(rec); err != nil {
			return fmt.Errorf("encoding samples: %w", err)
		}
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("encoding samples: %w", err)
	}
	return nil
}

// Release lets go of the records.
func (w *Wire) Release() {
	for _, rec := range w.records {
		rec.Release()
	}
	w.records = nil
}

// counting counts what is written, and keeps it while it is small.
type counting struct {
	to   io.Writer
	n    int64
	kept []byte // nil: nothing is kept
}

func (c *counting) Write(p []byte) (int, error) {
	if c.kept != nil && len(c.kept)+len(p) <= smallWire {
		c.kept = append(c.kept, p...)
	} else {
		c.kept = nil
	}
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

func schemaOf(kept int, masked, images bool) *arrow.Schema {
	fields := []arrow.Field{{Name: "tokens", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int32)}}
	for c := range kept {
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("kept.%d", c), Type: arrow.BinaryTypes.LargeBinary, Nullable: true})
	}
	if masked {
		fields = append(fields, arrow.Field{Name: maskedName, Type: maskedType})
	}
	if images {
		fields = append(fields, arrow.Field{Name: imagesName, Type: imagesType})
	}
	return arrow.NewSchema(fields, nil)
}

// record views a set as a record batch; only kept columns, masks and images are copied, and of images not what
// lies in one piece.
func record(schema *arrow.Schema, s *Set) arrow.RecordBatch {
	n := s.Len()
	values := array.NewData(arrow.PrimitiveTypes.Int32, len(s.Tokens),
		[]*memory.Buffer{nil, memory.NewBufferBytes(raw(s.Tokens))}, nil, 0, 0)
	defer values.Release()
	offsets := s.Offsets
	if n == 0 {
		offsets = []int32{0}
	}
	list := array.NewData(schema.Field(0).Type, n,
		[]*memory.Buffer{nil, memory.NewBufferBytes(raw(offsets))}, []arrow.ArrayData{values}, 0, 0)
	defer list.Release()
	columns := []arrow.Array{array.NewListData(list)}
	for c := 1; c < schema.NumFields(); c++ {
		switch schema.Field(c).Name {
		case maskedName:
			columns = append(columns, maskedColumn(s))
		case imagesName:
			columns = append(columns, imageColumn(s))
		default:
			columns = append(columns, keptColumn(s, c-1))
		}
	}
	rec := array.NewRecordBatch(schema, columns, int64(n))
	for _, col := range columns {
		col.Release()
	}
	return rec
}

func keptColumn(s *Set, c int) arrow.Array {
	b := array.NewBinaryBuilder(memory.DefaultAllocator, arrow.BinaryTypes.LargeBinary)
	defer b.Release()
	for i := range s.Len() {
		if c >= len(s.Kept) || s.Kept[c][i] == nil {
			b.AppendNull()
			continue
		}
		b.Append(s.Kept[c][i])
	}
	return b.NewArray()
}

// blockBytes is the size of a record batch's entry in the footer.
const blockBytes = 24

// Decode reads what Encode wrote. The sets borrow from data. Damaged data is an
// error, or sets with other values in them; the digests of rows find those. It
// is for data from our own roles: Arrow's reader allocates whatever a
// damaged schema claims.
func Decode(data []byte) (sets []Set, err error) {
	defer func() { // Arrow's reader trusts the offsets inside its messages
		if p := recover(); p != nil {
			sets, err = nil, fmt.Errorf("decoding samples: %d bytes are damaged: %v", len(data), p)
		}
	}()
	r, err := ipc.NewMappedFileReader(data)
	if err != nil {
		return nil, fmt.Errorf("decoding samples: %w", err)
	}
	defer r.Close()
	if r.NumRecords() > len(data)/blockBytes {
		return nil, fmt.Errorf("decoding samples: %d bytes cannot hold %d record batches", len(data), r.NumRecords())
	}
	sets = make([]Set, r.NumRecords())
	for i := range sets {
		rec, err := r.RecordBatchAt(i)
		if err != nil {
			return nil, fmt.Errorf("decoding samples: %w", err)
		}
		if sets[i], err = view(rec); err != nil {
			return nil, err
		}
	}
	return sets, nil
}

func view(rec arrow.RecordBatch) (Set, error) {
	list, ok := rec.Column(0).(*array.List)
	if !ok {
		return Set{}, fmt.Errorf("decoding samples: column 0 is %s, not a list of tokens", rec.Column(0).DataType())
	}
	values, ok := list.ListValues().(*array.Int32)
	if !ok {
		return Set{}, fmt.Errorf("decoding samples: tokens are %s, not int32", list.ListValues().DataType())
	}
	s := Set{Tokens: values.Int32Values(), Offsets: list.Offsets()}
	if err := s.check(int(rec.NumRows())); err != nil {
		return Set{}, err
	}
	for c := 1; c < int(rec.NumCols()); c++ {
		if rec.ColumnName(c) == maskedName {
			var err error
			if s.Masked, err = viewMasked(rec.Column(c), &s); err != nil {
				return Set{}, err
			}
			continue
		}
		if rec.ColumnName(c) == imagesName {
			var err error
			if s.Images, err = viewImages(rec.Column(c), s.Len()); err != nil {
				return Set{}, err
			}
			continue
		}
		col, ok := rec.Column(c).(*array.LargeBinary)
		if !ok {
			return Set{}, fmt.Errorf("decoding samples: column %d is %s, not bytes", c, rec.Column(c).DataType())
		}
		kept := make([][]byte, col.Len())
		for i := range kept {
			if col.IsNull(i) {
				continue
			}
			if kept[i] = col.Value(i); kept[i] == nil {
				kept[i] = []byte{} // an empty value, unlike nil, is a value
			}
		}
		s.Kept = append(s.Kept, kept)
	}
	return s, nil
}

// check makes sure that every sample of n lies within the tokens.
func (s *Set) check(n int) error {
	if n > 0 && len(s.Offsets) != n+1 {
		return fmt.Errorf("decoding samples: %d offsets for %d samples", len(s.Offsets), n)
	}
	last := int32(0)
	for i, at := range s.Offsets {
		if at < last || int(at) > len(s.Tokens) {
			return fmt.Errorf("decoding samples: sample %d begins at token %d of %d, after %d", i, at, len(s.Tokens), last)
		}
		last = at
	}
	return nil
}

// raw views numbers as bytes; Arrow's wire is little-endian and so are all
// machines that Arrow's Go library runs on without swapping.
func raw(v []int32) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}
