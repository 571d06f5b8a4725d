package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// session is a rank's place in the service: where it joined last, and the newest
// position whose token it knows. It is safe for concurrent use.
type session struct {
	turn   chan struct{} // a semaphore of one: who joins again
	epochs rpc.Epochs    // of planners

	mu    sync.Mutex // guards the fields below, never held during a call
	at    *joined
	began int64     // step of the first join
	doubt time.Time // when a join was asked for without an answer so far, which may have made this one void; zero: there is none
	step  int64     // of token
	token []byte
	conns map[string]rpc.Conn // to constructors, by address; earlier ones may have calls under way
}

func (s *session) init() {
	s.turn, s.conns = make(chan struct{}, 1), map[string]rpc.Conn{}
	s.turn <- struct{}{}
}

// joined is the answer to a join, and the connection to the constructor that it names.
type joined struct {
	reply *pb.JoinReply
	data  rpc.Conn

	generation uint64 // that the rank was taken along into since, if not 0; the session's lock guards it
	from       int64  // the first step that came of it

	unshared atomic.Pointer[string] // why no memory of the constructor's is mapped; nil: it may be
	calls    atomic.Bool            // the constructor knows no streams
}

// wentAlong notes the generation of a step that came. The job may have been moved since the rank
// joined, and have taken it along.
func (s *session) wentAlong(at *joined, generation uint64, step int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case generation > max(at.generation, at.reply.Generation):
		at.generation, at.from = generation, step
	case generation == at.generation:
		at.from = min(at.from, step)
	}
}

// generationOf is the generation that a rank that stands at a step is of.
func (s *session) generationOf(at *joined, step int64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.generation > 0 && step >= at.from {
		return at.generation
	}
	return at.reply.Generation
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

// start takes the answer to a join that has nothing to do with those before.
func (s *session) start(reply *pb.JoinReply, sec rpc.Security) error {
	s.mu.Lock()
	s.token, s.began = nil, int64(reply.NextStep)
	s.mu.Unlock()
	return s.enter(reply, sec)
}

// joining notes that a rank asks to join again.
func (s *session) joining() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doubt = time.Now()
}

// doubtful says whether a join may have been granted whose answer was lost.
func (s *session) doubtful() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.doubt.IsZero()
}

// doubtTime is how long a join may be under way that its rank has given up, and steps that were sent to the rank before lie
// where it reads them: far more than either takes.
const doubtTime = 10 * time.Minute

// came notes that a step came by the join there is. A join asked for long before, which would have made that one void, was
// never granted: whoever joins from here on is another client.
func (s *session) came() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.doubt.IsZero() && time.Since(s.doubt) > doubtTime {
		s.doubt = time.Time{}
	}
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
	s.at, s.doubt = &joined{reply: reply, data: conn}, time.Time{}
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
	defer c.logWait(ctx, "to join")()
	start, err := c.opts.Start.wire()
	if err != nil {
		return 0, err
	}
	req := &pb.JoinRequest{Identity: c.opts.Identity, Token: c.opts.Token, Start: start, Protocol: rpc.Oldest, Newest: rpc.Protocol}
	var reply *pb.JoinReply
	err = c.within(ctx, "its place in the job", func(ctx context.Context) (err error) {
		reply, err = c.joinAny(ctx, req)
		return err
	})
	if err != nil {
		return 0, err
	}
	return int64(reply.NextStep), c.session.enter(reply, c.security())
}

// joinAny asks all planners in turn until one answers. A join that is lost is made again.
func (c *Client) joinAny(ctx context.Context, req *pb.JoinRequest) (*pb.JoinReply, error) {
	opts := []grpc.CallOption{grpc.WaitForReady(len(c.planners.list) == 1)}
	var lost error // of the attempt before, which names the cause where an expired deadline does not
	for pauses := (rpc.Backoff{Name: c.opts.Rank.String()}); ; {
		reply, err := c.askToJoin(ctx, req, opts...)
		if err == nil {
			return reply, nil
		}
		if !again(ctx, err) {
			if ctx.Err() != nil {
				err = cmp.Or(lost, err)
			}
			return nil, err
		}
		lost = err
		_ = pauses.Wait(ctx) // if ctx ends, so does the next attempt
	}
}

