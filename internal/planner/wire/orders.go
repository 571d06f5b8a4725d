package wire

import (
	"slices"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/cut"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

// Orders makes orders of effects. It is read-only.
type Orders struct {
	job       *jobspec.Job
	identity  [32]byte
	loaderJob *pb.LoaderJob // what loaders get of the job
	ahead     int           // steps planned ahead
	every     uint64        // steps to one that is traced; 0: none
}

// NewOrders returns the orders of a job that is planned some steps ahead of the slowest rank, and of which one step in
// traceEvery is traced, or none if that is 0.
func NewOrders(job *jobspec.Job, ahead int, traceEvery uint64) *Orders {
	return &Orders{job: job, identity: job.Identity(), loaderJob: compile.LoaderJob(job), ahead: ahead, every: traceEvery}
}

// LoaderJob tells a loader the job, before anything else.
func (o *Orders) LoaderJob() *pb.LoaderOrder {
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Job{Job: o.loaderJob}}
}

// Loader is an effect as an order to a loader, or nil. mayWait says
// whether it may wait until parts of plans are sent.
func (o *Orders) Loader(e control.Effect) (to control.Session, order *pb.LoaderOrder, mayWait bool) {
	switch e := e.(type) {
	case control.AddSource:
		add := compile.Assignment(o.job, e.Source, e.Spec)
		add.Roots, add.DataRoots = e.Roots.Code, e.Roots.Data
		return e.To, &pb.LoaderOrder{Order: &pb.LoaderOrder_Add{Add: add}}, false
	case control.Index:
		return e.To, &pb.LoaderOrder{Order: &pb.LoaderOrder_Index{Index: &pb.IndexSource{Source: uint32(e.Source), Ahead: e.Ahead}}}, false
	case control.Frozen:
		return e.To, &pb.LoaderOrder{Order: &pb.LoaderOrder_Frozen{Frozen: &pb.FrozenSource{Source: uint32(e.Source), Manifest: e.Manifest}}}, false
	case control.Bans:
		return e.To, &pb.LoaderOrder{Order: &pb.LoaderOrder_Bans{Bans: &pb.Bans{Bans: BanMessages(e.All)}}}, false
	case control.Find:
		return e.To, &pb.LoaderOrder{Order: &pb.LoaderOrder_Find{Find: &pb.FindFile{Source: uint32(e.Source), Name: e.Name}}}, false
	case control.Read:
		return e.To, &pb.LoaderOrder{Order: &pb.LoaderOrder_Read{Read: &pb.ReadBlock{Source: uint32(e.Source), Seq: uint64(e.Seq)}}}, true
	case control.Seat:
		return e.To, &pb.LoaderOrder{Order: &pb.LoaderOrder_Place{Place: uint32(e.Place + 1)}}, false
	case control.Release:
		r := &pb.ReleaseBlocks{Source: make([]uint32, len(e.Source)), Before: make([]uint64, len(e.Source))}
		for i, source := range e.Source {
			r.Source[i], r.Before[i] = uint32(source), uint64(e.Before[i])
		}
		return e.To, &pb.LoaderOrder{Order: &pb.LoaderOrder_Release{Release: r}}, true
	}
	return 0, nil, false
}

// BanMessages are bans as loaders get them.
func BanMessages(bans []plan.Ban) (all []*pb.Ban) {
	for _, b := range bans {
		all = append(all, &pb.Ban{Id: b.ID, Source: uint32(b.Source), File: b.File, Row: b.Row})
	}
	return all
}

// Constructor is an effect as an order to a constructor, or nil.
func (o *Orders) Constructor(e control.Effect) (to control.Session, order *pb.ConstructorOrder) {
	switch e := e.(type) {
	case control.Brief:
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Job{Job: o.constructorJob(e)}}
	case control.Joined:
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Joined{Joined: &pb.SourceJoined{Name: e.Name, Keep: e.Keep}}}
	case control.Placement:
		return e.To, placementOrder(e)
	case control.Entered:
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Entered{Entered: e.Join}}
	case control.Admit:
		admit := &pb.Admit{Join: e.Join, Rank: coordinates(e.Rank), OnlyAsks: e.OnlyAsks, Step: uint64(e.Step)}
		if in := e.Entered; in.Join > 0 {
			admit.Entered = &pb.RankEntry{Join: in.Join, Generation: in.Generation, Step: uint64(in.Step)}
		}
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Admit{Admit: admit}}
	case control.Restart:
		return e.To, restartOrder(e)
	case control.EndOfData:
		end := &pb.EndOfData{Generation: e.Generation, Step: uint64(e.Step), Topology: e.Topology}
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_End{End: end}}
	case control.Failure:
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Failure{Failure: rpc.ToFailure(e.Err, -1)}}
	}
	return 0, nil
}

