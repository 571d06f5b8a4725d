package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// WaitError says that a call has waited for as long as it may, and who waits for whom: its text
// names each of them, from the rank to the file. It is found in a *LostError, with errors.As or
// errors.AsType; what is said of that holds for it.
type WaitError struct {
	Rank   Rank
	For    string        // what the call wants, such as "step 12"
	Waited time.Duration // since it was made
	Idle   time.Duration // for which nothing has moved, anywhere in the service
	Ranks  bool          // other ranks were waited for, not the service: Options.Deadline ended it, not Options.Stall
	Chain  []string      // who waits for whom, as the service said last; of each of its parts one line
}

// Error names who waits for whom.
func (e *WaitError) Error() string {
	what := fmt.Sprintf("nothing has moved for %.0f s", e.Idle.Seconds())
	if e.Ranks {
		what = "other ranks are waited for"
	}
	text := fmt.Sprintf("%s has waited %.0f s for %s, and %s", e.Rank, e.Waited.Seconds(), e.For, what)
	return text + ": " + strings.Join(e.Chain, "; ")
}

// lookEvery is the time between two looks at how long a call has waited. A look that is later than
// lookLate is of a process that was stopped itself, and has not heard what was said.
const (
	lookEvery = 250 * time.Millisecond
	lookLate  = 2 * time.Second
)

// word is what a part of the service said last.
type word struct{ who, text string }

// progress is what a rank knows of whom it waits for. It is safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	moved time.Time // something did last
	again time.Time // a part of a step came last by the attempt under way, though one before may have brought it
	ranks bool      // that are waited for
	have  int       // bytes of a step, of which more never came so far
	words []word    // in the order in which their speakers were met
}

// hear takes what a server says that it waits for.
func (p *progress) hear(who string, w *pb.Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(who, "waits: "+cmp.Or(w.GetReason(), "it does not say for what"))
	p.ranks = w.GetRanks()
	if moved := time.Now().Add(-time.Duration(w.GetIdleMs()) * time.Millisecond); moved.After(p.moved) {
		p.moved = moved
	}
}

// lost takes why a server was not there, or did not answer.
func (p *progress) lost(who string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.say(who, "is lost: "+err.Error())
	p.ranks = false
}

// broke takes why an attempt to get a step ended before all of it had come.
func (p *progress) broke(who string, err error) {
	p.lost(who, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = time.Time{}
}

// say keeps what is known of one. The lock is held.
func (p *progress) say(who, text string) {
	for i := range p.words {
		if p.words[i].who == who {
			p.words[i].text = text
			return
		}
	}
	p.words = append(p.words, word{who, text})
}

// answered forgets what was said of one that has answered.
func (p *progress) answered(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.words = slices.DeleteFunc(p.words, func(w word) bool { return w.who == who })
}

// move notes that a step came: nobody is waited for.
func (p *progress) move() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved, p.again, p.ranks, p.words, p.have = time.Now(), time.Time{}, false, nil, 0
}

// came takes that a server has sent a part of a step: a link may be too slow for a whole one in the time for which
// nothing may move. What an attempt before got as well counts for as long as this one goes on: afterwards a link that
// breaks again and again would count as one that brings steps.
func (p *progress) came(who string, have int, of uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ranks, p.again = false, time.Now()
	if have > p.have {
		p.moved, p.have = p.again, have
	}
	if uint64(have) < of {
		p.say(who, fmt.Sprintf("sends the step, and %d of %d bytes have come", have, of))
	}
}

// wait is a call of the trainer, that waits.
type wait struct {
	c     *Client
	rank  Rank   // when it began: Remesh, which waits as well, changes it
	what  string // it waits for
	begin time.Time
	from  time.Time // since when it counts that nothing moves
}

// late is the error of a call that has waited for too long; nil if it has not.
func (w *wait) late(now time.Time, over bool) error {
	p := &w.c.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	e := &WaitError{Rank: w.rank, For: w.what, Waited: now.Sub(w.begin), Ranks: p.ranks, Idle: now.Sub(w.from)}
	for _, at := range []time.Time{p.moved, p.again} {
		if at.After(w.from) {
			e.Idle = min(e.Idle, now.Sub(at))
		}
	}
	if !over && (p.ranks || e.Idle < w.c.opts.Stall) {
		return nil
	}
	for _, of := range p.words {
		e.Chain = append(e.Chain, of.who+" "+of.text)
	}
	if len(e.Chain) == 0 {
		e.Chain = []string{"nothing has come from " + w.c.source()}
	}
	return fault.As(fault.Lost, e)
}