// security is that of connections to constructors: the access key of the planner that
// answered last counts.
func (c *Client) security() rpc.Security { return c.opts.Security.Of(c.planners.now().address) }

func (c *Client) askToJoin(ctx context.Context, req *pb.JoinRequest, opts ...grpc.CallOption) (*pb.JoinReply, error) {
	m := c.opts.Mesh
	req.Job, req.Rank = c.opts.Job, c.opts.Rank.wire()
	req.Mesh = &pb.Mesh{Dp: uint32(m.DP), Cp: uint32(m.CP), Pp: uint32(m.PP), Tp: uint32(m.TP)}
	var reply *pb.JoinReply
	err := c.askPlanner(ctx, func(ctx context.Context, planner pb.PlannerClient, epoch uint64, refused uint32) (uint64, error) {
		req.Epoch, req.StaleRefused = epoch, refused
		var err error
		reply, err = planner.Join(ctx, req, opts...)
		return reply.GetEpoch(), err
	})
	if err == nil {
		err = rpc.AgreeService(reply.Protocol)
	}
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("%s cannot join the job at %s: %w", c.opts.Rank, c.address, err))
	}
	return reply, nil
}

// askPlanner asks the planners in turn. call says what is known of their epochs, and returns that
// of the planner that answered: an answer of one whose epoch is over is refused, as if it was lost.
func (c *Client) askPlanner(ctx context.Context, call func(ctx context.Context, planner pb.PlannerClient, epoch uint64, refused uint32) (uint64, error)) error {
	return c.ask(ctx, func(ctx context.Context, planner pb.PlannerClient) error {
		epoch, refused, told := c.session.epochs.Tell()
		epoch, err := call(ctx, planner, epoch, refused)
		if err == nil {
			err = c.session.epochs.Check(epoch)
		}
		if err == nil {
			told()
		}
		return err
	})
}

// joinTime is how long the first attempt to join again may take; each further one may take that
// much more, up to mostJoinTimes of it. A planner that is there answers in less, unless it waits
// for others.
const (
	joinTime      = 10 * time.Second
	mostJoinTimes = 6
)

