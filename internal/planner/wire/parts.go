package wire

import (
	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// maxReport bounds what a loader has said of blocks that are not whole, in bytes: the lengths
// of 64 million samples, which no loader has memory for.
const maxReport = 256 << 20

// blockKey names a block of a source.
type blockKey struct {
	source uint32
	seq    uint64
}

// BlockParts puts together what a loader says of a block in several messages; those of several
// blocks may come at a time. It belongs to one session.
type BlockParts struct {
	blocks map[blockKey]*pb.BlockRead // so far
	bytes  int
}

// Add takes a report and returns it, whole; nil if more of it is to come.
func (b *BlockParts) Add(report *pb.LoaderReport) (*pb.LoaderReport, error) {
	part := report.GetBlock()
	if part == nil {
		return report, nil
	}
	key := blockKey{part.Source, part.Seq}
	block := b.blocks[key]
	switch {
	case block == nil && !part.More:
		return report, nil
	case block == nil:
		block = &pb.BlockRead{}
		if b.blocks == nil {
			b.blocks = map[blockKey]*pb.BlockRead{}
		}
		b.blocks[key] = block
	}
	if b.bytes += proto.Size(part); b.bytes > maxReport {
		return nil, rpc.TooLarge("what a loader says of the blocks that it reads", "max_report", maxReport)
	}
	proto.Merge(block, part)
	if part.More {
		return nil, nil
	}
	delete(b.blocks, key)
	if len(b.blocks) == 0 {
		b.bytes = 0
	}
	block.More = false
	return &pb.LoaderReport{Report: &pb.LoaderReport_Block{Block: block}}, nil
}
