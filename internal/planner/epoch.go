package planner

import (
	"context"

	"github.com/millrace-data/millrace/internal/fault"
)

// Epochs number the planners of a job. A planner raises the epoch in the job's log before it
// answers anyone, and says it first in every session and in every answer: members refuse what a
// planner of a lower epoch says, and tell whoever they talk to of the highest that they heard of.
// A planner that hears of a higher one than its own refuses whoever says so, and ends.

// checkEpoch ends this planner if somebody heard of a higher epoch than its own.
func (p *Planner) checkEpoch(ctx context.Context, epoch uint64, who string) error {
	if p.epoch == 0 || epoch <= p.epoch {
		return nil
	}
	p.stale.Add(1)
	err := fault.Lostf("%s has heard of the planner of epoch %d, and this one has epoch %d: another planner took its place, or this one was started with another log (%s) than the one before; "+
		"only one may go on: stop this one, or start all roles again", who, epoch, p.epoch, p.opts.LogDir)
	_ = p.put(ctx, deposed{err}) // it fails when there is no planner any more
	return err
}

// checkAsked is checkEpoch for a request of a trainer, unless that is refused for its spec. It may
// have refused planners of lower epochs itself.
func (p *Planner) checkAsked(ctx context.Context, req interface {
	GetEpoch() uint64
	GetStaleRefused() uint32
}, who string, spec error) error {
	if spec != nil {
		return spec
	}
	err := p.checkEpoch(ctx, req.GetEpoch(), who)
	if err == nil {
		p.stale.Add(uint64(req.GetStaleRefused()))
	}
	return err
}

// staleRefused is how often, as far as is known here, something was refused for its epoch: by
// members what a planner said whose place another one took, by such a planner what others said.
func (p *Planner) staleRefused() uint64 {
	n := p.stale.Load()
	for _, l := range p.loaders {
		n += l.usage.Load().GetStaleRefused()
	}
	for _, c := range p.constructors {
		n += c.usage.Load().GetStaleRefused()
	}
	return n
}
