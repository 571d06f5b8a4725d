package preview

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/planner/dgraph"
)

// Basis says where a number of a report comes from.
type Basis string

// The kinds of numbers.
const (
	Planned  Basis = "planned"  // exact: the steps will be so
	Measured Basis = "measured" // by this run, on this machine
	Derived  Basis = "derived"  // computed from planned and measured numbers
)

// Report is what a job would do in some of its steps.
type Report struct {
	Job       string         `json:"job"`
	Identity  string         `json:"identity"`
	Mesh      string         `json:"mesh"` // of the last step
	First     int64          `json:"first_step"`
	Steps     int64          `json:"steps"`
	End       int64          `json:"end"` // steps that the data gives; -1 if it goes on
	Documents int64          `json:"documents"`
	Tokens    int64          `json:"tokens"`
	Padding   int64          `json:"padding"`
	Fill      float64        `json:"fill"` // tokens over room
	Worst     StepFill       `json:"worst_fill"`
	Plan      string         `json:"plan"` // digest of the last step's plan
	Sources   []SourceReport `json:"sources"`
	Modules   []ModuleReport `json:"modules"`
	Fills     []FillReport   `json:"fills,omitempty"`     // of the first steps; empty if rows are not made to cost alike
	BestFill  int            `json:"best_fill,omitempty"` // of them; 0: none
	Lengths   []Bin          `json:"lengths"`
	Outliers  *OutlierReport `json:"outliers,omitempty"` // nil: none wait
	Hops      []Hop          `json:"hops"`
	Memory    []Memory       `json:"memory"`
	Speed     Speed          `json:"speed"`
	Warnings  []string       `json:"warnings"`
	Timeline  Timeline       `json:"timeline"`

	ender string // source whose end is that of the data; "": none
}

// StepFill is how full the rows of a step are.
type StepFill struct {
	Step int64   `json:"step"`
	Fill float64 `json:"fill"`
}

// SourceReport is what became of a source. All is planned but the losses, which
// count what was read ahead too, and the speed, which is measured.
type SourceReport struct {
	Name        string  `json:"name"`
	Files       int     `json:"files"`
	Bytes       int64   `json:"bytes"`
	Drawn       int64   `json:"drawn"`     // tokens, also those that are carried into later steps or skipped
	Tokens      int64   `json:"tokens"`    // in rows, which ranks get
	Documents   int64   `json:"documents"` // in rows
	Share       float64 `json:"share"`     // of what was drawn, in the unit of the mix
	Scheduled   float64 `json:"scheduled"` // what the mix asked for
	Epochs      float64 `json:"epochs"`    // how often it was read through, at the end
	FirstStep   int64   `json:"first_step"`
	ExhaustedAt int64   `json:"exhausted_at"` // first step without it for its limit of epochs, or the end that it is; -1: none
	Filtered    int64   `json:"filtered"`
	Dropped     int64   `json:"dropped"`
	Empty       int64   `json:"empty"`
	Skipped     int64   `json:"skipped"`

	Absent           []control.AbsentField `json:"absent_fields,omitempty"`        // fields that some of the records read lack
	NoLoss           *control.NoLoss       `json:"samples_without_loss,omitempty"` // of which no token carries loss; nil: there are none
	Samples          int64                 `json:"samples_read"`
	SamplesPerSecond float64               `json:"samples_per_core_second"`
}

// ModuleReport is how even the ranks' work is. A module of a strategy has its own
// cost; tokens, and attention (the sum of the documents' lengths squared), always
// there, are by DP rank.
type ModuleReport struct {
	Name      string  `json:"name"`
	Model     string  `json:"model"`
	Axis      string  `json:"axis"`
	Mean      float64 `json:"mean"`               // over steps, of the largest load over the mean one
	Worst     float64 `json:"worst"`              //
	WorstStep int64   `json:"worst_at"`           //
	Lockstep  float64 `json:"lockstep"`           // the same if ranks wait for each other after each microbatch; 0: not said
	ItemBound int64   `json:"item_bound_steps"`   // in which a sample, or image, costs more than the mean of a rank
	FirstItem int64   `json:"first_item_bound"`   // -1: none
	Heaviest  string  `json:"heaviest,omitempty"` // of that step: a sample or image, its place, and its cost beside the mean of a rank
	RowBound  int64   `json:"row_bound_steps"`    // other ones that no placing of the rows, or images, makes even
	FirstRow  int64   `json:"first_row_bound"`    // -1: none
	LeastRow  float64 `json:"least_row_bound"`    // what any placing has of that step: the largest load over the mean; 0: none

	kind dgraph.Kind
}

