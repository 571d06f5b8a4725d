package sourceloader

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// Fingerprints see that a file is another one, not every byte of it. What a chunk
// gave has a checksum as well: the planner compares it with every other reading of the
// chunk, and a fetch names the checksum of the block that its samples were planned with.

// errOther is what callers hear who want samples of other data than was planned with.
// It is of class fault.Lost: another loader may have the right data, and what is wrong
// is the planner's to say, who knows both sides.
var errOther = fault.Lostf("this loader's data is not what the job was planned with: the planner knows")

// summing computes the checksums of a block while it is read.
type summing struct {
	chunk, block samples.Checksum
}

// addSum takes the sample that was added last.
func (r *reading) addSum(s *transform.Sample) {
	at := samples.Origin{File: int32(r.file), Row: s.Row, Piece: s.Piece}
	var images []samples.Image
	if n := len(r.block.images); n > 0 {
		images = r.block.images[n-1]
	}
	r.sums.chunk.Add(at, s.Tokens, r.lastKept(), images, s.Masked)
}

// lastKept is what was kept of the sample that was added last.
func (r *reading) lastKept() [][]byte {
	r.kept = r.kept[:0]
	for _, column := range r.block.kept {
		r.kept = append(r.kept, column[len(column)-1])
	}
	return r.kept
}

// endChunk notes what a chunk of these units gave.
func (r *reading) endChunk(chunk int64, units []order.Unit) {
	sum := r.sums.chunk.Sum()
	r.sums.block.AddNumber(uint64(chunk))
	r.sums.block.AddNumber(sum)
	r.block.chunks = append(r.block.chunks, &pb.ChunkRead{Chunk: uint64(chunk), Sum: sum, Place: placeOf(&r.source.Manifest, units)})
	if r.ended != nil {
		r.ended(chunk, r.block)
	}
}

// placeOf says for messages which data a chunk is.
func placeOf(m *order.Manifest, units []order.Unit) string {
	first := &m.Files[units[0].File]
	switch {
	case len(units) > 1:
		return fmt.Sprintf("one of the %d files from %s to %s", len(units), first.URI, m.Files[units[len(units)-1].File].URI)
	case first.Chunks > 1:
		return fmt.Sprintf("%s, chunk %d of %d", first.URI, units[0].Chunk+1, first.Chunks)
	default:
		return first.URI
	}
}

// checksum is that of the whole block.
func (b *Block) checksum() uint64 { return b.sum }

func (s *spilled) checksum() uint64 { return s.sum }

// asPlanned makes sure that a block is the one that samples were planned of. If not,
// the planner learns what it is.
func (l *Loader) asPlanned(id blockID, sum uint64, b content) error {
	if sum == 0 || sum == b.checksum() {
		return nil
	}
	l.opts.Log.Error("a block is not what it was when it was planned", "source", id.source, "block", id.seq)
	report, err := b.report(id)
	if err != nil {
		return err
	}
	if err := l.tellBlock(id, report); err != nil {
		return err
	}
	return errOther
}
