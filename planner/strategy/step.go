package strategy

import (
	"errors"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
)

// ErrBlocked says that samples of the step are not known yet. A Draw returns it, and
// then the strategy does; it is called again when more is known.
var ErrBlocked = errors.New("strategy: samples of this step are not known yet")

// Strategy plans one step by the primitives of its graphs. It returns what Plan
// does. It is pure: see the package comment.
type Strategy func(s *Step) error

// Shares are the parts of the sources in the mix, of any positive sum, in the order of
// the job spec, then of joining; sources behind the last have none. nil is the job's
// own schedule, with what was set by hand since.
type Shares []uint64

// Of returns the shares of n sources. More shares than sources are an error of class
// fault.User.
func (s Shares) Of(sources int) (Shares, error) {
	if len(s) > sources {
		return nil, fault.Userf("strategy: mix: %d shares are given, and there are %d sources; give one for each", len(s), sources)
	}
	return append(s[:len(s):len(s)], make(Shares, sources-len(s))...), nil
}

// Shape is the shape of a global batch.
type Shape struct {
	Rows           int   // of the global batch
	SequenceLength int32 // tokens a row has room for
	MicrobatchSize int   // rows of a microbatch
	Packing        bool  // a row may have several samples
	Multiple       int32 // a sample takes a multiple of it of a row; 0 is 1
	// Pool says that the DP x CP ranks are one pool: each of them is a consumer of rows, and
	// a row is not cut over CP ranks but as Widest says.
	Pool bool
	// Widest is above 1, in a pool, if rows have several widths: one of width w, a power of two up
	// to Widest, has room for w x SequenceLength tokens, and w ranks share it. Rows counts the
	// widths of all rows then.
	Widest int32
	// Fill is the thousandths of the tokens of a step that samples fill, so that rows have
	// room to cost alike, which they are then evened to with more effort; 0: not said.
	Fill int32
}

// wide says whether rows have several widths.
func (s Shape) wide() bool { return s.Widest > 1 }

// DrawFunc draws the samples of the step by shares and packs them into rows:
// rowOf[i] is the row of sample i, or -1 if it waits for the next step. It may
// return ErrBlocked. Neither the buffer nor rowOf changes afterwards.
type DrawFunc func(shares []uint64) (buf *dgraph.Buffer, rowOf []int32, err error)

// Input is what the core gives to a strategy.
type Input struct {
	Number  int64      // of the step
	Tree    *mesh.Tree // the mesh
	Shape   Shape      //
	Sources []string   // their names, in the order of Buffer.Source, for graphs of some of them
	Draw    DrawFunc   //
	// Both calls two functions that have nothing to do with each other, maybe at the same
	// time, and returns when both are done. If nil, one is called after the other.
	Both func(a, b func())
}

func (in *Input) both(a, b func()) {
	if in.Both == nil {
		a()
		b()
		return
	}
	in.Both(a, b)
}

// Step is the step that a strategy plans. It is valid inside the strategy only.
type Step struct {
	in           Input
	microbatches int     // of each rank
	runner       *Runner // whose scratch memory this is

	err    error // the first; what comes after it does nothing
	buf    *dgraph.Buffer
	rowOf  []int32
	graphs [2]*Graph // by kind
	parts  []*Graph  // of some sources, in the order of the first call for each
	result *Result
	done   bool
}

// Runner runs strategies, one step at a time, and keeps their scratch memory. The
// zero value is ready. A Runner is not safe for concurrent use.
type Runner struct {
	scratch [2]*scratch         // by kind of graph; nil until a step has one: it takes a megabyte
	parts   map[string]*scratch // by title of graphs of some sources
	drawn   drawn               // of a strategy whose plan is checked
}

// scratchOf is the memory for graphs of a kind.
func (r *Runner) scratchOf(kind dgraph.Kind) *scratch {
	if r.scratch[kind] == nil {
		r.scratch[kind] = new(scratch)
	}
	return r.scratch[kind]
}

