package deliver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Caller is who asks, and how far it is.
type Caller struct {
	Rank       Rank
	Generation uint64 // that it joined
	Join       uint64 // number of the join; 0 is not checked
	Acked      uint64 // it is done with all steps before this one
	Identity   []byte // of the spec that the rank was made for; empty is not checked
	// Now is Acked of a rank that goes on while its request waits; nil: Acked stands.
	Now    *atomic.Uint64
	Waited uint64 // microseconds that its trainer has stood still for data since the client was made, plus 1; 0: it does not say
	Leaves bool   // its client closes
}

// Get waits for a step, or for the end of the data if it comes before the step. The request
// gives the rank's position, too. Errors name who is waited for; those of class fault.User
// are of requests that can never be answered.
func (s *Steps) Get(ctx context.Context, c Caller, step uint64) (st *Step, end *pb.EndOfData, err error) {
	var refused error
	begin := time.Now()
	ctx, leave, err := s.requests.enter(ctx, c.Rank)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	w := s.arrive(c.Rank, step, begin)
	err = s.until(ctx, &s.steps, step, func() bool {
		st, end, refused = nil, nil, s.failed
		if c.Now != nil {
			c.Acked = c.Now.Load()
		}
		if refused == nil && (s.job == nil || s.between) {
			refused = cmp.Or(s.leaving, s.forsaken(step))
		}
		if refused != nil || s.job == nil || s.between {
			return refused != nil
		}
		if refused = s.known(c); refused != nil || s.generation < c.Generation {
			return refused != nil
		}
		if refused = s.check(c, step); refused != nil {
			return true
		}
		s.hear(c)
		s.hearWait(c)
		if c.Acked <= step {
			s.ack(c)
		}
		if s.ended != nil && step >= s.ended.Step {
			end = s.ended
			return true
		}
		if st = s.ready[step]; st != nil && !st.covers([]uint32{c.Rank.DP}) {
			st = nil // it is built again, with the rows of this bucket
		}
		if st == nil {
			refused = cmp.Or(s.leaving, s.forsaken(step))
		}
		return st != nil || refused != nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.WaitSeconds += time.Since(begin).Seconds()
	s.leave(c.Rank, w, err == nil)
	if errors.Is(context.Cause(ctx), errReplaced) {
		return nil, nil, fault.As(fault.User, fmt.Errorf("%s, step %d: %w", c.Rank, step, errReplaced))
	}
	if err != nil {
		return nil, nil, fault.As(fault.ClassOf(err), fmt.Errorf("%s waited %.0f s for step %d: %s: %w",
			c.Rank, time.Since(w.since).Seconds(), step, s.blockedOn(c.Rank, step, time.Now()).Reason, err))
	}
	return st, end, refused
}

// Attend notes a rank's stream, or line, until leave is called. A rank that has too many loses its oldest.
func (s *Steps) Attend(ctx context.Context, r Rank, way Way) (_ context.Context, leave func(), err error) {
	ctx, leave, err = s.streams.enter(ctx, r)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.came(r, way)
	}
	return ctx, leave, err
}

// known refuses a rank whose join this constructor did not see: it, or the whole service,
// was started again since. The rank has to join again, or its acknowledgements would be
// taken for steps of another life. The lock is held.
func (s *Steps) known(c Caller) error {
	if c.Join > s.joins[c.Rank] {
		return fault.As(fault.Lost, fmt.Errorf("%s joined a service that was there before this one: %w", c.Rank, ErrJoinAgain))
	}
	return nil
}

// ErrJoinAgain is part of the errors that say that a rank has to ask the planner where its
// batches are: asking here again is of no use.
var ErrJoinAgain = errors.New("it has to join again")

// ErrJoinedSince is part of the error of a client that another one replaced. That may be its
// own, with a join whose answer was lost.
var ErrJoinedSince = errors.New("another client joined")

// ErrMoved is part of the error of a rank that the job does not take along to where it was moved.
var ErrMoved = errors.New("the job was moved")

// check refuses what can never be answered. The lock is held.
func (s *Steps) check(c Caller, step uint64) error {
	_, ok := s.acked[c.Rank]
	if s.buckets[c.Rank.DP] == nil && c.Rank.DP < s.job.Mesh.GetDp() {
		return fault.As(fault.Lost, fmt.Errorf("another constructor serves %s, this one serves dp ranks %v: %w", c.Rank, s.job.Buckets, ErrJoinAgain))
	}
	if !ok {
		return fault.Userf("%s does not fetch from this constructor, which serves dp ranks %v; ask the planner where it does (connect does)", c.Rank, s.job.Buckets)
	}
	switch id := s.job.Identity; {
	case len(c.Identity) > 0 && !bytes.Equal(c.Identity, id):
		return fault.Userf("%s asks for spec %x, this service runs %x", c.Rank, c.Identity[:min(6, len(c.Identity))], id[:min(6, len(id))])
	case c.Join != 0 && c.Join < s.joins[c.Rank]:
		return fault.As(fault.User, fmt.Errorf("%w as %s after this one: a rank has one client at a time", ErrJoinedSince, c.Rank))
	case c.Generation < s.generation && !s.adopt(c):
		return s.refuse(c)
	case step < s.base:
		return fault.Userf("%s asks for step %d, but all ranks said they were done with the steps before %d; resume from a token to go back",
			c.Rank, step, s.base)
	case step > s.furthest(c.Rank):
		return fault.Userf("%s asks for step %d, and the furthest that it may ask for is %d (limit furthest_step): the slowest rank here is at step %d, "+
			"%d steps are planned ahead (resources.prefetch), and it is at step %d itself; ask for the next one", c.Rank, step, s.furthest(c.Rank), s.base, s.job.Ahead, s.stood[c.Rank])
	}
	return nil
}
