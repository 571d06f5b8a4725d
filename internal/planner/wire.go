package planner

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/cut"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/jobspec"
)

// This file is where messages become events, and effects messages.

// loaderEvent is what a loader reports.
func loaderEvent(from control.Session, report *pb.LoaderReport) control.Event {
	switch r := report.Report.(type) {
	case *pb.LoaderReport_Indexed:
		x := r.Indexed
		return control.Indexed{
			Session: from, Source: int(x.Source), Blocks: x.Blocks, Manifest: x.Manifest,
			Files: x.Files, Bytes: x.Bytes, Listing: x.Listing,
		}
	case *pb.LoaderReport_Block:
		return BlockEvent(from, r.Block)
	case *pb.LoaderReport_Found:
		f := r.Found
		return control.FileFound{Source: int(f.Source), Name: f.Name, Path: f.Path, Problem: f.Problem, Below: int64(f.Below)}
	case *pb.LoaderReport_Failure:
		return control.LoaderFailed{Session: from, Source: int(r.Failure.Source) - 1, Block: int64(r.Failure.Block) - 1, Err: rpc.FromFailure(r.Failure)}
	}
	return nil
}

// BlockEvent is what a loader reports of a block. What cannot be is a failure.
func BlockEvent(from control.Session, b *pb.BlockRead) control.Event {
	ev := control.BlockRead{Session: from, Records: b.Records, Sum: b.Sum}
	ev.Block = plan.BlockRead{Source: int32(b.Source), Seq: int64(b.Seq), Lengths: make([]int32, len(b.Lengths)), Bans: int(b.BansKnown), Bytes: int64(b.Bytes)}
	ev.Block.Discarded = plan.Discarded{Filtered: int64(b.Filtered), Dropped: int64(b.Dropped), Empty: int64(b.Empty)}
	for i, n := range b.Lengths {
		ev.Block.Lengths[i] = int32(n)
	}
	for i, index := range b.Banned {
		ev.Block.Banned = append(ev.Block.Banned, plan.Banned{Index: int32(index), Ban: b.Bans[i]})
	}
	for _, s := range b.Skips {
		ev.Skips = append(ev.Skips, control.Skip{File: s.File, Row: s.Row, Reason: s.Reason})
	}
	for _, a := range b.Absent {
		ev.Absent = append(ev.Absent, control.AbsentField{Field: a.Path, Records: a.Records, Hint: a.Hint})
	}
	for _, x := range b.Chunks {
		ev.Chunks = append(ev.Chunks, control.Chunk{Chunk: x.Chunk, Sum: x.Sum, Place: x.Place})
	}
	var err error
	if ev.Block.Images, err = imagesRead(b); err != nil {
		return control.Failed{Err: err}
	}
	return ev
}

// imagesRead are the images of a block: nil if its source has none. Counts that cannot
// be are an error.
func imagesRead(b *pb.BlockRead) (*plan.Images, error) {
	if len(b.Images) == 0 && len(b.ImageHeight) == 0 {
		return nil, nil
	}
	total := 0
	images := &plan.Images{Offsets: append(make([]int32, 0, len(b.Images)+1), 0)}
	for _, n := range b.Images {
		total += int(n)
		images.Offsets = append(images.Offsets, int32(total))
	}
	if len(b.Images) != len(b.Lengths) || len(b.ImageHeight) != total || len(b.ImageWidth) != total {
		return nil, fmt.Errorf("source %d, block %d: a loader told of %d, %d and %d images of %d samples (%d are there)",
			b.Source, b.Seq, total, len(b.ImageHeight), len(b.ImageWidth), len(b.Images), len(b.Lengths))
	}
	for i, h := range b.ImageHeight {
		images.Patches = append(images.Patches, int32(h*b.ImageWidth[i]))
	}
	return images, nil
}

// listingOf reads what a manifest is made of.
func listingOf(data []byte) (l control.Listing, err error) {
	var in pb.Listing
	err = proto.Unmarshal(data, &in)
	l = control.Listing{Folder: in.Folder, Encoding: in.Encoding}
	for _, f := range in.Files {
		l.Files = append(l.Files, control.ListedFile{Name: f.Name, Size: f.Size, Chunks: f.Chunks, Fingerprint: f.Fingerprint})
	}
	return l, err
}

// constructorEvent is what a constructor reports.
func constructorEvent(from control.Session, report *pb.ConstructorReport) control.Event {
	switch r := report.Report.(type) {
	case *pb.ConstructorReport_Assembled:
		return assembledEvent(r.Assembled)
	case *pb.ConstructorReport_Acked:
		return ackedEvent(r.Acked)
	case *pb.ConstructorReport_Usage:
		u := r.Usage
		lag := control.Lag{Session: from, Generation: u.Generation, Absent: int(u.Absent)}
		for _, x := range u.AbsentRanks {
			lag.AbsentRanks = append(lag.AbsentRanks, rankOf(x))
		}
		for _, a := range u.Slowest {
			lag.Slowest = append(lag.Slowest, ackedEvent(a))
		}
		return lag
	case *pb.ConstructorReport_Admitted:
		a := r.Admitted
		return control.Admitted{Session: from, Join: a.Join, Generation: a.Generation, Acked: int64(a.Acked), Advanced: a.Advanced}
	case *pb.ConstructorReport_Restarted:
		return control.Restarted{Session: from, Generation: r.Restarted}
	case *pb.ConstructorReport_Failure:
		return control.Failed{Err: rpc.FromFailure(r.Failure)}
	}
	return nil
}

