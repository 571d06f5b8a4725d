package compile

import (
	"encoding/json"
	"fmt"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// LoaderJob is what loaders know of a job. They read no job spec.
func LoaderJob(job *jobspec.Job) *pb.LoaderJob {
	out := &pb.LoaderJob{
		Seed: job.Seed, LongestSample: uint32(job.LongestSample()),
		BufferBytes: uint64(job.Resources.LoaderBuffer), DiskBytes: uint64(job.Resources.LoaderDisk),
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
	}
	for _, t := range s.Transforms {
		out.Transforms = append(out.Transforms, transform(t))
	}
	return out
}

func transform(t jobspec.Transform) *pb.TransformStep {
	switch {
	case t.Text != "":
		return &pb.TransformStep{Step: &pb.TransformStep_Text{Text: t.Text}}
	case t.Tokens != "":
		return &pb.TransformStep{Step: &pb.TransformStep_Tokens{Tokens: t.Tokens}}
	case t.LossMask != "":
		return &pb.TransformStep{Step: &pb.TransformStep_LossMask{LossMask: t.LossMask}}
	case t.Filter != "":
		return &pb.TransformStep{Step: &pb.TransformStep_Filter{Filter: t.Filter}}
	case t.Tokenize != nil:
		x := t.Tokenize
		return &pb.TransformStep{Step: &pb.TransformStep_Tokenize{Tokenize: &pb.TokenizeStep{
			Encoding: x.Encoding, Ranks: x.Ranks, Sha256: x.SHA256, Special: x.Special, Allow: x.Allow, Refuse: x.Refuse,
			File: x.File, PostProcessor: x.PostProcessor,
		}}}
	case t.AppendEOD != nil:
		return &pb.TransformStep{Step: &pb.TransformStep_AppendEod{AppendEod: t.AppendEOD.ID}}
	case t.Image != nil:
		x := t.Image
		return &pb.TransformStep{Step: &pb.TransformStep_Image{Image: &pb.ImageTransform{
			Columns: x.Columns, Token: x.Token, Begin: x.Begin, End: x.End, Patch: uint32(x.Patch), Merge: uint32(x.Merge),
			MinPixels: uint64(x.MinPixels), MaxPixels: uint64(x.MaxPixels), MaxImages: uint32(x.MaxImages), Decode: x.Decode, Verify: x.Verify,
		}}}
	case t.Chat != nil:
		return operator("chat", t.Chat)
	case t.Python != nil:
		return operator("python", t.Python)
	case t.Normalize != "":
		return operator("normalize", t.Normalize)
	case t.Replace != nil:
		return operator("replace", t.Replace)
	}
	return &pb.TransformStep{} // of no kind; the loader's compiler refuses it
}

// operator is a step without a message of its own. Its fields are texts and numbers.
func operator(name string, fields any) *pb.TransformStep {
	data, err := json.Marshal(fields)
	if err != nil {
		panic(fmt.Sprintf("compile: the fields of step %s: %v", name, err))
	}
	return &pb.TransformStep{Step: &pb.TransformStep_Operator{Operator: &pb.OperatorStep{Name: name, Fields: data}}}
}