// rejoin joins again at the position of the trainer after its constructor was lost: the planner
// knows the constructor that serves the rank now. old is the join that was lost; another
// goroutine may have replaced it already. attempt counts from 1; silent is the address of the
// constructor that said nothing to it, if one did.
func (c *Client) rejoin(ctx context.Context, old *joined, attempt int, silent string) error {
	select {
	case <-c.session.turn:
		defer func() { c.session.turn <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if c.session.now() != old {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(min(attempt, mostJoinTimes))*joinTime)
	defer cancel()
	c.session.joining()
	step, reply, err := c.joinHere(ctx, old, silent)
	if err != nil {
		return err
	}
	c.opts.Log.Info("the rank joined again", "rank", c.opts.Rank.String(), "step", step, "service", c.planners.now().address,
		"from", old.reply.Constructor, "to", reply.Constructor)
	return c.session.enter(reply, c.security())
}

// joinHere joins again at the position of the trainer, which goes on while it is asked: what it has
// read ahead it takes and acknowledges. A planner that hears the request after that refuses it, as no
// rank stands there any more; then it is asked again from where the trainer is by now.
func (c *Client) joinHere(ctx context.Context, old *joined, silent string) (int64, *pb.JoinReply, error) {
	for {
		step := c.position.Load()
		reply, err := c.joinAt(ctx, old, step, silent)
		if fault.ClassOf(err) != fault.User || c.position.Load() == step {
			return step, reply, err
		}
	}
}

// byPosition is the first version of the protocol in which a rank joins again by its position.
const byPosition = 3

// joinAt joins again at a step: the rank says which generation it is of and, if it knows it, the
// token of the step. A service that does not take positions is asked for the token; so is one
// without a log that does not know this one, as ranks that come with tokens may teach it.
func (c *Client) joinAt(ctx context.Context, old *joined, step int64, silent string) (*pb.JoinReply, error) {
	req := &pb.JoinRequest{Identity: old.reply.Identity, Token: c.session.tokenOf(step), Protocol: rpc.Oldest, Newest: rpc.Protocol, Silent: silent}
	if old.reply.Protocol >= byPosition {
		req.At = &pb.Position{Generation: c.session.generationOf(old, step), Step: uint64(step)}
	}
	if req.At != nil && req.Token == nil {
		req.Protocol = byPosition // one before it would take the request for that of a rank that begins
		reply, err := c.askToJoin(ctx, req)
		if fault.ClassOf(err) != fault.User || rpc.Moved(err) || c.session.epochs.Highest() > 0 {
			return reply, err
		}
	}
	if req.Token == nil {
		reply, err := c.state(ctx, step)
		if err != nil {
			return nil, fault.As(fault.ClassOf(err), fmt.Errorf("%s, which is to join the job at %s again at step %d, asking for its state there: %w", c.opts.Rank, c.address, step, err))
		}
		req.Token, req.Protocol = reply.Token, rpc.Oldest
	}
	return c.askToJoin(ctx, req)
}

// state asks for the resume token of a position, and remembers it.
func (c *Client) state(ctx context.Context, step int64) (*pb.StateReply, error) {
	var reply *pb.StateReply
	err := c.askPlanner(ctx, func(ctx context.Context, planner pb.PlannerClient, epoch uint64, refused uint32) (uint64, error) {
		var err error
		reply, err = planner.State(ctx, &pb.StateRequest{Identity: c.session.now().reply.Identity, Step: uint64(step), Epoch: epoch, StaleRefused: refused})
		return reply.GetEpoch(), err
	})
	if err != nil {
		return nil, err
	}
	c.session.keep(step, reply.Token)
	return reply, nil
}

// rejoinAfter is the number of requests lost in a row before a rank joins again: one may be a
// connection that broke while its constructor is still there.
const rejoinAfter = 2

// fetch asks for a step, once and again until it comes or ctx ends: asking twice gives the same
// bytes.
func (c *Client) fetch(ctx context.Context, step int64, once func(context.Context, *joined, int64) (*Batch, error)) (*Batch, error) {
	begin, pauses := time.Now(), rpc.Backoff{Name: c.opts.Rank.String()}
	var lost error    // of the attempt before, which names the cause where an expired deadline does not
	var silent string // address of the constructor that said nothing
	sent := 0         // times that joining again led to the constructor that could not be reached
	for losses := 0; ; {
		at := c.session.now()
		b, err := once(ctx, at, step)
		if err == nil || errors.Is(err, io.EOF) {
			c.progress.move()
			c.session.came()
			return b, err
		}
		if rpc.JoinedSince(err) && c.session.doubtful() {
			err = fault.As(fault.Lost, err) // the other client may be this one
		}
		err = taken(moved(err))
		if losses++; again(ctx, err) {
			c.progress.broke("the constructor at "+at.reply.Constructor, err)
		}
		address, _ := rpc.Silent(err)
		silent = cmp.Or(address, silent) // the connection to it is closed then: the next attempt may find none
		if stale := silent == at.reply.Constructor || rpc.JoinAgain(err) || rpc.JoinedSince(err); (stale || losses >= rejoinAfter) && again(ctx, err) {
			report := silent
			if sent > 0 { // the planner may hear it, but this rank does not reach it
				report = at.reply.Constructor
			}
			if err = taken(moved(c.rejoin(ctx, at, losses, report))); err == nil {
				if losses = 0; c.session.now().reply.Constructor == at.reply.Constructor {
					sent++
				} else {
					sent = 0
				}
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

// taken is the error of a rank that has joined, of an answer for those with another access key, or of a server that
// knows no such call: the service is gone from that address, which another one has now, and may be back.
func taken(err error) error {
	if !rpc.OtherService(err) {
		return err
	}
	return fault.As(fault.Lost, fmt.Errorf("another service listens there by now: %w", err))
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
