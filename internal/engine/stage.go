package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// Partition is what tasks take and give. It is read-only once given. One that has a
// method Digest() uint64 is compared by it, when a task has to run again, with what that task gave
// before; others by their bytes alone.
type Partition interface{ Bytes() int64 }

// Stage is one operator of a chain.
type Stage struct {
	Name string
	// Needs are the slots that one task takes, by the name of the resource.
	Needs map[string]schedule.Amount
	// Partition is the target size of what a task gives; 0 is DefaultPartition. Tasks cut by it and by nothing else,
	// so that the same input gives the same partitions; only one record may be larger.
	Partition int64
	// Ratio is the most bytes given for each byte taken, in thousandths; 0 means 1000.
	// A wrong one costs time, never the limit.
	Ratio int64
	// Keeps says that a task needs its input until it ends, so that what it gives is
	// made beside it. Else it calls Output.Release, and the output takes the place of the input.
	Keeps bool
	// Merge puts inputs together that are smaller than half of it, until they are that large: neighbours
	// of one source task, in order. 0 makes a task of each partition.
	Merge int64
	// Gather has a task take all that as many source tasks gave, neighbours in the order of the data, by source task and
	// partition; All takes those of a run. The last may have fewer, and source tasks that gave nothing have no task. 0 makes a task of
	// each partition. One stage of a pipeline may gather, without Merge. The limit has to hold what a task takes and gives at the
	// same time: if it does not, the run ends with an error of class fault.User.
	Gather int
	// Validate says what is wrong with the stage, before any work; nil if nothing can be. Its error is that of
	// Executor.Pipeline.
	Validate func() error
	// Setup makes a worker, which is a node with its slots, ready for the stage: once on each, before its first task of the stage
	// there. It may be nil. What each process on it needs is that process's to do.
	// Its error is that of the task, which is lost or ends the run, and Setup is called again for the next one.
	Setup func(ctx context.Context, on *Worker) error
	// Sink says that tasks of this stage, the last one, give nothing.
	Sink bool
	// Process does the work of a task. It may be called again for the same input, if a
	// task is lost, and has to give the same then. The first stage has none: see Source.
	//
	// An error of class fault.Lost has the task run again, unless it is fault.ErrTried; every other ends the run.
	Process func(ctx context.Context, in []Partition, out *Output) error
}

// DefaultPartition is the target size of what tasks give, in bytes.
const DefaultPartition = 128 << 20

// Source is a task of the first stage: a place in files, which can be read again.
type Source struct {
	Expect int64 // bytes that it is expected to give, as its files say
	Read   func(ctx context.Context, out *Output) error
}

// Work is what one run of a pipeline does: a block of a source.
type Work struct {
	// Seq is the place of the run among those of its pipeline. Runs near to the pipeline's
	// cursor go first.
	Seq     int64
	Sources []Source
}

// All is Stage.Gather of all source tasks of a run.
const All = -1

// withDefaults returns the stages with what was left out.
func withDefaults(stages []Stage) []Stage {
	stages = slices.Clone(stages)
	for i := range stages {
		if s := &stages[i]; s.Partition == 0 && !s.Sink {
			s.Partition = DefaultPartition
		}
	}
	return stages
}

func checkStages(stages []Stage, names map[string]int) error {
	if len(stages) == 0 {
		return fmt.Errorf("engine: a pipeline has at least one stage")
	}
	for i, s := range stages {
		last := i == len(stages)-1
		switch {
		case (s.Process == nil) != (i == 0):
			return fmt.Errorf("engine: stage %q: all stages but the first have a Process", s.Name)
		case s.Sink && !last:
			return fmt.Errorf("engine: stage %q gives nothing, but stages follow", s.Name)
		case i == 0 && len(s.Needs) == 0:
			return fmt.Errorf("engine: stage %q reads, and needs no slot: nothing would limit how many of its tasks run", s.Name)
		case s.Gather != 0 && (i == 0 || s.Gather < All || s.Merge != 0):
			return fmt.Errorf("engine: stage %q gathers %d source tasks: give 1 or more, or All, to a stage behind the first that does not merge", s.Name, s.Gather)
		case s.Gather != 0 && slices.ContainsFunc(stages[:i], func(s Stage) bool { return s.Gather != 0 }):
			return fmt.Errorf("engine: stage %q gathers what was gathered already: one stage of a pipeline can", s.Name)
		case s.Partition < 0:
			return fmt.Errorf("engine: stage %q gives partitions of %d bytes: give 1 or more, or 0 for the default", s.Name, s.Partition)
		}
		if s.Validate != nil {
			if err := s.Validate(); err != nil {
				return fmt.Errorf("engine: stage %q: %w", s.Name, err)
			}
		}
		for name, need := range s.Needs {
			if _, ok := names[name]; !ok || need < 0 {
				return fmt.Errorf("engine: stage %q needs %d of %q, which the executor does not have", s.Name, need, name)
			}
		}
	}
	return nil
}

// operators are the stages as the policy sees them. The last stands for whoever collects: what
// waits for its turn there is in the store, too.
func operators(stages []Stage, names map[string]int) []schedule.Operator {
	var ops []schedule.Operator
	for _, s := range stages {
		op := schedule.Operator{Name: s.Name, Needs: make([]schedule.Amount, len(names))}
		for name, need := range s.Needs {
			op.Needs[names[name]] = need
		}
		op.Declared = schedule.Declared{Partition: s.Partition, Ratio: s.Ratio, Gathers: s.Gather != 0}
		if s.Keeps {
			op.Declared.Ratio = max(s.Ratio, 0) + 1000
			if s.Ratio == 0 {
				op.Declared.Ratio = 2000
			}
		}
		ops = append(ops, op)
	}
	if !stages[len(stages)-1].Sink {
		ops = append(ops, schedule.Operator{Name: "collect", Needs: make([]schedule.Amount, len(names))})
	}
	return ops
}
