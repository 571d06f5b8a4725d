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
	Rows   RowMethod      // a method of one's own for samples between rows; at Intra and Interleaved
}

var methods = []string{balance.MethodAuto, balance.MethodLPT, balance.MethodKK}

// Graph is the rows, or the images, of a step, with what the primitives said about
// them. Step.Graph makes one.
type Graph struct {
	s       *Step
	kind    dgraph.Kind
	sources []string // whose samples it has; nil: of all
	has     []bool   // by source; nil: all
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
// each time. With names of sources it is that of their samples alone: see the package comment.
func (s *Step) Graph(kind dgraph.Kind, sources ...string) *Graph {
	if int(kind) >= len(s.graphs) {
		s.fail(fault.Userf("strategy: there is no graph of %v; valid are text and image", kind))
		return &Graph{s: s}
	}
	if len(sources) > 0 {
		return s.partGraph(kind, sources)
	}
	if s.graphs[kind] == nil {
		s.graphs[kind] = &Graph{s: s, kind: kind, scratch: s.runner.scratchOf(kind)}
	}
	return s.graphs[kind]
}

// Kind returns what the nodes of the graph are.
func (g *Graph) Kind() dgraph.Kind { return g.kind }

// fail ends the step with an error that names the graph and the primitive.
func (g *Graph) fail(primitive, format string, args ...any) {
	g.s.fail(fault.Userf("strategy: %s: %s: %w", g.title(), primitive, fmt.Errorf(format, args...)))
}

// Mix draws the samples of the step: mix(schedule). It is called once a step.
func (g *Graph) Mix(shares Shares) {
	if shares != nil && !slices.ContainsFunc(shares, func(n uint64) bool { return n > 0 }) {
		g.fail("mix", "all %d shares are 0; give at least one source a share, or s.Schedule() for the job's own mix", len(shares))
	}
	g.s.draw(shares)
}

// Distribute says over what the graph is distributed: distribute(axis,
// group_size). Rows are distributed at Step.RowAxis: at dp, where each is cut over the CP
// ranks of its dp index, or at cp, where every rank of DP x CP has rows of its own. Images
// are at any axis of mesh.Tree.Buckets. With a group size above 1
// balancing has two levels, first over groups of neighbouring buckets, then
// inside each: less to exchange in large clusters. 0 and 1 make no groups. A group size that
// does not divide the buckets is an error unless mesh.SmallerLast is given.
func (g *Graph) Distribute(axis string, groupSize int, last ...mesh.LastGroup) {
	if g.s.err != nil {
		return
	}
	if g.axis != "" {
		g.fail("distribute", "it is said twice, at %s and at %s; keep one", g.axis, axis)
		return
	}
	buckets, err := g.s.in.Tree.Buckets(axis, groupSize, last...)
	switch {
	case err != nil:
		g.s.fail(fault.Userf("strategy: %s: %w", g.title(), err))
	case g.kind == dgraph.Text && g.sources != nil:
		g.fail("distribute", "rows have samples of all sources; say where they go on the graph of text")
	case g.kind == dgraph.Image && g.s.imageAxis() != "" && g.s.imageAxis() != axis:
		g.fail("distribute", "images of other sources are distributed at %s; take one axis for all", g.s.imageAxis())
	case g.s.in.Shape.wide() && groupSize > 1:
		g.fail("distribute", "group_size %d: rows of several widths are placed over all ranks at once; leave it out", groupSize)
	case g.kind == dgraph.Text && g.s.in.Shape.Pool && axis != "cp":
		g.fail("distribute", "rows are distributed at cp, not at %s: all dp x cp ranks of the job are one pool, by batch.context_split or by `distribute: cp` of its strategy", axis)
	case g.kind == dgraph.Text && axis == "cp" && !g.s.in.Shape.Pool:
		g.fail("distribute", "rows are distributed at cp only if the job spec says so, as in `strategy: [use: NAME, distribute: cp]`: constructors have to know it before there is a plan")
	case g.kind == dgraph.Text && !g.s.in.Shape.Pool && axis != "dp":
		g.fail("distribute", "rows are distributed at dp, not at %s: a row is cut over the cp ranks of its dp index; images may go to any axis", axis)
	default:
		g.buckets, g.axis = buckets, axis
	}
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
	case b.Rows != nil && !intra:
		g.fail("balance", "%q moves samples between rows, which level %v does not; take intra or interleaved", b.Rows.Name(), b.Level)
	case g.s.in.Shape.wide() && (b.Custom != nil || b.Rows != nil || b.Method != balance.MethodAuto):
		g.fail("balance", "rows of several widths, as batch.context_split makes them, are balanced by method auto; take it")
	case b.Level == Intra && b.Custom != nil:
		g.fail("balance", "%q knows no token cap, which level intra keeps, so that it would never be asked; take inter or interleaved, or give a method for rows as Rows", b.Custom.Name())
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
		g.s.fail(fault.Userf("strategy: %s: %w", g.title(), err))
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
		for _, g := range slices.Concat(s.all(dgraph.Text), s.all(dgraph.Image)) {
			if g.module != nil {
				s.result.Modules = append(s.result.Modules, *g.module)
			}
		}
	}
	return s.err
}

// instead ends a message about an unknown word.
func instead(got string, words []string) string {
	valid := "valid are " + strings.Join(words, ", ")
	if near := didyoumean.Nearest(got, words); near != "" {
		return fmt.Sprintf(", did you mean %q? %s", near, strings.ToUpper(valid[:1])+valid[1:])
	}
	return "; " + valid
}
