package sourceloader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
)

// spilled is a block that is kept on the local disk: a file of records, which are
// its samples, their images and what the planner learns of the block. One that left
// memory as a whole has its samples in the order they come in, then their images in that
// order; one that left it while it was read has them in reading order, each before its
// images, and then pages, which say where each sample is. It is safe for concurrent use.
type spilled struct {
	shape
	file    *spill.File
	samples uint32
	inOrder bool   // the i-th sample is record i; else pages say which
	pages   uint32 // record of the first page
	last    uint32 // record of what the planner learns
}

// shape is what is the same for all samples of a block, and what it takes to read their
// records.
type shape struct {
	kept      int
	hasImages bool
	hasMasks  bool
	sum       uint64
}

func (b *Block) shape() shape { return shape{len(b.kept), b.hasImages, b.hasMasks, b.sum} }

// spillTo writes a block into a file; see spill.Disk.Write.
func (b *Block) spillTo(disk *spill.Disk, id blockID, reserved int64) (*spilled, error) {
	report, err := proto.Marshal(b.Report(id.source, id.seq))
	if err != nil {
		return nil, err
	}
	s := b.onDisk()
	s.inOrder, s.last = true, s.samples
	for _, list := range b.images {
		s.last += uint32(len(list))
	}
	if s.file, err = disk.Write(reserved, b.records(report)); err != nil {
		return nil, err
	}
	return s, nil
}

// onDisk is what the block is on the disk, but for where things are there.
func (b *Block) onDisk() *spilled {
	return &spilled{samples: uint32(b.Len()), shape: b.shape()}
}

// records are what a file of the block has.
func (b *Block) records(report []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var buf []byte
		images := uint64(b.Len())
		for _, at := range b.Order {
			buf = b.appendSample(buf[:0], int(at), images)
			if !yield(buf) {
				return
			}
			if b.hasImages {
				images += uint64(len(b.images[at]))
			}
		}
		for i := 0; b.hasImages && i < len(b.Order); i++ {
			for k := range b.images[b.Order[i]] {
				buf = appendImage(buf[:0], &b.images[b.Order[i]][k])
				if !yield(buf) {
					return
				}
			}
		}
		yield(report)
	}
}

// appendSample encodes the sample of number at in reading order: its tokens, what each
// column kept, the bounds of those without loss if the source has such, and, if it has
// images, where they are in it. The record of the
// first of them is images.
func (b *Block) appendSample(buf []byte, at int, images uint64) []byte {
	tokens := b.tokens.at(b.spans[at])
	buf = binary.AppendUvarint(buf, uint64(len(tokens)))
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(t))
	}
	for _, col := range b.kept {
		if v := col[at-b.gone]; v == nil {
			buf = append(buf, 0)
		} else {
			buf = appendBytes(append(buf, 1), v)
		}
	}
	if b.hasMasks {
		bounds := b.masked[at-b.gone]
		buf = binary.AppendUvarint(buf, uint64(len(bounds)))
		for _, n := range bounds {
			buf = binary.AppendUvarint(buf, uint64(n))
		}
	}
	if !b.hasImages {
		return buf
	}
	buf = binary.AppendUvarint(buf, images)
	buf = binary.AppendUvarint(buf, uint64(len(b.images[at])))
	for k := range b.images[at] {
		x := &b.images[at][k]
		for _, n := range []int32{x.At, x.H, x.W} {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(n))
		}
		buf = append(buf, x.SHA[:]...)
	}
	return buf
}

// appendImage encodes the data of an image.
func appendImage(buf []byte, x *samples.Image) []byte {
	return append(appendBytes(buf, []byte(x.Origin)), x.Data...)
}

func appendBytes(buf, v []byte) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(v))), v...)
}

// Bytes is the memory that is taken.
func (s *spilled) Bytes() int64 { return s.file.Bytes() }

func (s *spilled) report(blockID) (*pb.BlockRead, error) {
	r := &pb.BlockRead{}
	return r, s.file.Read([]uint32{s.last}, func(_ int, record []byte) error {
		return proto.Unmarshal(record, r)
	})
}

// choose is Block's; what it gives is the caller's.
func (s *spilled) choose(want *pb.BlockSamples, set *samples.Set) error {
	if err := checkIndices(want.Indices, int(s.samples)); err != nil {
		return err
	}
	s.begin(set, len(want.Indices))
	first := make([]uint32, len(want.Indices)) // record of each sample's first image
	numbers, err := s.numbers(want.Indices)
	if err != nil {
		return err
	}
	err = s.file.Read(numbers, func(k int, record []byte) (err error) {
		first[k], err = s.add(set, k, record)
		return err
	})
	if err != nil || !s.hasImages {
		return err
	}
	return s.imageData(want, first, set)
}

