package planner

import (
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// maxReport bounds what a loader has said of blocks that are not whole, in bytes: the lengths
// of 64 million samples, which no loader has memory for.
const maxReport = 256 << 20

// maxQuestions bounds the joins, states and changes that wait for an answer: four of each of
// 4096 ranks.
const maxQuestions = 16_384

var errQuestions = fault.Lostf("%d requests wait for the planner, which is the limit max_questions: try again later", maxQuestions)

// await takes in a question that may have to wait; false if there are too many.
func (p *Planner) await(question func() bool) bool {
	if len(p.waiting) >= maxQuestions {
		return false
	}
	p.waiting = append(p.waiting, question)
	return true
}

// blockParts puts together what a loader says of a block in several messages; those of several
// blocks may come at a time. It belongs to one session.
type blockParts struct {
	blocks map[wantKey]*pb.BlockRead // so far
	bytes  int
}

// add takes a report and returns it, whole; nil if more of it is to come.
func (b *blockParts) add(report *pb.LoaderReport) (*pb.LoaderReport, error) {
	part := report.GetBlock()
	if part == nil {
		return report, nil
	}
	key := wantKey{int32(part.Source), int64(part.Seq)}
	block := b.blocks[key]
	switch {
	case block == nil && !part.More:
		return report, nil
	case block == nil:
		block = &pb.BlockRead{}
		if b.blocks == nil {
			b.blocks = map[wantKey]*pb.BlockRead{}
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
