package client

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// answerTime is how long one of several addresses may take to answer before the next one is
// tried: a machine that is gone does not refuse.
const answerTime = 3 * time.Second

// planners are the addresses at which the planner may be: where it began, and where others wait
// to take its place. It is safe for concurrent use.
type planners struct {
	list []planner
	at   atomic.Int64 // of list, modulo its length: which one answered last
}

type planner struct {
	address string
	conn    rpc.Conn
	only    bool // there is no other
}

func dialPlanners(list string, sec rpc.Security) (*planners, error) {
	addresses, err := rpc.Addresses(list)
	if err != nil {
		return nil, err
	}
	p := &planners{}
	for _, a := range addresses {
		conn, err := rpc.Dial(a, sec, rpc.Occasional(sec))
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.list = append(p.list, planner{a, conn, len(addresses) == 1})
	}
	return p, nil
}

func (p *planners) close() error {
	var errs []error
	for _, x := range p.list {
		errs = append(errs, x.conn.Close())
	}
	return errors.Join(errs...)
}

// serving connects to the one planner of a list of addresses that serves; a single one is not asked. The others wait
// to take its place without a word. What asking again does not mend is said before that nobody answers.
func serving(ctx context.Context, list string, sec rpc.Security) (*planners, error) {
	p, err := dialPlanners(list, sec)
	if err != nil || len(p.list) == 1 {
		return p, err
	}
	for at, x := range p.list {
		failed := x.status(ctx)
		if failed == nil {
			p.at.Store(int64(at))
			return p, nil
		}
		if err == nil || fault.ClassOf(err) != fault.User {
			err = fault.As(fault.ClassOf(failed), fmt.Errorf("asking the planner at %s for its status: %w", x.address, failed))
		}
	}
	return nil, errors.Join(err, p.close())
}

// status asks whether a planner serves.
func (x planner) status(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	_, err := pb.NewPlannerClient(x.conn).Status(ctx, &pb.StatusRequest{})
	return rpc.FromStatus(err)
}

// ask calls the planner that answered last and, as long as what it is asked is lost, the others
// in turn, each once.
func (p *planners) ask(ctx context.Context, call func(planner) error) (err error) {
	for range p.list {
		at := p.at.Load()
		x := p.list[int(at)%len(p.list)]
		if err = call(x); err == nil || fault.ClassOf(err) != fault.Lost || ctx.Err() != nil {
			return err
		}
		p.at.CompareAndSwap(at, at+1)
	}
	return err
}

// now is the planner that answered last.
func (p *planners) now() planner { return p.list[int(p.at.Load())%len(p.list)] }

// reach waits until there is a connection, if another planner could be asked in place of this one.
func (x planner) reach(ctx context.Context) error {
	if x.only {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	x.conn.Connect()
	for {
		switch state := x.conn.GetState(); {
		case state == connectivity.Ready:
			return nil
		case state == connectivity.TransientFailure:
			return fault.Lostf("there is no connection with the planner at %s", x.address)
		case !x.conn.WaitForStateChange(ctx, state):
			return fault.Lostf("the planner at %s did not answer within %v", x.address, answerTime)
		}
	}
}
