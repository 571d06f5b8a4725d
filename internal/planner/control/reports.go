package control

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/feedback"
)

// measurements is what trainers reported and nobody acted upon yet.
type measurements struct {
	policy    feedback.Policy // nil: none
	losses    feedback.Mean
	upTo      int64           // the step after the last that was decided at, or is to be
	from      map[uint32]bool // DP ranks that reported it; nil when it is decided
	times     cost.Calibrator
	uncounted *plan.Step       // the last step, until its work is counted
	work      map[int64][]work // by step, of each DP rank or rank of the pool, for the last steps
}

// work is what the time of a step is made of: the sum of the lengths of a rank's
// documents, and that of their squares.
type work struct{ sum, squares int64 }

// workKept is how many steps late a rank may report its time.
const workKept = 64

func newMeasurements(policy feedback.Policy) measurements {
	return measurements{policy: policy, work: map[int64][]work{}}
}

// noteWork remembers how much each rank has to do in a step. It counts when the next
// event comes: the step is to be cut and sent first.
func (c *Core) noteWork(s *plan.Step) {
	c.countWork()
	c.reports.uncounted = s
}

// countWork counts what each rank has to do in the last step, once.
func (c *Core) countWork() {
	s := c.reports.uncounted
	if s == nil {
		return
	}
	c.reports.uncounted = nil
	ranks := make([]work, s.Placed.Ranks())
	for row := range s.Rows {
		var w work
		for _, sample := range s.Placed.Row(row) {
			length := int64(sample.Tokens)
			w.sum += length
			w.squares += length * length
		}
		first, width := s.Placed.Span(row)
		for rank := first; rank < first+width; rank++ {
			ranks[rank].sum += w.sum / int64(width)
			ranks[rank].squares += w.squares / int64(width)
		}
	}
	c.reports.work[s.Step] = ranks
	delete(c.reports.work, s.Step-workKept)
}

// measured takes a report, and lets the policy decide when it is the last one
// that it waited for. When all steps to the end of the data are planned, there is
// nothing left to decide. Errors are of class fault.User, for a source or a number
// that cannot be.
func (c *Core) measured(r Report) error {
	m := &c.reports
	if len(r.Losses) != len(r.Sources) || len(r.Tokens) != len(r.Sources) {
		return fault.Userf("a report has %d sources, %d losses and %d numbers of tokens", len(r.Sources), len(r.Losses), len(r.Tokens))
	}
	if c.plan != nil && (r.Step < 0 || r.Step >= c.furthest()) {
		return fault.Userf("a report is of step %d, and the steps before %d are planned", r.Step, c.furthest())
	}
	if c.plan != nil && (r.Step >= c.plan.Planned() || !c.inMesh(r.Rank)) {
		return nil // of where the job was before it moved, or of a step that this planner is to plan again
	}
	if err := c.stepTime(r); err != nil {
		return err
	}
	for i, name := range r.Sources {
		if _, err := change.Find(c.sourceNames(), name); err != nil {
			return err
		}
		if err := m.losses.Add(name, r.Losses[i], r.Tokens[i]); err != nil {
			return err
		}
	}
	every := int64(max(c.cfg.Job.Mix.Feedback.Every, 1))
	if m.policy == nil || c.plan == nil || c.job.ended >= 0 || (r.Step+1)%every != 0 || len(r.Sources) == 0 || r.Step+1 < m.upTo {
		return nil
	}
	if r.Step+1 > m.upTo {
		m.upTo, m.from = r.Step+1, map[uint32]bool{}
	}
	if m.from == nil {
		return nil // decided, without this rank of a DP rank that others spoke for
	}
	if m.from[r.Rank.DP] = true; len(m.from) < c.job.tree.Sizes().DP {
		return nil
	}
	m.from = nil
	return c.decide(r.Step)
}

// stepTime takes the time that a rank took for a step.
func (c *Core) stepTime(r Report) error {
	at := int(r.Rank.DP)
	if c.cfg.Job.Pool() {
		at = at*c.job.tree.Sizes().CP + int(r.Rank.CP)
	}
	ranks := c.reports.work[r.Step]
	if r.StepSeconds <= 0 || at >= len(ranks) {
		return nil
	}
	return c.reports.times.Add(cost.Observation{Sum: ranks[at].sum, Squares: ranks[at].squares, Seconds: r.StepSeconds})
}

// decide asks the policy for weights and sets them: the change is the input that
// the log keeps, not the losses.
func (c *Core) decide(step int64) error {
	shares, scheduled := c.plan.Weights(), c.plan.Scheduled()
	names := c.sourceNames()[:len(shares)]
	in := feedback.Input{Sources: names, Current: parts(shares), Base: parts(scheduled), Loss: c.reports.losses.Take(names)}
	weights, err := weightsOf(c.reports.policy, in)
	if err != nil || weights == nil {
		return err
	}
	if len(weights) != len(names) {
		return fault.Userf("the feedback policy gave %d weights for %d sources", len(weights), len(names))
	}
	ch := change.Change{Weights: map[string]float64{}, Reason: fmt.Sprintf("feedback of step %d", step)}
	for i, name := range names {
		ch.Weights[name] = weights[i]
	}
	if err := ch.Validate(); err != nil {
		return fault.As(fault.User, fmt.Errorf("the feedback policy gave bad weights: %w", err))
	}
	round(ch.Weights)
	_, err = c.change(ch)
	return err
}

// weightsOf asks a policy, which may be a user's own.
func weightsOf(policy feedback.Policy, in feedback.Input) (weights []float64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fault.Userf("the feedback policy %T panicked: %v", policy, r)
		}
	}()
	return policy.Weights(in), nil
}

// weightPlaces are the decimal places of weights that a policy gave: the log and
// tokens say them in a few bytes, and no trainer can tell 10^-7 of the mix.
const weightPlaces = 1e7

// round makes weights parts of 1 of a few decimal places; none becomes zero that
// was not.
func round(weights map[string]float64) {
	sum := 0.0
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		sum += weights[name]
	}
	for name, w := range weights {
		if w > 0 {
			weights[name] = max(math.Round(w/sum*weightPlaces), 1) / weightPlaces
		}
	}
}

// parts are shares as parts of 1.
func parts(shares []uint64) []float64 {
	out := make([]float64, len(shares))
	for i, s := range shares {
		out[i] = float64(s) / (1 << mix.Bits)
	}
	return out
}

// calibration says what the step times make of the quadratic cost, or why that cannot
// be told; "" if none were reported.
func (m *measurements) calibration() string {
	fit, err := m.times.Fit()
	switch {
	case m.times.Observations() == 0:
		return ""
	case err != nil:
		return "not known yet: " + err.Error()
	}
	return fmt.Sprintf("%s, from %d step times, R2 %.3f", fit, fit.Observations, fit.R2)
}
