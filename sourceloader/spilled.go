package sourceloader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/samples"
	pb "github.com/millrace-data/millrace/proto"
	"github.com/millrace-data/millrace/sourceloader/spill"
)

// spilled is a block that is kept on the local disk: a file of records, which are
// its samples in the order they come in, then their images in that order, then what
// the planner is told of the block. It is safe for concurrent use.
type spilled struct {
	file            *spill.File
	samples, images uint32
	kept            int
	hasImages       bool
	sum             uint64
}

// spillTo writes a block into a file; see spill.Disk.Write.
func (b *Block) spillTo(disk *spill.Disk, id blockID, reserved int64) (*spilled, error) {
	report, err := proto.Marshal(b.Report(id.source, id.seq))
	if err != nil {
		return nil, err
	}
	s := &spilled{samples: uint32(b.Len()), kept: len(b.kept), hasImages: b.hasImages, sum: b.sum}
	for _, list := range b.images {
		s.images += uint32(len(list))
	}
	if s.file, err = disk.Write(reserved, b.records(report)); err != nil {
		return nil, err
	}
	return s, nil
}

// records are what a file of the block has.
func (b *Block) records(report []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var buf []byte
		images := uint64(0)
		for i, at := range b.Order {
			buf = b.appendSample(buf[:0], i, images)
			if !yield(buf) {
				return
			}
			if b.hasImages {
				images += uint64(len(b.images[at]))
			}
		}
		for i := 0; b.hasImages && i < len(b.Order); i++ {
			for _, x := range b.images[b.Order[i]] {
				buf = append(appendBytes(buf[:0], []byte(x.Origin)), x.Data...)
				if !yield(buf) {
					return
				}
			}
		}
		yield(report)
	}
}

// appendSample encodes sample i: its tokens, what each column kept and, if the source
// has images, where they are in it. The number of the first of them in the block is images.
func (b *Block) appendSample(buf []byte, i int, images uint64) []byte {
	tokens, at := b.Sample(i), b.Order[i]
	buf = binary.AppendUvarint(buf, uint64(len(tokens)))
	for _, t := range tokens {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(t))
	}
	for _, col := range b.kept {
		if v := col[at]; v == nil {
			buf = append(buf, 0)
		} else {
			buf = appendBytes(append(buf, 1), v)
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

func appendBytes(buf, v []byte) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(v))), v...)
}

// Bytes is the memory that is taken.
func (s *spilled) Bytes() int64 { return s.file.Bytes() }

func (s *spilled) report(blockID) (*pb.BlockRead, error) {
	r := &pb.BlockRead{}
	return r, s.file.Read([]uint32{s.samples + s.images}, func(_ int, record []byte) error {
		return proto.Unmarshal(record, r)
	})
}

// choose is Block's; what it gives is the caller's.
func (s *spilled) choose(want *pb.BlockSamples, set *samples.Set) error {
	if err := checkIndices(want.Indices, int(s.samples)); err != nil {
		return err
	}
	set.Tokens = set.Tokens[:0]
	set.Offsets = append(slices.Grow(set.Offsets[:0], len(want.Indices)+1), 0)
	set.Kept, set.Images = make([][][]byte, s.kept), nil
	first := make([]uint32, len(want.Indices)) // image of each sample
	if s.hasImages {
		set.Images = make([][]samples.Image, len(want.Indices))
	}
	err := s.file.Read(want.Indices, func(k int, record []byte) error {
		r := recordReader{rest: record}
		r.sample(set)
		if s.hasImages {
			first[k] = uint32(r.uvarint())
			set.Images[k] = r.images()
		}
		return r.end()
	})
	if err != nil || !s.hasImages {
		return err
	}
	return s.imageData(want, first, set)
}

// imageData adds the data of the images that are wanted. first has, for each sample
// of set, the number of its first image in the block.
func (s *spilled) imageData(want *pb.BlockSamples, first []uint32, set *samples.Set) error {
	var numbers []uint32
	var images []*samples.Image
	err := eachWanted(want, set, func(k, number int) {
		numbers = append(numbers, s.samples+first[k]+uint32(number))
		images = append(images, &set.Images[k][number])
	})
	if err != nil {
		return err
	}
	return s.file.Read(numbers, func(k int, record []byte) error {
		r := recordReader{rest: record}
		images[k].Origin = string(r.bytes(int(r.uvarint())))
		images[k].Data = slices.Clone(r.rest)
		return r.err
	})
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
