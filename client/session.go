package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// session is a rank's place in the service: where it joined last, and the newest
// position whose token it knows. It is safe for concurrent use.
type session struct {
	turn chan struct{} // a semaphore of one: who joins again

	mu    sync.Mutex // guards the fields below, never held during a call
	at    *joined
	began int64 // step of the first join
	step  int64 // of token
	token []byte
	conns map[string]*grpc.ClientConn // to constructors, by address; earlier ones may have calls under way
}

func (s *session) init() {
	s.turn, s.conns = make(chan struct{}, 1), map[string]*grpc.ClientConn{}
	s.turn <- struct{}{}
}

// joined is the answer to a join, and the connection to the constructor that it names.
type joined struct {
	reply *pb.JoinReply
	data  *grpc.ClientConn
}

func (s *session) now() *joined {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// keep remembers the token of a position if it is the newest: a rank joins again where
// it is, never further back, since that would move the whole job.
func (s *session) keep(step int64, token []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.token == nil || step > s.step {
		s.step, s.token = step, token
	}
}

func (s *session) tokenOf(step int64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step != step {
		return nil
	}
	return s.token
}

// enter takes the answer to a join.
func (s *session) enter(reply *pb.JoinReply, sec rpc.Security) error {
	s.keep(int64(reply.NextStep), reply.Token)
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.conns[reply.Constructor]
	if conn == nil {
		var err error
		if conn, err = rpc.Dial(reply.Constructor, sec); err != nil {
			return err
		}
		s.conns[reply.Constructor] = conn
	}
	if s.at == nil {
		s.began = int64(reply.NextStep)
	}
	s.at = &joined{reply, conn}
	return nil
}

func (s *session) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, conn := range s.conns {
		errs = append(errs, conn.Close())
	}
	clear(s.conns)
	return errors.Join(errs...)
}

// join joins for the first time and returns the step that the rank begins with.
func (c *Client) join(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	defer c.logWait(ctx, "to join")()
	reply, err := c.askToJoin(ctx, c.opts.Token, grpc.WaitForReady(true))
	if err == nil {
		err = c.session.enter(reply, c.opts.Security.Of(c.address))
	}
	return int64(reply.GetNextStep()), err
}

func (c *Client) askToJoin(ctx context.Context, token []byte, opts ...grpc.CallOption) (*pb.JoinReply, error) {
	m, identity := c.opts.Mesh, c.opts.Identity
	start, err := c.opts.Start.wire()
	if err != nil {
		return nil, err
	}
	if at := c.session.now(); at != nil {
		identity, start = at.reply.Identity, 0 // another job may be served there by now; the rank goes on where it is
	}
	reply, err := pb.NewPlannerClient(c.planner).Join(ctx, &pb.JoinRequest{
		Job: c.opts.Job, Identity: identity, Rank: c.opts.Rank.wire(), Token: token, Start: start,
		Mesh: &pb.Mesh{Dp: uint32(m.DP), Cp: uint32(m.CP), Pp: uint32(m.PP), Tp: uint32(m.TP)}, Protocol: rpc.Protocol,
	}, opts...)
	if err = rpc.FromStatus(err); err == nil {
		err = rpc.CheckService(reply.Protocol)
	}
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("%s cannot join the job at %s: %w", c.opts.Rank, c.address, err))
	}
	return reply, nil
}

// rejoin joins again at a position of the trainer after its constructor was lost: the planner
// knows the constructor that serves the rank now. old is the join that was lost; another
// goroutine may have replaced it already.
func (c *Client) rejoin(ctx context.Context, old *joined, step int64) error {
	select {
	case <-c.session.turn:
		defer func() { c.session.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.session.now() != old {
		return nil
	}
	token := c.session.tokenOf(step)
	if token == nil {
		reply, err := c.state(ctx, step)
		if err != nil {
			return fault.As(fault.ClassOf(err), fmt.Errorf("%s, which is to join the job at %s again at step %d, asking for its state there: %w", c.opts.Rank, c.address, step, err))
		}
		token = reply.Token
	}
	reply, err := c.askToJoin(ctx, token)
	if err != nil {
		return err
	}
	c.opts.Log.Info("the rank joined again", "rank", c.opts.Rank.String(), "step", step, "service", c.address)
	return c.session.enter(reply, c.opts.Security.Of(c.address))
}

// state asks for the resume token of a position, and remembers it.
func (c *Client) state(ctx context.Context, step int64) (*pb.StateReply, error) {
	reply, err := pb.NewPlannerClient(c.planner).State(ctx, &pb.StateRequest{Identity: c.session.now().reply.Identity, Step: uint64(step)})
	if err != nil {
		return nil, rpc.FromStatus(err)
	}
	c.session.keep(step, reply.Token)
	return reply, nil
}

// rejoinAfter is the number of requests lost in a row before a rank joins again: one may be a
// connection that broke while its constructor is still there.
const rejoinAfter = 2

// fetch asks for a step until it comes or the deadline passes: asking twice gives the
// same bytes.
func (c *Client) fetch(ctx context.Context, step int64) (*Batch, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Deadline)
	defer cancel()
	begin, pauses := time.Now(), rpc.Backoff{Name: c.opts.Rank.String()}
	var lost error // of the attempt before, which names the cause where an expired deadline does not
	for losses := 0; ; {
		at := c.session.now()
		b, err := c.fetchOnce(ctx, at, step)
		if err == nil || errors.Is(err, io.EOF) {
			return b, err
		}
		if losses++; losses >= rejoinAfter && again(ctx, err) {
			if err = c.rejoin(ctx, at, c.position.Load()); err == nil {
				losses = 0
				continue
			}
		}
		if !again(ctx, err) {
			return nil, c.gaveUp(ctx, step, at, begin, lost, err)
		}
		if lost = err; losses == 1 {
			c.opts.Log.Warn("a request was lost, trying again", "rank", c.opts.Rank.String(), "step", step, "err", err)
		}
		_ = pauses.Wait(ctx) // if ctx ends, so does the next attempt
	}
}

// again says whether a request that failed may be made again.
func again(ctx context.Context, err error) bool {
	return ctx.Err() == nil && fault.ClassOf(err) == fault.Lost
}

// gaveUp is the error of a step that did not come; lost is that of the attempt before.
func (c *Client) gaveUp(ctx context.Context, step int64, at *joined, begin time.Time, lost, err error) error {
	class := fault.ClassOf(err)
	if ctx.Err() != nil {
		err = cmp.Or(lost, err)
	}
	return fault.As(class, fmt.Errorf("step %d of %s from %s, after %.0f s: %w", step, c.opts.Rank, at.reply.Constructor, time.Since(begin).Seconds(), err))
}
