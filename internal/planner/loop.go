package planner

import (
	"cmp"
	"context"
	"log/slog"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/cut"
	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/planner/wire"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// tickEvery is how often the core learns what time it is: its shortest deadline is a
// second.
const tickEvery = 50 * time.Millisecond

var errClosing = fault.Lostf("the planner is shutting down")

// input is what the loop takes: one of occurred, loaderHello, constructorHello, asking,
// partSent, looking, deposed.
type input interface{ input() }

type (
	// occurred is an event of the core.
	occurred struct{ control.Event }
	// loaderHello begins a session.
	loaderHello struct {
		*loaderSession
		control.LoaderJoined
	}
	// constructorHello begins a session.
	constructorHello struct {
		*constructorSession
		control.ConstructorJoined
	}
	// asking is a question of somebody who waits for the answer.
	asking struct {
		control.Ask
		answered chan<- control.Answer
	}
	// partSent says that a part of a plan is gone.
	partSent struct{ *constructorSession }
	// deposed says that another planner took this one's place.
	deposed struct{ error }
	// viewing asks for the facts of a status.
	viewing struct{ seen chan<- control.Snapshot }
	// looking asks where the job is.
	looking struct{ seen chan<- status.Service }
)

func (occurred) input()         {}
func (loaderHello) input()      {}
func (constructorHello) input() {}
func (asking) input()           {}
func (partSent) input()         {}
func (looking) input()          {}
func (viewing) input()          {}
func (deposed) input()          {}

// put gives the loop something to do and waits until it takes it.
func (p *Planner) put(ctx context.Context, in input) error {
	select {
	case p.inbox <- in:
		return nil
	case <-p.over:
		return errClosing
	case <-p.done:
		return errClosing
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loop owns the core.
func (p *Planner) loop(ctx context.Context) error {
	ticks := time.NewTicker(tickEvery)
	defer ticks.Stop()
	p.listening.last = time.Since(clock)
	p.listening.since = p.listening.last // in a simulation it is before clock
	for p.stopped == nil && p.step(ctx, ticks.C) {
	}
	close(p.over)
	return cmp.Or(p.stopped, p.log.Close())
}

// step takes what comes next; it returns false at the end. While nothing does, the
// next step is drawn.
func (p *Planner) step(ctx context.Context, ticks <-chan time.Time) bool {
	var in input
	select {
	case in = <-p.inbox:
	case <-ticks:
		in = p.tick()
	default:
		if !p.sending() {
			p.take(occurred{control.Idle{}})
		}
		select {
		case in = <-p.inbox:
		case <-ticks:
			in = p.tick()
		case <-ctx.Done():
			return false
		}
	}
	p.take(in)
	return true
}

func (p *Planner) tick() input {
	return occurred{control.Tick{Now: control.Millis(time.Since(p.started).Milliseconds())}}
}

// take does what an input says.
func (p *Planner) take(in input) {
	defer p.busy.begin()()
	defer p.trace()()
	switch in := in.(type) {
	case occurred:
		if _, ticks := in.Event.(control.Tick); ticks {
			p.listen(time.Since(clock))
			p.lookAround(time.Since(clock))
			if d, failed := p.core.Unwritten(); !failed {
				p.log.Slow(time.Duration(d) * time.Millisecond)
			}
			p.lookAtHoldup(time.Since(clock))
		}
		p.left(in.Event)
		p.apply(in.Event)
	case loaderHello:
		p.counted.loaders.Add(1)
		p.loaders[in.Session] = in.loaderSession
		if p.epoch > 0 {
			in.out.Put(wire.LoaderEpoch(p.epoch))
		}
		in.out.Put(p.orders.LoaderJob())
		p.apply(in.LoaderJoined)
	case constructorHello:
		p.counted.constructors.Add(1)
		p.constructors[in.Session] = in.constructorSession
		if p.epoch > 0 {
			in.out.Put(wire.ConstructorEpoch(p.epoch))
		}
		p.apply(in.ConstructorJoined)
	case asking:
		p.asks[in.ID] = in.answered
		p.apply(in.Ask)
	case partSent:
		in.unsent--
		p.orderLater()
	case deposed:
		p.end(in.error)
	case looking:
		in.seen <- p.status()
	case viewing:
		in.seen <- p.core.Snapshot()
	}
	p.busy.step.Store(p.core.Planned())
}

// left forgets who is not there any more.
func (p *Planner) left(ev control.Event) {
	switch ev := ev.(type) {
	case control.LoaderLeft:
		delete(p.loaders, ev.Session)
	case control.ConstructorLeft:
		delete(p.constructors, ev.Session)
		p.orderLater() // it may be the one that was waited for
	case control.Withdraw:
		delete(p.asks, ev.ID)
	}
}

// apply gives the core an event and carries out what follows.
func (p *Planner) apply(ev control.Event) {
	for _, e := range p.core.Apply(ev) {
		p.act(e)
	}
}

func (p *Planner) act(e control.Effect) {
	switch e := e.(type) {
	case control.Persist, control.OpenLog, control.ReadDigest, control.ReadLog:
		p.log.Put(e)
	case control.Cut:
		if err := p.cutParts(e); err != nil {
			p.apply(control.Failed{Err: err})
		}
	case control.Deliver:
		if c := p.constructors[e.To]; c != nil && len(c.parts) > 0 {
			part := c.parts[0]
			c.parts = c.parts[1:]
			c.unsent++
			failpoint.Hit(failpoint.DeliverBefore)
			c.out.Put(part)
			failpoint.Hit(failpoint.DeliverMiddle)
		}
	case control.Recall:
		p.later = nil
	case control.Refuse:
		if c := p.constructors[e.To]; c != nil {
			c.refuse(e.Err)
		} else if l := p.loaders[e.To]; l != nil {
			l.refuse(e.Err)
		}
	case control.Answer:
		if answered := p.asks[e.ID]; answered != nil {
			delete(p.asks, e.ID)
			answered <- e
		}
	case control.Stop:
		p.end(e.Err)
	case control.Note:
		p.opts.Log.Log(context.Background(), levels[e.Level], e.Text, e.Attrs...)
	default:
		p.order(e)
	}
}

var levels = [...]slog.Level{control.Info: slog.LevelInfo, control.Warn: slog.LevelWarn, control.Error: slog.LevelError}

// end has the loop end.
func (p *Planner) end(why error) {
	p.opts.Log.Error("this planner ends", "err", why, "stale_refused", p.staleRefused(), "appends_refused", p.log.Refused())
	p.stopped = why
}

// cutParts cuts the part of each constructor of a step, while the log writes its record.
// Nothing that runs here changes the core.
func (p *Planner) cutParts(e control.Cut) error {
	if len(e.For) == 0 {
		return nil
	}
	if !p.cut.Is(e.Step) {
		var err error
		if p.cut, err = cut.New(e.Step); err != nil {
			return err
		}
	}
	parts := make([]*pb.ConstructorOrder, len(e.For))
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i, of := range e.For {
		work.Go(func() error {
			parts[i] = wire.Plan(p.cut.Part(e.Generation, of.Buckets, p.planBlock))
			return nil
		})
	}
	_ = work.Wait() // none fails
	for i, of := range e.For {
		if c := p.constructors[of.To]; c != nil {
			c.parts = append(c.parts, parts[i])
		}
	}
	return nil
}

func (p *Planner) planBlock(source int32, seq int64) *pb.PlanBlock {
	loader, sum := p.core.Block(source, seq)
	return &pb.PlanBlock{Source: uint32(source), Seq: uint64(seq), Loader: uint32(loader), Sum: sum}
}

// What is sent comes first. While parts of a plan wait for the log to have their step, or are
// on their way to constructors, orders to loaders to read and to let go of blocks wait: what
// they read is for later steps. And when all parts are gone, the core draws the next step
// ahead of its time: trainers that wait for a part would wait for the draw as well.

// loaderOrder is an order to a loader that waits.
type loaderOrder struct {
	to    control.Session
	order *pb.LoaderOrder
}

// sending says whether parts that were cut are still to be sent.
func (p *Planner) sending() bool {
	for _, c := range p.constructors {
		if len(c.parts) > 0 || c.unsent > 0 {
			return true
		}
	}
	return false
}

// order sends a member an order, now or when all parts are sent.
func (p *Planner) order(e control.Effect) {
	if to, order := p.orders.Constructor(e); order != nil {
		if c := p.constructors[to]; c != nil {
			c.out.Put(order)
		}
		return
	}
	to, order, mayWait := p.orders.Loader(e)
	if order == nil {
		return
	}
	if mayWait && p.sending() {
		p.later = append(p.later, loaderOrder{to, order})
	} else if l := p.loaders[to]; l != nil {
		l.out.Put(order)
	}
}

// orderLater sends loaders what waits, if no part is being sent.
func (p *Planner) orderLater() {
	if len(p.later) == 0 || p.sending() {
		return
	}
	for _, o := range p.later {
		if l := p.loaders[o.to]; l != nil {
			l.out.Put(o.order)
		}
	}
	clear(p.later)
	p.later = p.later[:0]
}

// loaderSession is a loader's stream.
type loaderSession struct {
	member[pb.LoaderUsage]
	out    *rpc.Outbox[*pb.LoaderOrder]
	refuse context.CancelCauseFunc
}

// constructorSession is a constructor's stream. What waits in out is bounded by the steps
// planned ahead, the joins under way and the times the job was moved.
type constructorSession struct {
	member[pb.ConstructorUsage]
	out    *rpc.Outbox[*pb.ConstructorOrder]
	refuse context.CancelCauseFunc
	parts  []*pb.ConstructorOrder // that were cut and may not be sent yet; the loop's
	unsent int                    // parts of plans in out; the loop's
}
