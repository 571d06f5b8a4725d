package compile

import (
	"cmp"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/feedback"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// Registry is what a program adds to the names that job specs may use. It is read only
// once it is in use; the zero value adds nothing.
type Registry struct {
	Strategies strategy.Set        // for `strategy: NAME`
	RowMethods strategy.RowMethods // for `balance: {row_method: NAME}`
	Policies   feedback.Set        // for `mix: {feedback: NAME}`
}

// Check returns an error of class fault.User for a name that is empty or taken, or that
// stands for nothing.
func (r Registry) Check() error {
	return cmp.Or(r.Strategies.Check(), r.RowMethods.Check(), r.Policies.Check())
}

// CheckNames has the names of a job spec looked up in the registry, each at its place.
func (r Registry) CheckNames() jobspec.Option {
	return jobspec.CheckNames(
		func(name string) error { _, err := r.Strategies.Named(name); return err },
		func(name string) error { _, err := r.RowMethods.Named(name); return err },
		func(name string) error { _, err := r.Policies.New(name, feedback.Options{}); return err })
}

// CheckCost reports whether a cost of a job spec can be read; for
// jobspec.CheckCost.
func CheckCost(text string) error {
	_, err := cost.Parse(text)
	return err
}

// call is a primitive ready to be called: on a graph, or to change to another.
type call func(s *strategy.Step, g *strategy.Graph) *strategy.Graph

// Compile returns the strategy of a job: strategy.InOrder if it has none, the
// one of the registry if it names one, else its primitives in their order. Rows are
// broadcast as the output section says where the strategy does not. Errors are of
// class fault.User: a name that is not registered, or a cost that cannot be read.
func (r Registry) Compile(job *jobspec.Job) (strategy.Strategy, error) {
	switch list := job.Strategy; {
	case len(list) == 0:
		return strategy.InOrder, nil
	case list[0].Use != "":
		return r.Strategies.Named(list[0].Use)
	}
	c := compiler{methods: r.RowMethods, rows: true}
	for i := range job.Strategy {
		if err := c.primitive(&job.Strategy[i]); err != nil {
			return nil, fault.Userf("strategy[%d]: %w", i, err)
		}
	}
	return c.strategy(job.Output.BroadcastAt), nil
}

type compiler struct {
	calls     []call
	methods   strategy.RowMethods
	rows      bool // calls act on the graph that says where rows go
	broadcast bool // the strategy says how rows are broadcast
}

func (c *compiler) add(f func(g *strategy.Graph)) {
	c.calls = append(c.calls, func(_ *strategy.Step, g *strategy.Graph) *strategy.Graph {
		f(g)
		return g
	})
}

func (c *compiler) primitive(p *jobspec.Primitive) error {
	switch {
	case p.Graph != nil:
		kind, sources := dgraph.Text, p.Graph.Sources
		if p.Graph.Of == dgraph.Image.String() {
			kind = dgraph.Image
		}
		c.rows = kind == dgraph.Text && sources == nil
		c.calls = append(c.calls, func(s *strategy.Step, _ *strategy.Graph) *strategy.Graph { return s.Graph(kind, sources...) })
	case p.Distribute != nil:
		d := *p.Distribute
		last := mesh.EqualLast
		if d.LastGroup == "smaller" {
			last = mesh.SmallerLast
		}
		c.add(func(g *strategy.Graph) { g.Distribute(d.Axis, d.GroupSize, last) })
	case p.Cost != nil:
		return c.cost(p.Cost)
	case p.Balance != nil:
		return c.balance(p.Balance)
	case p.BroadcastAt != nil:
		dims := p.BroadcastAt
		c.broadcast = c.broadcast || c.rows
		c.add(func(g *strategy.Graph) { g.BroadcastAt(dims...) })
	}
	return nil // mix is called first anyway
}

func (c *compiler) cost(spec *jobspec.Cost) error {
	read := cost.Parse
	if spec.Expression != "" {
		read = cost.Compile
	}
	model, err := read(spec.Text())
	if err != nil {
		return err
	}
	c.add(func(g *strategy.Graph) { g.Cost(model) })
	return nil
}

func (c *compiler) balance(spec *jobspec.Balance) error {
	level, err := strategy.ParseLevel(spec.Level)
	if err != nil {
		return err
	}
	if spec.KeepOrder {
		level = strategy.KeepOrder
	}
	b := strategy.Balance{Method: spec.Method, Level: level}
	if b.Rows, err = c.methods.Named(spec.RowMethod); err != nil {
		return err
	}
	c.add(func(g *strategy.Graph) { g.Balance(b) })
	return nil
}

// strategy ties the calls together.
func (c *compiler) strategy(broadcastAt string) strategy.Strategy {
	calls, add := c.calls, broadcastAt != "" && !c.broadcast
	return func(s *strategy.Step) error {
		text := s.Graph(dgraph.Text)
		text.Mix(s.Schedule())
		g := text
		for _, call := range calls {
			g = call(s, g)
		}
		if add {
			if !text.Distributed() {
				text.Distribute(s.RowAxis(), 1)
			}
			text.BroadcastAt(broadcastAt)
		}
		return g.Plan()
	}
}