// Beats are sent on sessions on which nothing else is.
var (
	LoaderBeat      = &pb.LoaderOrder{Order: &pb.LoaderOrder_Beat{Beat: &pb.Beat{}}}
	ConstructorBeat = &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Beat{Beat: &pb.Beat{}}}
)

// Plan is a part of a plan as an order to a constructor.
func Plan(part *pb.StepPlan) *pb.ConstructorOrder {
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Plan{Plan: part}}
}

func placementOrder(e control.Placement) *pb.ConstructorOrder {
	p := &pb.Placement{Loaders: e.Loaders}
	if slices.ContainsFunc(e.Shadows, func(s string) bool { return s != "" }) {
		p.Shadows = e.Shadows
	}
	for _, i := range e.Suspects {
		p.Suspects = append(p.Suspects, uint32(i))
	}
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Placement{Placement: p}}
}

func restartOrder(e control.Restart) *pb.ConstructorOrder {
	r := &pb.Restart{Generation: e.Generation, NextStep: uint64(e.NextStep), Remeshed: e.Remeshed, Since: e.Since, Continues: e.Continues, Resent: e.Resent}
	if m := e.Moved; m != nil {
		r.Moved = &pb.Moved{To: uint64(m.To), WithoutToken: m.WithoutToken, Topology: m.Topology}
		if m.By != nil {
			r.Moved.By = coordinates(*m.By)
		}
	}
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Restart{Restart: r}}
}

// constructorJob is all that a constructor knows of the job.
func (o *Orders) constructorJob(e control.Brief) *pb.ConstructorJob {
	job := o.job
	out := &pb.ConstructorJob{
		Name: job.Name, Identity: o.identity[:],
		SequenceLength: uint32(job.Batch.SequenceLength),
		Packing:        job.Batch.Packing,
		Mesh:           cut.Mesh(e.Mesh),
		Format:         job.Output.Format, CpSlicing: job.Output.CPSlicing, BroadcastAt: job.Output.BroadcastAt,
		PadId:            job.Output.PadID,
		DocumentMultiple: uint32(job.Output.DocumentMultiple),
		BufferBytes:      uint64(job.Resources.ConstructorBuffer),
		Buckets:          e.Buckets,
		Images:           imageSteps(job),
		ContextSplit:     job.Pool(),
		Ahead:            uint32(o.ahead),
		TraceEvery:       o.every,
	}
	for _, s := range job.Sources {
		out.Sources = append(out.Sources, s.Name)
		out.Kept = append(out.Kept, &pb.KeptColumns{Names: s.Keep})
	}
	return out
}

// imageSteps tells constructors how images become patches, by source.
func imageSteps(job *jobspec.Job) (steps []*pb.ImageStep) {
	if !compile.HasImages(job) {
		return nil
	}
	for _, s := range job.Sources {
		step := &pb.ImageStep{}
		if x := s.Images(); x != nil {
			step = &pb.ImageStep{Patch: uint32(x.Patch), Merge: uint32(x.Merge), MinPixels: uint64(x.MinPixels), MaxPixels: uint64(x.MaxPixels)}
		}
		steps = append(steps, step)
	}
	return steps
}

// LoaderEpoch tells a loader the planner's epoch.
func LoaderEpoch(epoch uint64) *pb.LoaderOrder {
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Epoch{Epoch: epoch}}
}

// ConstructorEpoch tells a constructor the planner's epoch.
func ConstructorEpoch(epoch uint64) *pb.ConstructorOrder {
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Epoch{Epoch: epoch}}
}
