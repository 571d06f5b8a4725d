// Package telemetry is where the roles of a process show what they do: numbers, whether they are
// ready, and how long each part of a step took.
//
// It owns the names and units of all metrics (docs/telemetry.md lists them), and how a step's trace
// is named. It never measures: a role gives values that it keeps anyway, when it is asked. It knows no
// exporter: package export shows a Board to the world, and a role that has none does no work.
//
//go:generate go test . -run ^TestPage$ -rewrite
package telemetry

import (
	"cmp"
	"slices"
	"sync"
)

// Observe takes the value of a metric, with one label value for each of Metric.Labels.
type Observe func(m ID, value float64, labels ...string)

// Part is a role of this process. Its functions are called from any goroutine, at any time between
// Add and the call of what Add returns.
type Part struct {
	Role string // planner, loader, constructor
	ID   string // of several of a role
	// Metrics gives the present value of each metric of the role; may be nil.
	Metrics func(Observe)
	// Ready says what the role waits for before it can serve, in words; "" if it serves. nil: it always does.
	Ready func() string
}

// Board is what is known of the roles of this process. A nil Board is one that nobody looks at: all its
// methods may be called. It is safe for concurrent use.
type Board struct {
	traces func(Span) // of spans that are done; nil: nobody takes them
	every  uint64     // steps to one that the planner has traced

	mu    sync.Mutex // guards parts
	parts []*Part
}

// NewBoard returns a board. traces takes the spans of steps, from any goroutine, and returns at once;
// nil if nobody wants them. A planner has one step in every traced.
func NewBoard(traces func(Span), every uint64) *Board { return &Board{traces: traces, every: every} }

// TraceEvery is how many steps there are to one that a planner has traced; 0: none.
func (b *Board) TraceEvery() uint64 {
	if b == nil {
		return 0
	}
	return b.every
}

// Add shows a role until remove is called.
func (b *Board) Add(p Part) (remove func()) {
	if b == nil {
		return func() {}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts = append(b.parts, &p)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.parts = slices.DeleteFunc(b.parts, func(q *Part) bool { return q == &p })
	}
}

// Parts are the roles that are shown now, by role and id.
func (b *Board) Parts() []Part {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []Part
	for _, p := range b.parts {
		all = append(all, *p)
	}
	slices.SortStableFunc(all, func(x, y Part) int { return cmp.Or(cmp.Compare(x.Role, y.Role), cmp.Compare(x.ID, y.ID)) })
	return all
}
