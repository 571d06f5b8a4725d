package main

import (
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// planned is a core of steps whose blocks are made up: all samples of a source are equal.
type planned struct {
	core    *plan.Core
	effects []plan.Effect
	lengths []int32 // of each block
}

func planOf(cfg plan.Config, lengths []int32) *planned {
	p := &planned{core: plan.New(cfg), lengths: lengths}
	p.effects = p.core.Start()
	return p
}

// next is the next step, and the position before it. All steps before it count as done.
func (p *planned) next() (*plan.Step, plan.State) {
	for {
		if len(p.effects) == 0 {
			p.effects = p.core.Apply(plan.Acked{Step: p.core.Planned()})
		}
		e := p.effects[0]
		p.effects = p.effects[1:]
		switch e := e.(type) {
		case plan.Want:
			p.effects = append(p.effects, p.core.Apply(plan.BlockRead{Source: e.Source, Seq: e.Seq, Lengths: p.lengths})...)
		case plan.Publish:
			before, _ := p.core.State(e.Step.Step)
			return e.Step, before
		}
	}
}

// record is the record of a step as a planner writes it.
func record(s *plan.Step, before plan.State) []byte { return token.NewRecord(s, before).Encode() }