// source names who serves batches.
func (c *Client) source() string {
	if at := c.session.now(); at != nil {
		return "the constructor at " + at.reply.Constructor
	}
	return "the service at " + c.address
}

// within calls do, which waits for what, with a context that ends when nothing has moved for
// Options.Stall, or Options.Deadline is over; then its error is a *WaitError. It also ends when the
// service says that the rank cannot go on, and when the client is closed. What is lost because ctx
// ended is found by errors.Is as that, too, however the connection says it.
func (c *Client) within(ctx context.Context, what string, do func(context.Context) error) error {
	if err := c.refusal(); err != nil {
		return err
	}
	w := &wait{c: c, rank: c.opts.Rank, what: what, begin: time.Now()}
	w.from = w.begin
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	var looks sync.WaitGroup
	var ended error
	looks.Go(func() { ended = w.look(done, cancel) })
	err := do(within)
	close(done)
	looks.Wait()
	switch over := ctx.Err(); {
	case err != nil && ended != nil:
		return ended
	case over != nil && fault.ClassOf(err) == fault.Lost && !errors.Is(err, over):
		return fault.As(fault.Lost, &overError{err, over})
	}
	return err
}

// overError is what a connection said when the caller's context ended.
type overError struct{ said, over error }

func (e *overError) Unwrap() []error { return []error{e.said, e.over} }

func (e *overError) Error() string {
	if text := e.said.Error(); strings.Contains(text, e.over.Error()) {
		return text
	}
	return fmt.Sprintf("%v (%v)", e.said, e.over)
}

// look ends a call that is late, of a rank that cannot go on, or of a client that is closed, and says why, until done is
// closed.
func (w *wait) look(done <-chan struct{}, end context.CancelFunc) error {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for last := w.begin; ; {
		select {
		case <-done:
			return nil
		case <-w.c.closing.begun:
			end()
			return ErrClosed
		case <-ticks.C:
		}
		now := time.Now()
		if now.Sub(last) > lookLate {
			w.from = now
		}
		last = now
		err := w.c.refusal()
		if err == nil {
			err = w.late(now, now.Sub(w.begin) >= w.c.opts.Deadline)
		}
		if err != nil {
			end()
			return err
		}
	}
}

// whyAfter is how long a planner may take to answer before it is asked what it waits for, and
// whyEvery the time between two such questions. The answer, which waits for nothing, may take whyTime.
const (
	whyAfter = 2 * time.Second
	whyEvery = 5 * time.Second
	whyTime  = 3 * time.Second
)

// ask asks the planner that answered last and, as long as that is lost, the others in turn. One that
// does not answer for long is asked what it waits for; if what is there is no planner, the call ends.
func (c *Client) ask(ctx context.Context, call func(context.Context, pb.PlannerClient) error) error {
	return c.planners.ask(ctx, func(x planner) error {
		asking, stop := context.WithCancel(ctx)
		calling, end := context.WithCancelCause(ctx)
		defer end(nil)
		var whys sync.WaitGroup
		whys.Go(func() { c.askWhy(asking, x, end) })
		err := x.reach(calling)
		if err == nil {
			err = rpc.FromStatus(call(calling, pb.NewPlannerClient(x.conn)))
		}
		if err != nil && ctx.Err() == nil && calling.Err() != nil {
			err = context.Cause(calling)
		}
		if c.session.now() != nil {
			err = taken(err)
		}
		stop()
		whys.Wait()
		switch {
		case err == nil:
			c.progress.answered(x.String())
		case again(ctx, err):
			c.progress.lost(x.String(), err)
		}
		return err
	})
}

// String names a planner in messages.
func (x planner) String() string { return "the planner at " + x.address }

// askWhy asks a planner what it waits for, again and again until ctx ends. It calls end if what answers a client that has
// not joined is no service of ours: the call would wait for a connection.
func (c *Client) askWhy(ctx context.Context, x planner, end context.CancelCauseFunc) {
	for pause := whyAfter; ; pause = whyEvery {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		asking, cancel := rpc.Prompt(ctx, whyTime)
		w, err := pb.NewPlannerClient(x.conn).Why(asking, &pb.WhyRequest{})
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil || status.Code(err) == codes.Unimplemented: // it is there, and does not know the question
			c.progress.hear(x.String(), w)
		default:
			err = rpc.FromStatus(err)
			c.progress.lost(x.String(), err)
			if c.session.now() == nil && rpc.OtherService(err) && fault.ClassOf(err) == fault.User {
				end(err)
			}
		}
	}
}