// begin makes a set ready for n samples of their records.
func (s *shape) begin(set *samples.Set, n int) {
	set.Tokens = set.Tokens[:0]
	set.Offsets = append(slices.Grow(set.Offsets[:0], n+1), 0)
	set.Kept, set.Masked, set.Images = make([][][]byte, s.kept), nil, nil
	if s.hasImages {
		set.Images = make([][]samples.Image, n)
	}
}

// add adds the sample of a record to a set, whose k-th it is, and says which record its first
// image has.
func (s *shape) add(set *samples.Set, k int, record []byte) (first uint32, err error) {
	r := recordReader{rest: record}
	r.sample(set)
	if s.hasMasks {
		set.Masked = append(set.Masked, r.bounds())
	}
	if s.hasImages {
		first = uint32(r.uvarint())
		set.Images[k] = r.images()
	}
	return first, r.end()
}

// numbers are the records of the samples that are wanted.
func (s *spilled) numbers(indices []uint32) ([]uint32, error) {
	if s.inOrder {
		return indices, nil
	}
	var pages []uint32
	for k, i := range indices {
		if k == 0 || i/pageSamples != indices[k-1]/pageSamples {
			pages = append(pages, s.pages+i/pageSamples)
		}
	}
	numbers := make([]uint32, 0, len(indices))
	err := s.file.Read(pages, func(k int, page []byte) error {
		for n := len(numbers); n < len(indices) && s.pages+indices[n]/pageSamples == pages[k]; n++ {
			numbers = append(numbers, binary.LittleEndian.Uint32(page[4*(indices[n]%pageSamples):]))
		}
		return nil
	})
	return numbers, err
}

// imageData adds the data of the images that are wanted. first has, for each sample
// of set, the record of its first image.
func (s *spilled) imageData(want *pb.BlockSamples, first []uint32, set *samples.Set) error {
	var numbers []uint32
	var images []*samples.Image
	err := eachWanted(want, set, func(k, number int) {
		numbers = append(numbers, first[k]+uint32(number))
		images = append(images, &set.Images[k][number])
	})
	if err != nil {
		return err
	}
	return s.file.Read(numbers, func(k int, record []byte) error { return imageOf(slices.Clone(record), images[k]) })
}

// imageOf sets the data of an image from its record, which becomes the image's.
func imageOf(record []byte, x *samples.Image) error {
	r := recordReader{rest: record}
	x.Origin = string(r.bytes(int(r.uvarint())))
	x.Data = r.rest
	return r.err
}

// recordReader takes a record apart. Its bytes are those that were written, so an
// error is a bug.
type recordReader struct {
	rest []byte
	err  error
}

var errRecord = errors.New("a record of the local disk does not say what was written")

func (r *recordReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.err, n = errRecord, len(r.rest)
	}
	r.rest = r.rest[n:]
	return v
}

func (r *recordReader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.err, n = errRecord, 0
	}
	v := r.rest[:n]
	r.rest = r.rest[n:]
	return v
}

// sample appends tokens and kept values to a set.
func (r *recordReader) sample(set *samples.Set) {
	tokens := r.bytes(4 * int(r.uvarint()))
	for ; len(tokens) > 0; tokens = tokens[4:] {
		set.Tokens = append(set.Tokens, int32(binary.LittleEndian.Uint32(tokens)))
	}
	set.Offsets = append(set.Offsets, int32(len(set.Tokens)))
	for c := range set.Kept {
		var v []byte
		if kept := r.bytes(1); len(kept) > 0 && kept[0] == 1 {
			v = append([]byte{}, r.bytes(int(r.uvarint()))...) // empty is something; nil is nothing
		}
		set.Kept[c] = append(set.Kept[c], v)
	}
}

// bounds are those of a sample's tokens without loss, nil if all carry loss.
func (r *recordReader) bounds() (bounds []int32) {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		bounds = append(bounds, int32(r.uvarint()))
	}
	return bounds
}

// images are a sample's, without their data.
func (r *recordReader) images() (list []samples.Image) {
	for n := r.uvarint(); n > 0 && r.err == nil; n-- {
		v := r.bytes(3*4 + 32)
		if r.err != nil {
			break
		}
		list = append(list, samples.Image{
			At: int32(binary.LittleEndian.Uint32(v)), H: int32(binary.LittleEndian.Uint32(v[4:])), W: int32(binary.LittleEndian.Uint32(v[8:])),
			SHA: [32]byte(v[12:]),
		})
	}
	return list
}

// end says whether the record was what it should be.
func (r *recordReader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.err = fmt.Errorf("%w: %d bytes are left over", errRecord, len(r.rest))
	}
	return r.err
}

// files are closed when the cache's lock is not held any more.
type files []*spill.File

// add takes the file of a block that is on the disk.
func (f *files) add(held content) {
	if s, ok := held.(*spilled); ok {
		*f = append(*f, s.file)
	}
}

func (f *files) close() {
	for _, file := range *f {
		file.Close()
	}
}
