// Package cut makes the parts of a step's plan that constructors get: each has the rows of
// its DP ranks and the images that these encode, column by column.
//
// It owns the form of a StepPlan, and decides nothing: rows, ranks and places are those of
// the plan. It is pure; a Step may be cut for several constructors at the same time.
package cut

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Step is a step to cut. It is read-only.
type Step struct {
	step   *plan.Step
	images *stepImages // nil if its samples have none
}

// New finds the place of each image of a step.
func New(s *plan.Step) (*Step, error) {
	if s.Buffer.ImageOffsets == nil {
		return &Step{step: s}, nil
	}
	images, err := placeImages(s)
	if err != nil {
		return nil, fmt.Errorf("step %d: %w", s.Step, err)
	}
	return &Step{s, images}, nil
}

// Is says whether it is this step.
func (s *Step) Is(step *plan.Step) bool { return s != nil && s.step == step }

// Part is the part of the constructor that serves some DP ranks. block says where a block
// is; it is called from the caller's goroutine.
func (s *Step) Part(generation uint64, buckets []uint32, block func(source int32, seq int64) *pb.PlanBlock) *pb.StepPlan {
	step := s.step
	part := step.Placed.Part(buckets)
	out := &pb.StepPlan{
		Generation: generation, Step: uint64(step.Step),
		Rows: part.Rows, RowSamples: part.RowSamples, RowRank: part.Rank, RowMicrobatch: part.Microbatch, RowWidth: part.Width,
		SampleBlock: part.SampleBlock, SampleIndex: part.SampleIndex, SampleLength: part.SampleLength,
		SequenceLength: uint32(step.Shape.SequenceLength), Microbatches: uint32(step.Placed.Microbatches), GlobalRows: uint32(len(step.Rows)),
	}
	out.Blocks = make([]*pb.PlanBlock, 0, len(part.Blocks))
	for _, b := range part.Blocks {
		out.Blocks = append(out.Blocks, block(b.Source, b.Seq))
	}
	if s.images != nil {
		s.addImages(out, &part, buckets, block)
	}
	return out
}
