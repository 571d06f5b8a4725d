package planner

import (
	"time"

	"github.com/millrace-data/millrace/internal/telemetry"
)

// traced are the steps under way that are traced. It is the loop's.
type traced struct {
	every uint64              // steps to one that is traced; 0: none
	begun map[int64]time.Time // their planning, of as many at most as are planned ahead
}

// trace records the steps that are planned, and those that all ranks are done with, from now until the function
// that it returns is called. Without a board it does nothing.
func (p *Planner) trace() (done func()) {
	if p.traced.every == 0 {
		return func() {}
	}
	begun, planned := time.Now(), p.core.Planned()
	return func() {
		now := time.Now()
		for step := planned; step < p.core.Planned(); step++ {
			if p.opts.Telemetry.Traces(uint64(step), p.traced.every) {
				p.traced.begun[step] = begun
				p.opts.Telemetry.Record(telemetry.Span{Of: p.stepID(step), Name: telemetry.SpanPlan, Begin: begun, End: now})
			}
		}
		for step, since := range p.traced.begun {
			if step < p.core.Acked() {
				p.opts.Telemetry.Record(telemetry.Span{Of: p.stepID(step), Name: telemetry.SpanStep, Begin: since, End: now})
			}
			if step < p.core.Acked() || step >= p.core.Planned() { // done, or the job was moved back
				delete(p.traced.begun, step)
			}
		}
	}
}

func (p *Planner) stepID(step int64) telemetry.StepID {
	return telemetry.StepID{Identity: p.spec, Generation: p.core.Generation(), Step: uint64(step)}
}
