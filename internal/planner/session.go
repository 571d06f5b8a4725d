package planner

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/wire"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Load implements the Planner service: the session of one loader.
func (p *Planner) Load(stream grpc.BidiStreamingServer[pb.LoaderReport, pb.LoaderOrder]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return rpc.ToStatus(fault.Userf("a loader's session begins with a hello"))
	}
	version, err := rpc.AgreeRole(hello.Protocol, hello.Newest, "loader "+hello.Id)
	if err = cmp.Or(err, p.checkEpoch(stream.Context(), hello.Epoch, "loader "+hello.Id)); err != nil {
		return rpc.ToStatus(err)
	}
	l := &loaderSession{out: rpc.NewOutbox[*pb.LoaderOrder]()}
	l.session = control.Session(p.lastID.Add(1))
	l.beats = version >= rpc.Sessions
	l.hear()()
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	joined := control.LoaderJoined{
		Session: l.session, Name: hello.Id, Address: hello.Address, Workers: int(hello.Workers), Had: int(hello.Place),
		Buffer: cmp.Or(int64(hello.Buffer), p.opts.Job.Resources.LoaderBuffer),
	}
	if err := p.put(ctx, loaderHello{l, joined}); err != nil {
		return rpc.ToStatus(err)
	}
	var blocks blockParts
	sender := rpc.NewSender(toLoader(version, stream.Send))
	err = rpc.Answer(ctx, cancel, p.done, l.out, sender.Send, func() error { return sender.Beat(ctx, rpc.BeatEvery, wire.LoaderBeat) }, func() error {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		defer l.hear()()
		if report, err = blocks.add(report); report == nil || err != nil {
			return rpc.ToStatus(err)
		}
		if u := report.GetUsage(); u != nil {
			l.usage.Store(u)
		}
		if ev := wire.LoaderEvent(l.session, report); ev != nil {
			return p.put(ctx, occurred{ev})
		}
		return nil
	})
	_ = p.put(context.WithoutCancel(ctx), occurred{control.LoaderLeft{Session: l.session, Err: whyLeft(err)}}) // it fails when there is no planner any more
	return rpc.ToStatus(err)
}

// Construct implements the Planner service: the session of one constructor.
func (p *Planner) Construct(stream grpc.BidiStreamingServer[pb.ConstructorReport, pb.ConstructorOrder]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return rpc.ToStatus(fault.Userf("a constructor's session begins with a hello"))
	}
	version, err := rpc.AgreeRole(hello.Protocol, hello.Newest, "constructor "+hello.Id)
	if err = cmp.Or(err, p.checkEpoch(stream.Context(), hello.Epoch, "constructor "+hello.Id)); err != nil {
		return rpc.ToStatus(err)
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	c := &constructorSession{out: rpc.NewOutbox[*pb.ConstructorOrder](), refuse: cancel}
	c.session = control.Session(p.lastID.Add(1))
	c.beats = version >= rpc.Sessions
	c.hear()()
	if err := p.put(ctx, constructorHello{c, control.ConstructorJoined{Session: c.session, Name: hello.Id, Address: hello.Address, Held: wire.Held(hello.Held)}}); err != nil {
		return rpc.ToStatus(err)
	}
	sender := rpc.NewSender(toConstructor(version, stream.Send))
	send := func(o *pb.ConstructorOrder) error {
		if err := sender.Send(o); err != nil || o.GetPlan() == nil {
			return err
		}
		return p.put(ctx, partSent{c})
	}
	err = rpc.Answer(ctx, func() { cancel(nil) }, p.done, c.out, send, func() error { return sender.Beat(ctx, rpc.BeatEvery, wire.ConstructorBeat) }, func() error {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		defer c.hear()()
		if u := report.GetUsage(); u != nil {
			c.usage.Store(u)
		}
		if ev := wire.ConstructorEvent(c.session, report); ev != nil {
			return p.put(ctx, occurred{ev})
		}
		return nil
	})
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, context.Canceled) {
		err = cause // it was refused
	}
	_ = p.put(context.WithoutCancel(ctx), occurred{control.ConstructorLeft{Session: c.session, Err: whyLeft(err)}}) // it fails when there is no planner any more
	return rpc.ToStatus(err)
}

// whyLeft says in words why a session ended; nil if it ended in order.
func whyLeft(err error) error {
	if errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		return errors.New("its connection ended without a word: the process was killed, or the network broke")
	}
	return err
}

// maxReport bounds what a loader has said of blocks that are not whole, in bytes: the lengths
// of 64 million samples, which no loader has memory for.
const maxReport = 256 << 20

// blockKey names a block of a source.
type blockKey struct {
	source uint32
	seq    uint64
}

// blockParts puts together what a loader says of a block in several messages; those of several
// blocks may come at a time. It belongs to one session.
type blockParts struct {
	blocks map[blockKey]*pb.BlockRead // so far
	bytes  int
}

// add takes a report and returns it, whole; nil if more of it is to come.
func (b *blockParts) add(report *pb.LoaderReport) (*pb.LoaderReport, error) {
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