// heldOf is what a constructor kept; nil if that is nothing.
func heldOf(h *pb.Held) *control.Held {
	if h == nil {
		return nil
	}
	held := &control.Held{Identity: h.Identity, Generation: h.Generation, Next: int64(h.Next), Entered: h.Entered}
	for _, a := range h.Acked {
		held.Acked = append(held.Acked, ackedEvent(a))
	}
	for _, r := range h.Ranks {
		held.Ranks = append(held.Ranks, control.HeldRank{Rank: rankOf(r.Rank), Join: r.Join, Generation: r.Generation, Step: int64(r.Step)})
	}
	return held
}

func assembledEvent(a *pb.Assembled) control.Event {
	if len(a.Digests) != 32*len(a.Rows) {
		return control.Failed{Err: fmt.Errorf("step %d: %d bytes of digests for %d rows", a.Step, len(a.Digests), len(a.Rows))}
	}
	ev := plan.Assembled{Step: int64(a.Step), Rows: a.Rows, Digests: make([][32]byte, len(a.Rows))}
	for i := range ev.Digests {
		ev.Digests[i] = [32]byte(a.Digests[32*i:])
	}
	return control.Assembled{Generation: a.Generation, Rows: ev}
}

func ackedEvent(a *pb.Acked) control.Acked {
	return control.Acked{Generation: a.Generation, Bucket: a.Bucket, Step: int64(a.Step), Slowest: a.Slowest, Waits: a.Waits}
}

func rankOf(r *pb.Coordinates) control.Rank {
	return control.Rank{DP: r.GetDp(), CP: r.GetCp(), PP: r.GetPp(), TP: r.GetTp()}
}

func coordinates(r control.Rank) *pb.Coordinates {
	return &pb.Coordinates{Dp: r.DP, Cp: r.CP, Pp: r.PP, Tp: r.TP}
}

// jobOrder tells a loader the job, before anything else.
func (p *Planner) jobOrder() *pb.LoaderOrder {
	return &pb.LoaderOrder{Order: &pb.LoaderOrder_Job{Job: p.loaderJob}}
}

// loaderOrder is an effect as an order to a loader, or nil. mayWait says
// whether it may wait until parts of plans are sent.
func (p *Planner) loaderOrder(e control.Effect) (to control.Session, order *pb.LoaderOrder, mayWait bool) {
	switch e := e.(type) {
	case control.AddSource:
		add := compile.Assignment(p.opts.Job, e.Source, e.Spec)
		add.Roots = e.Roots
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
		r := &pb.ReleaseBlocks{}
		for i, source := range e.Source {
			r.Source, r.Before = append(r.Source, uint32(source)), append(r.Before, uint64(e.Before[i]))
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

// constructorOrder is an effect as an order to a constructor, or nil.
func (p *Planner) constructorOrder(e control.Effect) (to control.Session, order *pb.ConstructorOrder) {
	switch e := e.(type) {
	case control.Brief:
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Job{Job: p.constructorJob(e)}}
	case control.Joined:
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Joined{Joined: &pb.SourceJoined{Name: e.Name, Keep: e.Keep}}}
	case control.Placement:
		return e.To, placementOrder(e)
	case control.Entered:
		return e.To, &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Entered{Entered: e.Join}}
	case control.Admit:
		admit := &pb.Admit{Join: e.Join, Rank: coordinates(e.Rank), OnlyAsks: e.OnlyAsks}
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
	loaderBeat      = &pb.LoaderOrder{Order: &pb.LoaderOrder_Beat{Beat: &pb.Beat{}}}
	constructorBeat = &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Beat{Beat: &pb.Beat{}}}
)

func planOrder(part *pb.StepPlan) *pb.ConstructorOrder {
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
	r := &pb.Restart{Generation: e.Generation, NextStep: uint64(e.NextStep), Remeshed: e.Remeshed, Since: e.Since, Continues: e.Continues}
	if m := e.Moved; m != nil {
		r.Moved = &pb.Moved{To: uint64(m.To), WithoutToken: m.WithoutToken, Topology: m.Topology}
		if m.By != nil {
			r.Moved.By = coordinates(*m.By)
		}
	}
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Restart{Restart: r}}
}

// constructorJob is all that a constructor knows of the job.
func (p *Planner) constructorJob(e control.Brief) *pb.ConstructorJob {
	job := p.opts.Job
	out := &pb.ConstructorJob{
		Name: job.Name, Identity: p.spec[:],
		SequenceLength: uint32(job.Batch.SequenceLength),
		MicrobatchSize: uint32(job.Batch.MicrobatchSize),
		Packing:        job.Batch.Packing,
		Mesh:           cut.Mesh(e.Mesh),
		Format:         job.Output.Format, CpSlicing: job.Output.CPSlicing, BroadcastAt: job.Output.BroadcastAt,
		PadId:            job.Output.PadID,
		DocumentMultiple: uint32(job.Output.DocumentMultiple),
		BufferBytes:      uint64(job.Resources.ConstructorBuffer),
		Buckets:          e.Buckets,
		Images:           imageSteps(job),
		ContextSplit:     job.Batch.ContextSplit > 0,
		Ahead:            uint32(p.opts.Prefetch),
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