// OutlierReport is how long samples waited for others of their length.
type OutlierReport struct {
	Waited int64   `json:"waited"`     // samples whose wait was over
	Steps  float64 `json:"mean_steps"` // that they waited
	Most   int     `json:"most"`       // samples that waited after a step
}

// Bin counts documents of From to To tokens, both included.
type Bin struct {
	From      int32 `json:"from"`
	To        int32 `json:"to"`
	Documents int64 `json:"documents"`
}

// Hop is what goes from one role to another in a step.
type Hop struct {
	From  string  `json:"from"`
	To    string  `json:"to"`
	Bytes float64 `json:"bytes"` // a step, on average
	What  string  `json:"what"`
	Basis Basis   `json:"basis"`
}

// Memory is what a role holds, all processes of it together.
type Memory struct {
	Role   string `json:"role"`
	Bytes  int64  `json:"bytes"`  // at most
	Budget int64  `json:"budget"` // of one process; 0: none
	What   string `json:"what"`
	Basis  Basis  `json:"basis"`
}

// Speed is how fast sources are read and transformed by this run.
type Speed struct {
	SamplesPerStep   float64 `json:"samples_per_step"`
	TokensPerStep    float64 `json:"tokens_per_step"`
	SamplesPerSecond float64 `json:"samples_per_core_second"` // measured
	SecondsPerStep   float64 `json:"core_seconds_per_step"`   // of reading and transforming, in the mix of sources as drawn
	StepTime         float64 `json:"step_time"`               // seconds, as asked for; 0: not asked
	SamplesNeeded    float64 `json:"samples_needed"`          // a second, at StepTime
	Cores            float64 `json:"cores"`                   // that loaders need at StepTime
}

// Line is one step of a plan.
type Line struct {
	Step      int64              `json:"step"`
	Documents int                `json:"documents"`
	Tokens    int64              `json:"tokens"`
	Padding   int64              `json:"padding"`
	Fill      float64            `json:"fill"`
	Bytes     int64              `json:"bytes"`     // of tokens, before they become tensors
	Drawn     map[string]int64   `json:"drawn"`     // tokens
	Scheduled map[string]float64 `json:"scheduled"` // shares
	Plan      string             `json:"plan"`      // digest of the plan
}

// ReportOptions say how far to plan. Only Steps is needed.
type ReportOptions struct {
	Steps    int64             // at most; negative: to the end of the data
	StepTime time.Duration     // of a step of training, for the loaders needed; 0: not known
	Each     func(*Line) error // hears of every step; may be nil
}

// Report plans steps and sums them up. The Job is run by it.
func (j *Job) Report(ctx context.Context, opts ReportOptions) (*Report, error) {
	t := newTally(j)
	end, err := j.Run(ctx, opts.Steps, func(s *plan.Step) error {
		line := j.line(s)
		if err := t.add(s, line); err != nil {
			return err
		}
		if opts.Each != nil {
			return opts.Each(line)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t.report(end, opts.StepTime), nil
}

// line describes a step.
func (j *Job) line(s *plan.Step) *Line {
	room := int64(s.Shape.Rows) * int64(s.Shape.SequenceLength)
	l := &Line{
		Step: s.Step, Documents: s.Count(), Tokens: s.Filled, Padding: room - s.Filled, Fill: ratio(s.Filled, room),
		Bytes: 4 * s.Filled, Drawn: map[string]int64{}, Scheduled: map[string]float64{}, Plan: fmt.Sprintf("%x", token.PlanDigest(s)),
	}
	shares := j.scheduled(s)
	for i, n := range s.Drawn {
		name := j.sources[i].Spec.Name
		l.Drawn[name] = n
		if i < len(shares) {
			l.Scheduled[name] = float64(shares[i]) / (1 << mix.Bits)
		}
	}
	return l
}

// scheduled are the shares that a step was drawn by. It is for steps that Run is
// visiting: only then does the core hold the position before it.
func (j *Job) scheduled(s *plan.Step) []uint64 {
	before, ok := j.core.Plan().State(s.Step)
	if !ok {
		return nil
	}
	return j.core.Plan().SharesAt(before)
}

// ratio is a / b, 0 for 0 / 0.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
