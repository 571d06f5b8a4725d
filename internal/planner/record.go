package planner

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
)

// record appends a step to the log: the difference to the step before, and now
// and then the whole position as a key frame.
func (p *Planner) record(s *plan.Step) error {
	if p.log == nil {
		return nil
	}
	before, ok := p.core.State(s.Step)
	if !ok {
		return fmt.Errorf("step %d: the position before it is gone", s.Step)
	}
	var frame []byte
	if p.log.FrameDue(s.Step) {
		frame = token.EncodeFrame(p.id.job(p.limited), before)
	}
	return p.log.Append(s.Step, token.NewRecord(s, before).Encode(), frame)
}
