package control

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// data is what loaders said of the data that they read: whoever reads it again, in
// whichever process, on whichever machine, has to read the same.
type data struct {
	readers []string // loaders that were connected, as messages name them
	sources []sourceData
	room    int // chunks whose checksums may still be kept
	listed  int // bytes of listings that are kept
}

// sourceData is what was said of one source.
type sourceData struct {
	indexer string               // the loader that froze its manifest
	listed  int                  // bytes of the listing that is kept
	chunks  map[uint64]chunkRead // by number, whichever epoch they were read in
	blocks  map[int64]blockData  // that are not released, by seq
}

// blockData is what is known of a block that was read.
type blockData struct {
	sum      uint64  // its checksum; 0: not known
	by, copy *loader // that has it, and the shadow that has it too, or was asked to read it
	copied   bool    // the shadow has it

	failed *failures // to read it again; nil: none
}

// chunkRead is what the first reading of a chunk gave.
type chunkRead struct {
	sum    uint64
	reader uint32 // index into data's readers
}

// sumLimit is how many chunks' checksums are kept, about 50 bytes each: those of a
// TiB of JSON lines, or of a hundred TiB of usual Parquet files. Of a chunk beyond that
// only the readings within one epoch are compared.
const sumLimit = 1 << 20

// listingsLimit bounds the listings of all sources together, in bytes: a million
// files. Of a source beyond that, messages have the manifests' digests alone.
const listingsLimit = 64 << 20

func (d *data) add() {
	d.sources = append(d.sources, sourceData{chunks: map[uint64]chunkRead{}, blocks: map[int64]blockData{}})
}

// forget forgets source i and those after it, which did not join.
func (d *data) forget(i int) {
	for _, s := range d.sources[i:] {
		d.room += len(s.chunks)
		d.listed -= s.listed
	}
	d.sources = d.sources[:i]
}

// release forgets the checksums of blocks that nobody asks for any more.
func (d *data) release(released []plan.Release) {
	for _, r := range released {
		blocks := d.sources[r.Source].blocks
		for seq := range blocks {
			if seq < r.Before {
				delete(blocks, seq)
			}
		}
	}
}

// keep keeps what a reading gave, for later ones to be compared with, and who has the block from
// now on.
func (d *data) keep(b *BlockRead, reader uint32, by *loader) {
	s := &d.sources[b.Block.Source]
	s.blocks[b.Block.Seq] = blockData{sum: b.Sum, by: by}
	if b.Sum == 0 {
		return // a loader that does not say
	}
	for _, c := range b.Chunks {
		if _, known := s.chunks[c.Chunk]; known || d.room == 0 {
			continue
		}
		s.chunks[c.Chunk] = chunkRead{c.Sum, reader}
		d.room--
	}
}

// copied notes that a loader has read a block: of a shadow, that it has it too.
func (d *data) copied(b block, by *loader) {
	blocks := d.sources[b.source].blocks
	if x, known := blocks[b.seq]; known && x.copy == by {
		x.copied = true
		blocks[b.seq] = x
	}
}

// copies counts, by shadow, the blocks that it was asked to read because another loader has them,
// and those of them that it has.
func (d *data) copies() (asked, have map[*loader]int) {
	asked, have = map[*loader]int{}, map[*loader]int{}
	for _, s := range d.sources {
		for _, x := range s.blocks {
			if x.copy != nil {
				asked[x.copy]++
			}
			if x.copied {
				have[x.copy]++
			}
		}
	}
	return asked, have
}

// reader takes in a loader's name, and returns its index.
func (d *data) reader(name string) uint32 {
	d.readers = append(d.readers, name)
	return uint32(len(d.readers) - 1)
}

// compareBlock says how a reading differs from an earlier one of the same data.
func (d *data) compareBlock(b *BlockRead, reader uint32) error {
	if b.Sum == 0 {
		return nil
	}
	s, name := &d.sources[b.Block.Source], d.readers[reader]
	for _, c := range b.Chunks {
		if first, known := s.chunks[c.Chunk]; known && first.sum != c.Sum {
			return otherData("%s reads %s with checksum %016x, %s read it with %016x", name, c.Place, c.Sum, d.who(first.reader, reader), first.sum)
		}
	}
	if first, known := s.blocks[b.Block.Seq]; known && first.sum != 0 && first.sum != b.Sum {
		return otherData("%s reads block %d (%s) with checksum %016x, it was read with %016x before", name, b.Block.Seq, places(b.Chunks), b.Sum, first.sum)
	}
	return nil
}

// who names the first reader beside the one that differs.
func (d *data) who(first, now uint32) string {
	if first == now {
		return "the same process"
	}
	return d.readers[first]
}

// places names where a block comes from.
func places(chunks []Chunk) string {
	if len(chunks) == 0 {
		return "of no chunk"
	}
	text := chunks[0].Place
	if more := len(chunks) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more places", more)
	}
	return text
}

// otherData is the error of data that is not the same for everyone who reads it.
func otherData(format string, args ...any) error {
	return fault.Userf("%s: the data changed while the job runs, or is not the same on all machines. Steps up to here have what was read first; "+
		"make the files the same everywhere, as they were when the job began, start the service again and resume all ranks from their checkpoint; "+
		"`millrace verify` compares the steps of a log with the data that is there", fmt.Sprintf(format, args...))
}
