package planner

import (
	"cmp"
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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
	if err = cmp.Or(err, p.checkMember(stream.Context(), hello, "loader "+hello.Id)); err != nil {
		return rpc.ToStatus(err)
	}
	l := &loaderSession{out: rpc.NewOutbox[*pb.LoaderOrder]()}
	l.session = control.Session(p.lastID.Add(1))
	l.beats = version >= rpc.Sessions
	l.hear()()
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	l.refuse = cancel
	if err := p.put(ctx, loaderHello{l, wire.LoaderJoined(l.session, hello, p.opts.Job.Resources.LoaderBuffer)}); err != nil {
		return rpc.ToStatus(err)
	}
	var blocks wire.BlockParts
	sender := rpc.NewSender(wire.ToLoader(version, stream.Send))
	err = rpc.Answer(ctx, func() { cancel(nil) }, p.done, l.out, sender.Send, func() error { return sender.Beat(ctx, rpc.BeatEvery, wire.LoaderBeat) }, func() error {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		defer l.hear()()
		if report, err = blocks.Add(report); report == nil || err != nil {
			return rpc.ToStatus(err)
		}
		if u := report.GetUsage(); u != nil {
			l.usage.Store(u)
			p.costs.Add(u.Costs)
		}
		if ev := wire.LoaderEvent(l.session, report); ev != nil {
			return p.put(ctx, occurred{ev})
		}
		return nil
	})
	err = refusal(ctx, err)
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
	if err = cmp.Or(err, p.checkMember(stream.Context(), hello, "constructor "+hello.Id)); err != nil {
		return rpc.ToStatus(err)
	}
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	c := &constructorSession{out: rpc.NewOutbox[*pb.ConstructorOrder](), refuse: cancel}
	c.session = control.Session(p.lastID.Add(1))
	c.beats = version >= rpc.Sessions
	c.hear()()
	if err := p.put(ctx, constructorHello{c, wire.ConstructorJoined(c.session, hello)}); err != nil {
		return rpc.ToStatus(err)
	}
	sender := rpc.NewSender(wire.ToConstructor(version, stream.Send))
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
	err = refusal(ctx, err)
	_ = p.put(context.WithoutCancel(ctx), occurred{control.ConstructorLeft{Session: c.session, Err: whyLeft(err)}}) // it fails when there is no planner any more
	return rpc.ToStatus(err)
}

// checkMember refuses a member that heard of another planner, and one that others could not connect to. One that was here before
// stays: what others are connected with goes on, and its certificate may be renewed once more.
func (p *Planner) checkMember(ctx context.Context, hello interface {
	GetEpoch() uint64
	GetAddress() string
}, who string) error {
	err := p.checkEpoch(ctx, hello.GetEpoch(), who)
	if beside := p.opts.Beside; err != nil || beside != nil && beside(hello.GetAddress()) {
		return err
	}
	err = rpc.CheckReached(ctx, hello.GetAddress(), who)
	if err != nil && hello.GetEpoch() > 0 {
		p.opts.Log.Warn("no new connection to a member is possible", "err", err)
		return nil
	}
	return err
}

// refusal is why a session ended that was refused; err of any other.
func refusal(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// whyLeft says in words why a session ended; nil if it ended in order.
func whyLeft(err error) error {
	if errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled {
		return errors.New("its connection ended without a word: the process was killed, or the network broke")
	}
	return err
}