// Run plans a step. The result belongs to the caller. The error is ErrBlocked if
// the step has to be tried again later, else what is wrong: of class fault.User
// for what a strategy or a job spec says, such as a shape that does not fit the mesh.
func (r *Runner) Run(plan Strategy, in Input) (*Result, error) {
	s := Step{in: in, runner: r}
	if in.Shape.Pool {
		s.microbatches, s.err = in.Tree.PoolMicrobatches(in.Shape.Rows, int(max(in.Shape.Widest, 1)), in.Shape.MicrobatchSize)
	} else {
		s.microbatches, s.err = in.Tree.Microbatches(in.Shape.Rows, in.Shape.MicrobatchSize)
	}
	if s.err != nil {
		return nil, s.err
	}
	err := plan(&s)
	switch {
	case s.err != nil:
		return nil, s.err
	case err != nil:
		return nil, err
	case !s.done:
		return nil, fault.Userf("strategy: it returned without a plan; end it with `return g.Plan()`")
	}
	if s.result.index == nil { // a registered strategy has it
		s.result.index = newIndex(s.result, s.buf, countRows(s.result.RowOf, len(s.result.Rank)))
	}
	return s.result, nil
}

// Number returns the number of the step.
func (s *Step) Number() int64 { return s.in.Number }

// Tree returns the mesh.
func (s *Step) Tree() *mesh.Tree { return s.in.Tree }

// Shape returns the shape of the global batch.
func (s *Step) Shape() Shape { return s.in.Shape }

// Schedule returns the job's own mix, for Mix.
func (s *Step) Schedule() Shares { return nil }

// Buffer returns the samples of the step; nil before Mix. It must not be changed.
func (s *Step) Buffer() *dgraph.Buffer { return s.buf }

// RowOf returns the row that each sample was packed into, -1 if it waits for the
// next step; nil before Mix. It must not be changed.
func (s *Step) RowOf() []int32 { return s.rowOf }

// Result returns the plan, nil before Plan. A strategy may move rows, or samples between
// rows, in it: the plan of a registered one is checked when it returns.
func (s *Step) Result() *Result {
	if !s.done {
		return nil
	}
	return s.result
}

// RowAxis is the axis that rows are distributed at: dp, or cp where the DP x CP
// ranks are one pool.
func (s *Step) RowAxis() string {
	if s.in.Shape.Pool {
		return "cp"
	}
	return "dp"
}

// ranks returns the number of ranks at the axis of rows.
func (s *Step) ranks() int { return s.in.Shape.Rows / (s.microbatches * s.in.Shape.MicrobatchSize) }

// fail keeps the first error of a step.
func (s *Step) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// draw takes the samples of the step, once.
func (s *Step) draw(shares Shares) {
	if s.err != nil {
		return
	}
	if s.buf != nil {
		s.fail(fault.Userf("strategy: mix: the samples of a step are drawn once; call Mix on one graph only"))
		return
	}
	buf, rowOf, err := s.in.Draw(shares)
	if err != nil {
		s.fail(err)
		return
	}
	s.buf, s.rowOf = buf, rowOf
	s.result = s.newResult(s.widths())
}

// InOrder is the strategy that keeps the order of packing, the default: row g goes
// to DP rank g / mbs mod dp, microbatch g / mbs / dp, with mbs rows to a microbatch.
// Neighbouring rows are in the same slot of different ranks, so what packing made
// alike stays alike. It looks at no cost. Rows of several widths go to ranks in the
// same way, the widest first.
func InOrder(s *Step) error {
	s.draw(nil)
	if s.err == nil {
		s.inOrder()
		s.done = true
	}
	return s.err
}

// inOrder fills the columns of the result by row number.
func (s *Step) inOrder() {
	if s.in.Shape.wide() {
		s.tile(nil)
		return
	}
	r, mbs, dp := s.result, int32(s.in.Shape.MicrobatchSize), int32(s.ranks())
	row := 0
	for microbatch := range int32(s.microbatches) {
		for rank := range dp {
			for position := range mbs {
				r.Rank[row], r.Microbatch[row], r.Position[row] = rank, microbatch, position
				row++
			}
		}
	}
}
