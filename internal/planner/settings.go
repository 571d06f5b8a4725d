package planner

import (
	"cmp"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// whole is the position of a token with the changes up to it and after it, those
// that the journal knows among them. The sources that joined are indexed.
func (p *Planner) whole(t *token.Position) (plan.State, error) {
	state, err := p.resolved(t)
	if err != nil {
		return state, err
	}
	for _, ch := range p.journal {
		if ch.Step >= state.Step {
			state.Await(ch)
		}
	}
	var unknown []change.Change
	for _, c := range t.Pending {
		if text := c.String(); !p.cancelled[text] && !slices.ContainsFunc(p.journal, func(ch plan.Change) bool { return string(ch.Text) == text }) {
			unknown = append(unknown, c)
		}
	}
	if err := p.resume(&state, unknown, byToken); err != nil {
		return state, err
	}
	return state, p.agree(state)
}

// agree refuses a position if changes of a file, for steps before it, are no part
// of it: they would be passed over without a word.
func (p *Planner) agree(state plan.State) error {
	past := slices.DeleteFunc(slices.Clone(p.journal), func(ch plan.Change) bool { return ch.Step >= state.Step })
	slices.SortStableFunc(past, func(a, b plan.Change) int { return cmp.Compare(a.Step, b.Step) })
	var filed []plan.Change // those of the past that stand in a file, from ch on
	for i, ch := range slices.Backward(past) {
		origin := p.origins[string(ch.Text)]
		if origin == "" && !ch.From {
			continue
		}
		filed = slices.Insert(filed, 0, ch)
		if have := state.Settings.Have(past[i:]) || state.Settings.Have(filed); !have && ch.From {
			return fault.Userf("%sthe job went on from step %d with other ranks (%s), and the resume token of step %d was saved by those before: "+
				"what they were given from step %d on is void; resume from the token of that step, or from one that was saved since", origin, ch.Step, ch.Text, state.Step, ch.Step)
		}
		if !state.Settings.Have(past[i:]) && !state.Settings.Have(filed) { // what was made live may be of another branch
			return fault.Userf("%sthe change %s is for step %d, and the job of the resume token of step %d did not have it there, or has another one since: "+
				"leave it out, give it step %d or a later one, or resume from a token of step %d or before", origin, ch.Text, ch.Step, state.Step, state.Step, ch.Step)
		}
	}
	return nil
}
