package compile

import (
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// LoaderJob is what loaders know of a job. They read no job spec.
func LoaderJob(job *jobspec.Job) *pb.LoaderJob {
	out := &pb.LoaderJob{
		Seed: job.Seed, LongestSample: uint32(job.LongestSample()),
		BufferBytes: uint64(job.Resources.LoaderBuffer), DiskBytes: uint64(job.Resources.LoaderDisk),
		PythonWorkers: uint32(job.Resources.PythonWorkers), SpillBytes: uint64(job.Resources.Spill), WorkerPools: job.Resources.WorkerPools,
	}
	for i := range job.Sources {
		out.Sources = append(out.Sources, Assignment(job, i, job.Sources[i]))
	}
	return out
}

// Assignment is what loaders know of source number i of a job, which may have joined it.
// Its limits on samples and on bad records are left out: they are the planner's.
func Assignment(job *jobspec.Job, i int, source jobspec.Source) *pb.Assignment {
	own := *job
	own.Sources = []jobspec.Source{source}
	s := &own.ResolvedSources()[0]
	out := &pb.Assignment{
		Source: uint32(i), Name: s.Name, Files: s.Files, Format: s.Format, ChunkBytes: uint64(s.ChunkBytes), Keep: s.Keep,
		LongRule: s.Long.Rule, LongMax: uint32(s.Long.Max), Shuffle: s.Shuffle.Enabled, ShuffleBlock: uint32(s.Shuffle.Block),
		SkipBadRecords: s.BadRecords.Policy == "skip", MaxRecord: uint64(s.MaxRecord), MaxElements: uint32(s.MaxElements),
		Implied: uint32(s.Implied),
	}
	for _, t := range s.Transforms {
		out.Transforms = append(out.Transforms, transform(t))
	}
	return out
}

// transform is a step as loaders get it: the first operators have messages of their own.
func transform(t jobspec.Transform) *pb.TransformStep {
	switch x := t.(type) {
	case jobspec.Text:
		return &pb.TransformStep{Step: &pb.TransformStep_Text{Text: string(x)}}
	case jobspec.Tokens:
		return &pb.TransformStep{Step: &pb.TransformStep_Tokens{Tokens: string(x)}}
	case jobspec.LossMask:
		return &pb.TransformStep{Step: &pb.TransformStep_LossMask{LossMask: string(x)}}
	case jobspec.Filter:
		return &pb.TransformStep{Step: &pb.TransformStep_Filter{Filter: string(x)}}
	case *jobspec.Tokenize:
		return &pb.TransformStep{Step: &pb.TransformStep_Tokenize{Tokenize: &pb.TokenizeStep{
			Encoding: x.Encoding, Ranks: x.Ranks, Sha256: x.SHA256, Special: x.Special, Allow: x.Allow, Refuse: x.Refuse,
			File: x.File, PostProcessor: x.PostProcessor,
		}}}
	case *jobspec.AppendEOD:
		return &pb.TransformStep{Step: &pb.TransformStep_AppendEod{AppendEod: x.ID}}
	case *jobspec.Image:
		if x.Marker != "" || x.MarkerID != 0 {
			break // loaders of versions before markers refuse an operator with such fields
		}
		return &pb.TransformStep{Step: &pb.TransformStep_Image{Image: &pb.ImageTransform{
			Columns: x.Columns, Token: x.Token, Begin: x.Begin, End: x.End, Patch: uint32(x.Patch), Merge: uint32(x.Merge),
			MinPixels: uint64(x.MinPixels), MaxPixels: uint64(x.MaxPixels), MaxImages: uint32(x.MaxImages), Decode: x.Decode, Verify: x.Verify,
		}}}
	}
	name, fields := jobspec.MarshalStep(t)
	return &pb.TransformStep{Step: &pb.TransformStep_Operator{Operator: &pb.OperatorStep{Name: name, Fields: fields}}}
}
