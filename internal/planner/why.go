package planner

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Whoever waits for the planner learns what it waits for itself, and for how long nothing of
// that has moved: constructors about once a second while nothing is planned, for their ranks, and
// everybody else who asks. What moves is what can be seen: steps, members, sources, and what
// loaders say that they read.

// wordEvery is the time between two looks at what the planner waits for.
const wordEvery = time.Second

// word is what the planner waits for, as of the last look.
type word struct {
	text  string
	ranks bool          // ranks are waited for
	since time.Duration // on clock, when something moved last
}

// mark is what moves.
type mark struct {
	text            string
	ranks           bool
	planned, acked  int64
	loaders, others int
	read            uint64 // by all loaders
}

// words is what the planner says of its waits.
type words struct {
	now  atomic.Pointer[word] // read from anywhere
	last mark                 // the loop's, as are those below
	due  time.Duration
}

// lookAround brings the word up to date, and tells constructors if no step was planned since the last
// look. now is on clock.
func (p *Planner) lookAround(now time.Duration) {
	if now < p.words.due {
		return
	}
	p.words.due = now + wordEvery
	m, silent := p.mark(), status.SilentConstructors(p.core.Silent(), p.quiet(now))
	m.ranks = m.ranks && silent == ""
	w := &word{text: m.text, ranks: m.ranks, since: now}
	before, planned := p.words.now.Load(), p.words.last.planned != m.planned
	if before != nil && m == p.words.last {
		w.since = before.since
	}
	p.words.last = m
	if !m.ranks {
		w.text += p.culprit(now) + silent
	}
	p.words.now.Store(w)
	if planned {
		return
	}
	order := &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Waiting{Waiting: w.wire(now)}}
	for _, c := range p.constructors {
		c.out.Put(order)
	}
}

func (p *Planner) mark() mark {
	m := mark{planned: p.core.Planned(), acked: p.core.Acked(), loaders: len(p.loaders), others: len(p.constructors)}
	h := p.core.Holdup()
	m.text, m.ranks = h.Text, h.Ranks
	for _, l := range p.loaders {
		u := l.usage.Load()
		m.read += u.GetProgress() + u.GetBlocksRead()
	}
	return m
}

// culprit says of the loader that the core waits for that it says nothing, or what it reads, and of the log for how long
// it has been written to.
func (p *Planner) culprit(now time.Duration) string {
	if h := p.core.Holdup(); h.Cause == control.CauseLog {
		return status.Writing(time.Duration(h.Log)*time.Millisecond, p.log.Trouble())
	}
	l := p.loaders[p.core.Reads()]
	if l == nil {
		return ""
	}
	return status.Reading(l.quiet(now), p.opts.Suspect, l.usage.Load().GetReading())
}

func (w *word) wire(now time.Duration) *pb.Waiting {
	return &pb.Waiting{Reason: w.text, Ranks: w.ranks, IdleMs: uint64(max(now-w.since, 0).Milliseconds())}
}

// Why implements the Planner service. It does not ask the loop, which may be what is waited for.
func (p *Planner) Why(context.Context, *pb.WhyRequest) (*pb.Waiting, error) {
	if busy := p.busyFor(); busy > wordEvery {
		return &pb.Waiting{Reason: p.stuck(), IdleMs: uint64(busy.Milliseconds())}, nil
	}
	if w := p.words.now.Load(); w != nil {
		return w.wire(time.Since(clock)), nil
	}
	return &pb.Waiting{}, nil
}

// lookAtHoldup notes what holds steps up, when it is time. now is on clock.
func (p *Planner) lookAtHoldup(now time.Duration) {
	if !p.holdups.Due(now) {
		return
	}
	h := p.core.Holdup()
	if h.Cause == control.CauseSource || h.Cause == control.CauseLog {
		h.Text += p.culprit(now)
	}
	p.holdups.Look(h, p.core.Acked(), now, p.busy.spent, p.pulse.Lost(now))
}
