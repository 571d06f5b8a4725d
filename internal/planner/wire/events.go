// Package wire is the planner's side of the wire: what loaders and constructors report as events
// of the core, and the core's effects as orders to them; what trainers ask as questions of the core,
// and its answers as replies.
//
// It decides nothing and sends nothing; all that it keeps is the parts of a report that is not
// whole yet. A report that cannot be is an event that fails the job; a request that cannot be is
// refused.
package wire

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// LoaderJoined is the loader that begins a session with a hello. buffer is the job's, for a loader that names none.
func LoaderJoined(from control.Session, hello *pb.LoaderHello, buffer int64) control.LoaderJoined {
	return control.LoaderJoined{
		Session: from, Name: hello.Id, Address: hello.Address, Instance: hello.Instance, Workers: int(hello.Workers), Had: int(hello.Place),
		Buffer: cmp.Or(int64(hello.Buffer), buffer),
	}
}

// ConstructorJoined is the constructor that begins a session with a hello.
func ConstructorJoined(from control.Session, hello *pb.ConstructorHello) control.ConstructorJoined {
	return control.ConstructorJoined{
		Session: from, Name: hello.Id, Address: hello.Address, Instance: hello.Instance, Held: held(hello.Held), Node: hello.Node,
	}
}

// LoaderEvent is what a loader reports.
func LoaderEvent(from control.Session, report *pb.LoaderReport) control.Event {
	switch r := report.Report.(type) {
	case *pb.LoaderReport_Indexed:
		x := r.Indexed
		return control.Indexed{
			Session: from, Source: int(x.Source), Blocks: x.Blocks, Manifest: x.Manifest,
			Files: x.Files, Bytes: x.Bytes, Listing: x.Listing,
		}
	case *pb.LoaderReport_Block:
		return BlockEvent(from, r.Block)
	case *pb.LoaderReport_Opened:
		return control.SourceOpened{Session: from, Source: int(r.Opened.Source)}
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
	if err := checkBlock(b); err != nil {
		return control.Failed{Err: err}
	}
	ev := control.BlockRead{Session: from, Records: b.Records, NoLoss: b.NoLoss, Sum: b.Sum}
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

// checkBlock refuses numbers of a block that stand for nothing.
func checkBlock(b *pb.BlockRead) error {
	outside := func(index uint32) bool { return int(index) >= len(b.Lengths) }
	switch {
	case b.Source > math.MaxInt32 || b.Seq > math.MaxInt64:
		return fmt.Errorf("a loader told of block %d of source %d, which cannot be", b.Seq, b.Source)
	case len(b.Bans) != len(b.Banned) || slices.ContainsFunc(b.Banned, outside):
		return fmt.Errorf("source %d, block %d: a loader told of %d banned samples (%d are there), and of %d bans", b.Source, b.Seq, len(b.Banned), len(b.Lengths), len(b.Bans))
	}
	return nil
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
		patches := uint64(h) * uint64(b.ImageWidth[i])
		if patches > math.MaxInt32 {
			return nil, fmt.Errorf("source %d, block %d: a loader told of an image of %d x %d patches", b.Source, b.Seq, h, b.ImageWidth[i])
		}
		images.Patches = append(images.Patches, int32(patches))
	}
	return images, nil
}

// Listing reads what a manifest is made of.
func Listing(data []byte) (l control.Listing, err error) {
	var in pb.Listing
	err = proto.Unmarshal(data, &in)
	l = control.Listing{Folder: in.Folder, Encoding: in.Encoding}
	for _, f := range in.Files {
		l.Files = append(l.Files, control.ListedFile{Name: f.Name, Size: f.Size, Chunks: f.Chunks, Fingerprint: f.Fingerprint})
	}
	return l, err
}

// ConstructorEvent is what a constructor reports.
func ConstructorEvent(from control.Session, report *pb.ConstructorReport) control.Event {
	switch r := report.Report.(type) {
	case *pb.ConstructorReport_Assembled:
		return assembledEvent(r.Assembled)
	case *pb.ConstructorReport_Acked:
		return ackedEvent(r.Acked)
	case *pb.ConstructorReport_Usage:
		u := r.Usage
		lag := control.Lag{Session: from, Generation: u.Generation, Absent: int(u.Absent), Refused: u.Refused,
			Left: int(u.Left), Crowded: int64(u.Crowded), Held: int64(u.HeldBytes), Most: int64(u.BudgetBytes)}
		for _, x := range u.AbsentRanks {
			lag.AbsentRanks = append(lag.AbsentRanks, Rank(x))
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

// held is what a constructor kept; nil if that is nothing.
func held(h *pb.Held) *control.Held {
	if h == nil {
		return nil
	}
	kept := &control.Held{Identity: h.Identity, Generation: h.Generation, Next: int64(h.Next), Entered: h.Entered}
	for _, a := range h.Acked {
		kept.Acked = append(kept.Acked, ackedEvent(a))
	}
	for _, r := range h.Ranks {
		kept.Ranks = append(kept.Ranks, control.HeldRank{Rank: Rank(r.Rank), Join: r.Join, Generation: r.Generation, Step: int64(r.Step), Asked: r.Asked, Entered: entryOf(r.Entered)})
	}
	return kept
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
	return control.Acked{Generation: a.Generation, Bucket: a.Bucket, Step: int64(a.Step), Slowest: a.Slowest, Waits: a.Waits, Left: a.Left}
}

// Rank is the place of a rank that a message names.
func Rank(r *pb.Coordinates) control.Rank {
	return control.Rank{DP: r.GetDp(), CP: r.GetCp(), PP: r.GetPp(), TP: r.GetTp()}
}

func coordinates(r control.Rank) *pb.Coordinates {
	return &pb.Coordinates{Dp: r.DP, Cp: r.CP, Pp: r.PP, Tp: r.TP}
}

func entryOf(e *pb.RankEntry) control.RankEntry {
	return control.RankEntry{Join: e.GetJoin(), Generation: e.GetGeneration(), Step: int64(e.GetStep())}
}
