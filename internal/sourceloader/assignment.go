package sourceloader

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// A loader reads no job spec: the planner compiles one assignment for each source
// (planner/compile), in which defaults are filled in, rules are checked and paths resolved.

// assigned is the source of an assignment: what compile.Assignment made it of, but for what
// is the planner's.
func assigned(a *pb.Assignment) jobspec.Source {
	s := jobspec.Source{
		Name: a.Name, Files: a.Files, Format: a.Format, ChunkBytes: int64(a.ChunkBytes), Keep: a.Keep,
		Long:       jobspec.Long{Rule: a.LongRule, Max: int(a.LongMax)},
		Shuffle:    jobspec.Shuffle{Enabled: a.Shuffle, Block: int(a.ShuffleBlock)},
		BadRecords: jobspec.BadRecords{Policy: "stop"},
		MaxRecord:  int64(a.MaxRecord), MaxElements: int(a.MaxElements),
		Implied: int(a.Implied),
	}
	if a.SkipBadRecords {
		s.BadRecords.Policy = "skip"
	}
	for _, t := range a.Transforms {
		s.Transforms = append(s.Transforms, assignedTransform(t))
	}
	return s
}

// assignedTransform is nil for a step of a newer planner; compiling it says that no such step exists.
func assignedTransform(t *pb.TransformStep) jobspec.Transform {
	switch x := t.Step.(type) {
	case *pb.TransformStep_Text:
		return jobspec.Text(x.Text)
	case *pb.TransformStep_Tokens:
		return jobspec.Tokens(x.Tokens)
	case *pb.TransformStep_LossMask:
		return jobspec.LossMask(x.LossMask)
	case *pb.TransformStep_Filter:
		return jobspec.Filter(x.Filter)
	case *pb.TransformStep_Tokenize:
		y := x.Tokenize
		return &jobspec.Tokenize{
			Encoding: y.Encoding, Ranks: y.Ranks, SHA256: y.Sha256, Special: y.Special, Allow: y.Allow, Refuse: y.Refuse,
			File: y.File, PostProcessor: y.PostProcessor,
		}
	case *pb.TransformStep_AppendEod:
		return &jobspec.AppendEOD{ID: x.AppendEod}
	case *pb.TransformStep_Image:
		y := x.Image
		return &jobspec.Image{
			Columns: y.Columns, Token: y.Token, Begin: y.Begin, End: y.End, Patch: int(y.Patch), Merge: int(y.Merge),
			MinPixels: int(y.MinPixels), MaxPixels: int(y.MaxPixels), MaxImages: int(y.MaxImages), Decode: y.Decode, Verify: y.Verify,
		}
	case *pb.TransformStep_Operator:
		if step, err := jobspec.UnmarshalStep(x.Operator.Name, x.Operator.Fields); err == nil {
			return step
		}
	}
	return nil
}

// setJob takes in the job.
func (l *Loader) setJob(job *pb.LoaderJob) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.job, l.sources, l.shared.Seed = job, nil, job.Seed
	for _, a := range job.Sources {
		l.sources = append(l.sources, newLazySource(a))
	}
}

// goOn takes in the job of a planner that took another one's place. Sources that are open,
// and blocks that are here, stay.
func (l *Loader) goOn(job *pb.LoaderJob) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	was, is := proto.CloneOf(l.job), proto.CloneOf(job)
	for _, j := range []*pb.LoaderJob{was, is} {
		j.BufferBytes, j.DiskBytes, j.PythonWorkers, j.SpillBytes, j.WorkerPools = 0, 0, 0, 0, nil // what this process was started with stays
		for _, a := range j.Sources {
			a.Implied = 0 // a planner of a version before does not say it
		}
	}
	if !proto.Equal(was, is) {
		return fault.Lostf("the planner at %s has another job by now: start loader %s again for it", l.opts.Planner, l.opts.ID)
	}
	for _, s := range l.sources {
		s.told.Store(false)
	}
	return nil
}

// known returns the job and its source i, nil if there is none.
func (l *Loader) known(i uint32) (*pb.LoaderJob, *lazySource) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(i) >= len(l.sources) {
		return l.job, nil
	}
	return l.job, l.sources[i]
}

// add takes in a source that joins the job, in place of one of the same number that could
// not. One that is here already stays.
func (l *Loader) add(a *pb.Assignment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.sources)
	if int(a.Source) > n {
		return fmt.Errorf("source %d joins, the job has %d", a.Source, n)
	}
	if int(a.Source) < n && proto.Equal(l.sources[a.Source].assigned, a) {
		return nil
	}
	l.sources = append(slices.Clip(l.sources[:a.Source]), newLazySource(a))
	for i := int(a.Source); i < n; i++ {
		l.cache.forget(uint32(i)) // what was read of another source of this number
	}
	return nil
}

// openAssigned opens the source of an assignment.
func (l *Loader) openAssigned(ctx context.Context, job *pb.LoaderJob, a *pb.Assignment) (*Source, error) {
	spec, st := assigned(a), l.storeIn(dataRoots(a))
	if within, ok := st.(*store.Within); ok {
		for _, path := range spec.Programs() {
			if err := within.Check(path); err != nil {
				return nil, err
			}
		}
		code := store.NewWithin(l.store, a.Roots)
		for _, path := range spec.Code() {
			if err := code.Check(path); err != nil {
				return nil, err
			}
		}
	}
	return open(ctx, st, spec, job.Seed, int(job.LongestSample), l.shared)
}

// dataRoots are the roots that all of a source but its Python functions must be in. A planner of a version before sends
// one list.
func dataRoots(a *pb.Assignment) []string {
	if len(a.DataRoots) == 0 {
		return a.Roots
	}
	return a.DataRoots
}
