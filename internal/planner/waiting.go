package planner

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// waitedFor adds to a deadline what the planner was waiting for.
func (p *Planner) waitedFor(ctx context.Context, err error) error {
	var what string
	if p.do(context.WithoutCancel(ctx), func() { what = p.blockedOn() }) != nil {
		return err
	}
	return fault.As(fault.Lost, fmt.Errorf("the planner was waiting for %s: %w", what, err))
}

// blockedOn says in words what holds the job up right now, and which roles may be why.
func (p *Planner) blockedOn() string {
	if p.failed != nil { // there may be no core to ask
		return "nothing: the job has failed"
	}
	return p.holdup() + p.silent(time.Now())
}

func (p *Planner) holdup() string {
	for i, x := range p.indexed {
		switch {
		case len(p.loaders) < p.opts.Loaders && p.core == nil:
			return fmt.Sprintf("loaders: %d of %d are connected", len(p.loaders), p.opts.Loaders)
		case x == nil:
			return fmt.Sprintf("source %q to be indexed", p.sources[i].Name)
		}
	}
	for i, c := range p.constructors {
		if c == nil {
			return fmt.Sprintf("constructor %d of %d to connect", i, len(p.constructors))
		}
	}
	if p.core == nil {
		return "the log to be opened"
	}
	for key, l := range p.wanted {
		if p.core.Planned()-p.core.Acked() < int64(p.opts.Prefetch) {
			by := "a loader; none is connected"
			if l != nil {
				by = l.id
			}
			return fmt.Sprintf("block %d of source %q to be read by %s", key.seq, p.sources[key.source].Name, by)
		}
	}
	if step, rows := p.core.Missing(); step < p.core.Planned() {
		return fmt.Sprintf("%d rows of step %d to be assembled", rows, step)
	}
	if !p.positioned {
		return "the first trainer to join, which says at which step the job goes on"
	}
	if who := p.awaited(time.Now()); who != "" {
		return who
	}
	if who := p.absent(); len(who.ranks) > 0 {
		return "trainers: " + who.String()
	}
	return fmt.Sprintf("trainers: %s", p.slowest())
}

// slowest names the rank that holds the job back. Of those that are equally far it is one
// that does not wait itself.
func (p *Planner) slowest() string {
	var slow *pb.Acked
	for d := range uint32(p.tree.Sizes().DP) {
		a := p.ackOf(d)
		if a == nil {
			return fmt.Sprintf("no rank of dp=%d has finished a step after %d", d, p.core.Acked())
		}
		if slow == nil || a.Step < slow.Step || a.Step == slow.Step && slow.Waits && !a.Waits {
			slow = a
		}
	}
	return fmt.Sprintf("%s is at step %d", slow.Slowest, slow.Step)
}

// ackOf is how far a DP rank is, nil if that is not known: its constructor tells the step
// at once, and every second which of its ranks that is due to by now.
func (p *Planner) ackOf(dp uint32) *pb.Acked {
	a := p.acks[dp]
	c := p.constructors[p.constructorOf(dp)]
	if c == nil {
		return a
	}
	for _, b := range c.usage.GetSlowest() {
		if b.Bucket == dp && b.Generation == p.generation && (a == nil || b.Step >= a.Step) {
			a = b
		}
	}
	return a
}
