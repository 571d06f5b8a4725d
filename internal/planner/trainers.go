package planner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/wire"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// ask has the core answer a question, however long it has to wait.
func (p *Planner) ask(ctx context.Context, q control.Question) (control.Reply, error) {
	ctx, cancel := rpc.Early(ctx)
	defer cancel()
	answered := make(chan control.Answer, 1)
	id := p.lastID.Add(1)
	if err := p.put(ctx, asking{control.Ask{ID: id, Question: q}, answered}); err != nil {
		return nil, rpc.ToStatus(p.waitedFor(ctx, err))
	}
	select {
	case a := <-answered:
		if a.Final {
			a.Err = rpc.Final(a.Err)
		}
		return a.Reply, refusalOf(a.Err)
	case <-p.done:
		return nil, rpc.ToStatus(errClosing)
	case <-ctx.Done():
		err := p.waitedFor(ctx, ctx.Err())
		_ = p.put(context.WithoutCancel(ctx), occurred{control.Withdraw{ID: id}}) // it fails when there is no planner any more
		return nil, rpc.ToStatus(err)
	}
}

// refusalOf is the status of a question that is refused: with a code of its own for a rank that the
// job does not take along, as constructors have.
func refusalOf(err error) error {
	if errors.Is(err, control.ErrMoved) {
		return status.Error(codes.OutOfRange, err.Error())
	}
	return rpc.ToStatus(err)
}

// Join implements the Planner service.
func (p *Planner) Join(ctx context.Context, req *pb.JoinRequest) (*pb.JoinReply, error) {
	version, err := rpc.AgreeClient(req.Protocol, req.Newest)
	join, invalid := wire.JoinQuestion(req)
	err = cmp.Or(err, p.checkJoin(req), invalid)
	if err = p.checkAsked(ctx, req, req.Rank.Name(), err); err != nil {
		return nil, rpc.ToStatus(err)
	}
	failpoint.Hit(failpoint.Join)
	answer, err := p.ask(ctx, join)
	if err == nil {
		p.counted.joins.Add(1)
		p.counted.again.Joined(req.Rank.Name(), time.Since(clock))
	}
	return wire.JoinReply(answer, p.opts.Job, p.spec[:], version, p.epoch), err
}

// Locate implements the Planner service.
func (p *Planner) Locate(ctx context.Context, req *pb.LocateRequest) (*pb.JoinReply, error) {
	if err := p.checkJoin(req); err != nil {
		return nil, rpc.ToStatus(err)
	}
	answer, err := p.ask(ctx, control.Locate{Rank: wire.Rank(req.Rank)})
	return wire.JoinReply(answer, p.opts.Job, p.spec[:], rpc.Protocol, p.epoch), err
}

// checkJoin refuses a rank that does not fit the job, without looking at state.
func (p *Planner) checkJoin(req interface {
	GetJob() string
	GetIdentity() []byte
}) error {
	if name := p.opts.Job.Name; req.GetJob() != "" && req.GetJob() != name {
		return fault.Userf("the trainer asks for job %q, this service runs %q; connect it to the right address", req.GetJob(), name)
	}
	return p.checkSpec(req, "the trainer was made for spec %x, this service runs job %q with spec %x; "+
		"start the service with the trainer's spec, or drop the identity from connect()", p.opts.Job.Name)
}

// checkSpec refuses a request of another spec.
func (p *Planner) checkSpec(req interface{ GetIdentity() []byte }, format string, names ...any) error {
	id := req.GetIdentity()
	if len(id) == 0 || bytes.Equal(id, p.spec[:]) {
		return nil
	}
	return fault.Userf(format, append(append([]any{id[:min(len(id), 6)]}, names...), p.spec[:6])...)
}

// State implements the Planner service.
func (p *Planner) State(ctx context.Context, req *pb.StateRequest) (*pb.StateReply, error) {
	err := p.checkSpec(req, "the state of spec %x was asked for, this service runs %x")
	if err = p.checkAsked(ctx, req, "a rank", err); err != nil {
		return nil, rpc.ToStatus(err)
	}
	answer, err := p.ask(ctx, wire.StateQuestion(req))
	if err != nil {
		return nil, err
	}
	saved := answer.(control.SaveReply)
	return &pb.StateReply{Token: saved.Token, Digest: saved.Digest[:], Epoch: p.epoch}, nil
}

// Change implements the Planner service.
func (p *Planner) Change(ctx context.Context, req *pb.ChangeRequest) (*pb.ChangeReply, error) {
	err := p.checkSpec(req, "a change to spec %x was asked for, this service runs %x")
	if err = p.checkAsked(ctx, req, "a trainer", err); err != nil {
		return nil, rpc.ToStatus(err)
	}
	ch, err := change.Parse(req.Change)
	if err = cmp.Or(err, ch.CheckToken(req.Token)); err != nil {
		return nil, rpc.ToStatus(err)
	}
	answer, err := p.ask(ctx, control.MakeChange{Change: ch, Token: req.Token})
	if err != nil {
		return nil, err
	}
	made := answer.(control.ChangeReply)
	return &pb.ChangeReply{Step: uint64(made.Step), Epoch: p.epoch, VoidTo: uint64(made.VoidTo)}, nil
}

// Report implements the Planner service.
func (p *Planner) Report(ctx context.Context, req *pb.ReportRequest) (*pb.ReportReply, error) {
	err := p.checkSpec(req, "a report for spec %x came, this service runs %x")
	if err = p.checkAsked(ctx, req, req.Rank.Name(), err); err != nil {
		return nil, rpc.ToStatus(err)
	}
	_, err = p.ask(ctx, wire.ReportQuestion(req))
	return &pb.ReportReply{Epoch: p.epoch}, err
}

// Status implements the Planner service.
func (p *Planner) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusReply, error) {
	s, err := p.currentStatus(ctx)
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		return nil, rpc.ToStatus(err)
	}
	return &pb.StatusReply{Text: s.String(), Json: data}, nil
}

// waitedFor adds to a deadline what the planner was waiting for.
func (p *Planner) waitedFor(ctx context.Context, err error) error {
	s, lookErr := p.look(context.WithoutCancel(ctx))
	if lookErr != nil {
		return err
	}
	return fault.As(fault.Lost, fmt.Errorf("the planner was waiting for %s: %w", s.WaitingFor, err))
}
