package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
)

// Level is where a balance acts; see the package comment.
type Level uint8

const (
	// Inter gives rows, or images, to consumers so that these cost alike. The
	// zero value.
	Inter Level = iota
	// Intra evens the cost of rows by moving samples between them. Rows then go to
	// consumers in order, as with KeepOrder.
	Intra
	// Interleaved is Intra and then Inter.
	Interleaved
	// KeepOrder balances nothing: rows and their consumers are those of InOrder,
	// image i goes to bucket i mod buckets. Costs are summed up all the same.
	KeepOrder
)

var levels = []string{"inter", "intra", "interleaved", "keep_order"}

// String returns the word of job specs.
func (l Level) String() string {
	if int(l) < len(levels) {
		return levels[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// ParseLevel returns the level of a word; the empty one is Inter.
func ParseLevel(word string) (Level, error) {
	if word == "" {
		return Inter, nil
	}
	at := slices.Index(levels, word)
	if at < 0 {
		return 0, fault.Userf("strategy: balance: there is no level %q%s", word, instead(word, levels))
	}
	return Level(at), nil
}

// Balance says how to balance.
type Balance struct {
	Method string         // auto (the same as empty), or a method of package balance
	Level  Level          //
	Custom balance.Method // a method of one's own, in place of Method; not at Intra
}

var methods = []string{balance.MethodAuto, balance.MethodLPT, balance.MethodKK}

// Graph is the rows, or the images, of a step, with what the primitives said about
// them. Step.Graph makes one.
type Graph struct {
	s       *Step
	kind    dgraph.Kind
	scratch *scratch

	buckets   mesh.Buckets // of Distribute
	axis      string       // "" before Distribute
	model     cost.Model   // nil before Cost
	balance   Balance
	balanced  bool // Balance was called
	broadcast []string
	raw       bool // PlanRaw placed the rows
	planned   bool
	module    *Module // what was balanced; nil if nothing has a cost
}

// Graph returns the graph of a kind over the samples of the step, the same one
// each time.
func (s *Step) Graph(kind dgraph.Kind) *Graph {
	if int(kind) >= len(s.graphs) {
		s.fail(fault.Userf("strategy: there is no graph of %v; valid are text and image", kind))
		return &Graph{s: s}
	}
	if s.graphs[kind] == nil {
		s.graphs[kind] = &Graph{s: s, kind: kind, scratch: &s.scratch[kind]}
	}
	return s.graphs[kind]
}

// Kind returns what the nodes of the graph are.
func (g *Graph) Kind() dgraph.Kind { return g.kind }

// fail ends the step with an error that names the graph and the primitive.
func (g *Graph) fail(primitive, format string, args ...any) {
	g.s.fail(fault.Userf("strategy: %v: %s: %w", g.kind, primitive, fmt.Errorf(format, args...)))
}

// Mix draws the samples of the step: mix(schedule). It is called once a step.
func (g *Graph) Mix(shares Shares) {
	if shares != nil && !slices.ContainsFunc(shares, func(n uint64) bool { return n > 0 }) {
		g.fail("mix", "all %d shares are 0; give at least one source a share, or s.Schedule() for the job's own mix", len(shares))
	}
	g.s.draw(shares)
}

// Distribute says over what the graph is distributed: distribute(axis,
// group_size). Rows are distributed at Step.RowAxis, dp as a rule, since each is cut
// over the ranks of its dp index; images at any axis of mesh.Tree.Buckets. With a group size above 1
// balancing has two levels, first over groups of neighbouring buckets, then
// inside each: less to exchange in large clusters. 0 and 1 make no groups.
func (g *Graph) Distribute(axis string, groupSize int) {
	if g.s.err != nil {
		return
	}
	if g.axis != "" {
		g.fail("distribute", "it is said twice, at %s and at %s; keep one", g.axis, axis)
		return
	}
	buckets, err := g.s.in.Tree.Buckets(axis, groupSize)
	switch {
	case err != nil:
		g.s.fail(fault.Userf("strategy: %v: %w", g.kind, err))
	case g.s.in.Shape.wide() && groupSize > 1:
		g.fail("distribute", "group_size %d: rows of several widths are placed over all ranks at once; leave it out", groupSize)
	case g.kind == dgraph.Text && g.s.in.Shape.wide() && axis != "cp":
		g.fail("distribute", "with batch.context_split rows are distributed at cp, not at %s: all dp x cp ranks are one pool", axis)
	case g.kind == dgraph.Text && !g.s.in.Shape.wide() && axis != "dp":
		g.fail("distribute", "rows are distributed at dp, not at %s: a row is cut over the cp ranks of its dp index; images may go to any axis", axis)
	default:
		g.buckets, g.axis = buckets, axis
	}
}

// groups returns how many groups balancing looks at first; 1 for none.
func (g *Graph) groups() int {
	if n := g.buckets.Groups(); n < g.buckets.Len() {
		return n
	}
	return 1
}

// Distributed reports whether Distribute was called.
func (g *Graph) Distributed() bool { return g.axis != "" }

// Cost gives the cost of a sample, or of an image: cost(costfn).
func (g *Graph) Cost(model cost.Model) {
	switch {
	case g.s.err != nil:
	case model == nil:
		g.fail("cost", "the model is nil; cost.Parse makes one of a text such as quadratic")
	case g.model != nil:
		g.fail("cost", "it is given twice, as %v and as %v; keep one", g.model, model)
	default:
		g.model = model
	}
}

// Balance balances what Cost says over what Distribute says: balance(method, ...).
func (g *Graph) Balance(b Balance) {
	if b.Method == "" {
		b.Method = balance.MethodAuto
	}
	known := b.Custom != nil || slices.Contains(methods, b.Method)
	intra := b.Level == Intra || b.Level == Interleaved
	switch {
	case g.s.err != nil:
	case g.balanced:
		g.fail("balance", "it is said twice; keep one, at level interleaved for both levels")
	case g.raw:
		g.fail("balance", "PlanRaw placed the rows already; leave one of the two out")
	case g.axis == "":
		g.fail("balance", "nothing says over what; call Distribute before Balance")
	case g.model == nil && b.Level != KeepOrder:
		g.fail("balance", "nothing says what a sample costs; call Cost before Balance")
	case int(b.Level) >= len(levels):
		g.fail("balance", "there is no %v; valid are Inter, Intra, Interleaved and KeepOrder", b.Level)
	case !known:
		g.fail("balance", "there is no method %q%s", b.Method, instead(b.Method, methods))
	case intra && g.kind == dgraph.Image:
		g.fail("balance", "level %v moves samples between rows, and images have none; valid are inter and keep_order", b.Level)
	case g.s.in.Shape.wide() && (intra || b.Custom != nil || b.Method != balance.MethodAuto):
		g.fail("balance", "rows of several widths, as batch.context_split makes them, are balanced by method auto at level inter, or keep_order; take one of these")
	case b.Level == Intra && b.Custom != nil:
		g.fail("balance", "level intra moves samples between rows by a method that keeps the token cap, so that %q would never be asked; take inter or interleaved", b.Custom.Name())
	case intra && !g.s.in.Shape.Packing:
		g.fail("balance", "level %v moves samples between rows, and without packing each has a row of its own; take inter, or packing", b.Level)
	default:
		g.balance, g.balanced = b, true
	}
}

// BroadcastAt says along which dims the trainer broadcasts what one rank fetched:
// broadcast_at(target_dim).
func (g *Graph) BroadcastAt(dims ...string) {
	if g.s.err != nil {
		return
	}
	if g.axis == "" {
		g.fail("broadcast_at", "nothing says who fetches at all; call Distribute before BroadcastAt")
		return
	}
	buckets, err := g.buckets.BroadcastAt(dims...)
	if err != nil {
		g.s.fail(fault.Userf("strategy: %v: %w", g.kind, err))
		return
	}
	g.buckets, g.broadcast = buckets, slices.Clone(dims)
}

// Plan decides, for this graph and for those of the step that have no plan yet:
// plan(). It returns the first error of the step.
func (g *Graph) Plan() error {
	s := g.s
	if s.err == nil && s.buf == nil {
		s.fail(fault.Userf("strategy: plan: the step has no samples; call Mix on one of its graphs first"))
	}
	if s.err == nil {
		s.planGraphs()
	}
	if s.err == nil && s.graphs[dgraph.Text] == nil {
		s.inOrder() // rows have to go somewhere
	}
	if s.done = s.err == nil; s.done {
		s.result.Modules = nil
		for _, g := range s.graphs {
			if g != nil && g.module != nil {
				s.result.Modules = append(s.result.Modules, *g.module)
			}
		}
	}
	return s.err
}

// planGraphs plans the graphs that have no plan yet. Rows and images depend on the
// samples alone, so they are planned as Input.Both says, but for a method of one's own
// that both would call.
func (s *Step) planGraphs() {
	rows, images := s.graphs[dgraph.Text], s.graphs[dgraph.Image]
	if rows == nil || images == nil || rows.planned || images.planned || rows.balance.Custom != nil && images.balance.Custom != nil {
		for _, g := range s.graphs {
			if s.err == nil && g != nil && !g.planned {
				g.plan()
			}
		}
		return
	}
	beside := *s // with an error of its own
	images.s = &beside
	var panicked any
	s.in.both(rows.plan, func() {
		defer func() {
			if r := recover(); r != nil {
				panicked = where(r)
			}
		}()
		images.plan()
	})
	if panicked != nil {
		panic(panicked) // where who called the strategy can recover
	}
	if images.s = s; beside.err != nil {
		s.fail(beside.err)
	}
}

func (g *Graph) plan() {
	g.planned = true
	if g.kind == dgraph.Image {
		g.planImages()
	} else {
		g.planRows()
	}
}

// instead ends a message about an unknown word.
func instead(got string, words []string) string {
	valid := "valid are " + strings.Join(words, ", ")
	if near := didyoumean.Nearest(got, words); near != "" {
		return fmt.Sprintf(", did you mean %q? %s", near, strings.ToUpper(valid[:1])+valid[1:])
	}
	return "; " + valid
}
