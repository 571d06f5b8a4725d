package planner

import (
	"bytes"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// identity is what tokens and logs must agree on with the job: the part of the
// spec that decides the bytes, and the data.
type identity struct {
	name     string
	spec     [32]byte
	manifest [32]byte
	sources  []string // the names of the spec's
}

// job is the identity as the codec of positions has it. limited says which sources
// have a limit.
func (id identity) job(limited []bool) token.Job {
	job := token.Job{Name: id.name, Identity: id.spec, Manifest: id.manifest}
	for i, name := range id.sources {
		job.Sources = append(job.Sources, token.Source{Name: name, Limited: limited[i]})
	}
	return job
}

func head(b []byte) []byte { return b[:min(len(b), 6)] }

// savedToken is a resume token that some ranks were given, and others will be.
type savedToken struct {
	token []byte
	left  int // ranks that did not ask yet
}

// token is the resume token of a position. Ranks that save one after the other are
// given the same, even if a change for a step to come is made between them; who
// saves again is given another one, with the change.
func (p *Planner) token(state plan.State, digest [32]byte) []byte {
	s := p.saved[state.Step]
	if s == nil {
		m := p.tree.Sizes()
		s = &savedToken{token.Encode(p.id.job(p.limited), p.core.MeshAt(state), state, digest), m.DP * m.CP * m.PP * m.TP}
		if p.opts.Job.Output.BroadcastAt == "tp" {
			s.left /= m.TP
		}
		p.saved[state.Step] = s
	}
	if s.left--; s.left == 0 {
		delete(p.saved, state.Step)
	}
	return s.token
}

// resolved is the state of a token, whose sources that joined are indexed. Its bans
// are the loaders' from now on, and its sources have joined.
func (p *Planner) resolved(t *token.Position) (plan.State, error) {
	ban := func(b plan.Ban) plan.Ban {
		b = p.banOf(b.Source, b.File, b.Row)
		p.ban(b)
		return b
	}
	state, err := t.Resolve(ban, func(n int, a plan.Added) (plan.Source, error) {
		i := p.base() + n
		if !bytes.Equal(p.indexed[i].Manifest, a.Manifest[:]) {
			return plan.Source{}, fault.Userf("the data of source %q changed since it joined the job: put its files back as they were", p.sources[i].Name)
		}
		return p.coreSource(i), nil
	})
	if err == nil && len(state.Settings.Added) > 0 {
		p.joinedUpTo(len(state.Settings.Added))
	}
	return state, err
}
