package strategy_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// broken is a method that loses or doubles an item.
type broken struct{ twice bool }

func (broken) Name() string { return "broken" }

func (m broken) Assign(costs []int64, bins int) ([][]int32, error) {
	out, err := zigzag{}.Assign(costs, bins)
	if m.twice {
		out[1] = append(out[1], out[0][0])
	} else {
		out[0] = out[0][1:]
	}
	return out, err
}

type silent struct{ zigzag }

func (silent) Assign([]int64, int) ([][]int32, error) { return nil, errors.New("no idea") }

// negative is a model that breaks its promise.
type negative struct{}

func (negative) Cost(cost.Sample) (int64, error) { return -1, nil }
func (negative) String() string                  { return "negative" }

// failing is a model that knows no cost of one length.
type failing struct{ negative }

func (failing) Cost(s cost.Sample) (int64, error) {
	if s.Tokens == 3 {
		return 0, errors.New("no cost of 3 tokens is known")
	}
	return s.Tokens, nil
}

// TestMistakes makes one mistake at a time. Each message names the graph, the
// primitive, what is wrong and what would be valid.
func TestMistakes(t *testing.T) {
	linear := model(t, "linear")
	inter := strategy.Balance{Level: strategy.Inter}
	// rows says everything up to a balance, with f in its place.
	rows := func(m cost.Model, f func(g *strategy.Graph)) strategy.Strategy {
		return func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			g.Distribute("dp", 1)
			if m != nil {
				g.Cost(m)
			}
			f(g)
			return g.Plan()
		}
	}
	bare := func(kind dgraph.Kind, f func(g *strategy.Graph)) strategy.Strategy {
		return func(s *strategy.Step) error {
			g := s.Graph(kind)
			g.Mix(nil)
			f(g)
			return g.Plan()
		}
	}
	for _, row := range []struct {
		plan strategy.Strategy
		want string
	}{
		{bare(dgraph.Text, func(g *strategy.Graph) { g.Distribute("dq", 1) }), `strategy: text: distribute: unknown axis "dq", did you mean "dp"? Valid are dp, cp, pp, tp and world`},
		{bare(dgraph.Text, func(g *strategy.Graph) { g.Distribute("world", 1) }), "strategy: text: distribute: rows are distributed at dp, not at world: a row is cut over the cp ranks of its dp index; images may go to any axis"},
		{bare(dgraph.Text, func(g *strategy.Graph) { g.Distribute("dp", 3) }), "strategy: text: distribute: group_size 3 does not divide the 4 buckets at dp of mesh tp2 cp2 dp4 pp1; valid are 1, 2 and 4, and 0 for one group; or say that the last group may be smaller"},
		{rows(linear, func(g *strategy.Graph) { g.Distribute("dp", 1) }), "strategy: text: distribute: it is said twice, at dp and at dp; keep one"},
		{rows(linear, func(g *strategy.Graph) { g.Cost(linear) }), "strategy: text: cost: it is given twice, as linear(a=1) and as linear(a=1); keep one"},
		{rows(nil, func(g *strategy.Graph) { g.Cost(nil) }), "strategy: text: cost: the model is nil; cost.Parse makes one of a text such as quadratic"},
		{rows(nil, func(g *strategy.Graph) { g.Balance(inter) }), "strategy: text: balance: nothing says what a sample costs; call Cost before Balance"},
		{bare(dgraph.Text, func(g *strategy.Graph) { g.Balance(inter) }), "strategy: text: balance: nothing says over what; call Distribute before Balance"},
		{rows(linear, func(g *strategy.Graph) { g.Balance(inter); g.Balance(inter) }), "strategy: text: balance: it is said twice; keep one, at level interleaved for both levels"},
		{rows(linear, func(g *strategy.Graph) { g.Balance(strategy.Balance{Method: "aut"}) }), `strategy: text: balance: there is no method "aut", did you mean "auto"? Valid are auto, lpt, kk`},
		{rows(linear, func(g *strategy.Graph) { g.Balance(strategy.Balance{Method: "zigzag"}) }), `strategy: text: balance: there is no method "zigzag"; valid are auto, lpt, kk`},
		{rows(linear, func(g *strategy.Graph) { g.Balance(strategy.Balance{Level: 9}) }), "strategy: text: balance: there is no level(9); valid are Inter, Intra, Interleaved and KeepOrder"},
		{rows(linear, func(g *strategy.Graph) { g.Balance(strategy.Balance{Custom: broken{}}) }), `strategy: text: balance: dividing microbatches over ranks: balancing 16 items by method "broken": item 15 is in no bin; each item belongs to one`},
		{rows(linear, func(g *strategy.Graph) { g.Balance(strategy.Balance{Custom: broken{twice: true}}) }), `strategy: text: balance: dividing microbatches over ranks: balancing 16 items by method "broken": item 15 is in bin 0 and in bin 1; an item belongs to one bin`},
		{rows(linear, func(g *strategy.Graph) { g.Balance(strategy.Balance{Custom: silent{}}) }), `strategy: text: balance: dividing microbatches over ranks: balancing 16 items by method "zigzag": no idea`},
		{rows(linear, func(g *strategy.Graph) { g.Balance(strategy.Balance{Custom: broken{}, Level: strategy.Intra}) }), `strategy: text: balance: "broken" knows no token cap, which level intra keeps, so that it would never be asked; take inter or interleaved, or give a method for rows as Rows`},
		{rows(negative{}, func(g *strategy.Graph) { g.Balance(inter) }), "strategy: text: cost: the model negative gives sample 0:0:0 the cost -1; a cost is 0 or more"},
		{rows(cost.Func(func(cost.Sample) int64 { return math.MaxInt64 / 8 }), func(g *strategy.Graph) { g.Balance(inter) }), "strategy: text: cost: by the model func the step costs more than 2^62 units; divide its costs by the same number"},
		{rows(failing{}, func(g *strategy.Graph) { g.Balance(inter) }), "strategy: text: cost: sample 0:0:2: no cost of 3 tokens is known"},
		{rows(linear, func(g *strategy.Graph) { g.BroadcastAt("dp") }), "strategy: text: broadcast_at: along dp ranks consume different data, since it is distributed at dp; valid are cp, pp, tp, each once"},
		{rows(linear, func(g *strategy.Graph) { g.BroadcastAt("tpx") }), `strategy: text: broadcast_at: unknown dim "tpx", did you mean "tp"? Valid are cp, pp, tp, each once`},
		{bare(dgraph.Text, func(g *strategy.Graph) { g.BroadcastAt("tp") }), "strategy: text: broadcast_at: nothing says who fetches at all; call Distribute before BroadcastAt"},
		{bare(dgraph.Text, func(g *strategy.Graph) { g.Mix(nil) }), "strategy: mix: the samples of a step are drawn once; call Mix on one graph only"},
		{func(s *strategy.Step) error { g := s.Graph(dgraph.Text); g.Mix(strategy.Shares{0, 0}); return g.Plan() }, "strategy: text: mix: all 2 shares are 0; give at least one source a share, or s.Schedule() for the job's own mix"},
		{func(s *strategy.Step) error { return s.Graph(dgraph.Text).Plan() }, "strategy: plan: the step has no samples; call Mix on one of its graphs first"},
		{func(s *strategy.Step) error { s.Graph(dgraph.Text).Mix(nil); return nil }, "strategy: it returned without a plan; end it with `return g.Plan()`"},
		{func(s *strategy.Step) error { return s.Graph(7).Plan() }, "strategy: there is no graph of kind(7); valid are text and image"},
		{bare(dgraph.Image, func(g *strategy.Graph) { g.Distribute("world", 1) }), "strategy: image: plan: the samples of this job have no images; leave the graph of images out"},
		{bare(dgraph.Image, func(g *strategy.Graph) {
			g.Distribute("world", 1)
			g.Cost(linear)
			g.Balance(strategy.Balance{Level: strategy.Intra})
		}), "strategy: image: balance: level intra moves samples between rows, and images have none; valid are inter and keep_order"},
		{func(s *strategy.Step) error { return errors.New("my own") }, "my own"},
	} {
		in := sixteen().input(mesh.Sizes{DP: 4, CP: 2, PP: 1, TP: 2}, 1)
		_, err := new(strategy.Runner).Run(row.plan, in)
		if err == nil || err.Error() != row.want || row.want != "my own" && fault.ClassOf(err) != fault.User {
			t.Errorf("got  %v\nwant %s", err, row.want)
		}
	}
}

// sixteen is a step of a sample of 1 to 16 tokens in each of 16 rows, without images.
func sixteen() batch {
	b := batch{&dgraph.Buffer{}, nil, strategy.Shape{Rows: 16, SequenceLength: 16, Packing: true}}
	for i := range int32(16) {
		b.buf.Source, b.buf.Seq, b.buf.Index = append(b.buf.Source, 0), append(b.buf.Seq, 0), append(b.buf.Index, i)
		b.buf.Tokens, b.rowOf = append(b.buf.Tokens, min(i+1, 16)), append(b.rowOf, i)
	}
	b.buf.Tokens[0], b.buf.Tokens[3] = 4, 3
	return b
}

// TestShapes: what does not fit the mesh or the batch is refused before any work.
func TestShapes(t *testing.T) {
	in := sixteen().input(mesh.Sizes{DP: 3, CP: 1, PP: 1, TP: 1}, 1)
	_, err := new(strategy.Runner).Run(strategy.InOrder, in)
	if want := "batch: 16 rows are not a multiple of dp 3 * microbatch size 1; valid are 15 and 18 rows, or dp 2 and 4 with 16 rows"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	in = sixteen().input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1}, 1)
	in.Shape.Packing = false
	_, err = new(strategy.Runner).Run(text(model(t, "linear"), 1, strategy.Balance{Level: strategy.Interleaved}), in)
	if want := "strategy: text: balance: level interleaved moves samples between rows, and without packing each has a row of its own; take inter, or packing"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestPlanRaw gives a plan out by hand: reversed, with two rows exchanged.
func TestPlanRaw(t *testing.T) {
	type columns struct{ rowOf, rank, microbatch, position []int32 }
	reversed := func() columns {
		c := columns{rowOf: make([]int32, 16)}
		for i := range int32(16) {
			c.rowOf[i] = 15 - i
			c.rank, c.microbatch, c.position = append(c.rank, i/4), append(c.microbatch, i%4/2), append(c.position, i%2)
		}
		return c
	}
	b := sixteen()
	b.rowOf[15] = -1
	in := b.input(mesh.Sizes{DP: 4, CP: 1, PP: 1, TP: 1}, 2)
	run := func(in strategy.Input, c columns) (*strategy.Result, error) {
		return new(strategy.Runner).Run(func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			g.Cost(model(t, "linear"))
			if err := strategy.PlanRaw(s, c.rowOf, c.rank, c.microbatch, c.position); err != nil {
				return err
			}
			return g.Plan()
		}, in)
	}
	c := reversed()
	c.rowOf[15] = -1
	r, err := run(in, c)
	if err != nil {
		t.Fatal(err)
	}
	check(t, "raw", b, in, r)
	if r.RowOf[0] != 15 || r.Rank[15] != 3 || r.Position[15] != 1 || len(r.Modules) != 1 {
		t.Errorf("got %+v", r)
	}
	for _, row := range []struct {
		break_ func(*columns)
		want   string
	}{
		{func(c *columns) { c.rowOf[15] = 0 }, "sample 0:0:15, which waits for the next step, goes to row 0; give it -1"},
		{func(c *columns) { c.rowOf[3] = -1 }, "sample 0:0:3, which belongs to this step, has no row"},
		{func(c *columns) { c.rowOf[3] = 16 }, "sample 0:0:3 goes to row 16; rows are 0 to 15"},
		{func(c *columns) { c.rowOf[13] = c.rowOf[14] }, "sample 0:0:14 makes row 1 29 tokens long; it has room for 16"},
		{func(c *columns) { c.rowOf = c.rowOf[1:] }, "15 samples have a row or -1, and there are 16"},
		{func(c *columns) { c.rank = c.rank[1:] }, "15 rows have a rank, 16 a microbatch, 16 a position, and there are 16 rows"},
		{func(c *columns) { c.rank[2] = 4 }, "row 2 goes to rank 4, microbatch 1, position 0; there are 4 ranks of 2 microbatches of 2 rows, counted from 0"},
		{func(c *columns) { c.position[2] = 1 }, "rows 2 and 3 both go to rank 0, microbatch 1, position 1; each place has one row"},
	} {
		c := reversed()
		c.rowOf[15] = -1
		row.break_(&c)
		if _, err := run(in, c); err == nil || err.Error() != "strategy: plan_raw: "+row.want {
			t.Errorf("got  %v\nwant strategy: plan_raw: %s", err, row.want)
		}
	}
	in.Shape.Packing = false
	c.rowOf[0] = c.rowOf[3]
	if _, err := run(in, c); err == nil || err.Error() != "strategy: plan_raw: sample 0:0:3 is the second of row 12; without packing a row has one" {
		t.Errorf("got %v", err)
	}
}

func TestRawAndBalance(t *testing.T) {
	in := sixteen().input(mesh.Sizes{DP: 1, CP: 1, PP: 1, TP: 1}, 1)
	zero := make([]int32, 16)
	for name, plan := range map[string]strategy.Strategy{
		"strategy: text: plan_raw: Balance is to place the rows; leave one of the two out": func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			g.Distribute("dp", 0)
			g.Balance(strategy.Balance{Level: strategy.KeepOrder})
			return strategy.PlanRaw(s, s.RowOf(), zero, s.RowOf(), zero)
		},
		"strategy: text: balance: PlanRaw placed the rows already; leave one of the two out": func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			if err := strategy.PlanRaw(s, s.RowOf(), zero, s.RowOf(), zero); err != nil {
				return err
			}
			g.Balance(strategy.Balance{})
			return g.Plan()
		},
		"strategy: plan_raw: the step has no samples; call Mix on a graph first": func(s *strategy.Step) error {
			return strategy.PlanRaw(s, nil, nil, nil, nil)
		},
	} {
		if _, err := new(strategy.Runner).Run(plan, in); err == nil || err.Error() != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}

func TestSet(t *testing.T) {
	if _, err := strategy.Set(nil).Named("mine"); err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "a program of your own") {
		t.Errorf("got %v", err)
	}
	set := strategy.Set{"long-first": strategy.InOrder}
	if err := set.Check(); err != nil {
		t.Error(err)
	}
	if plan, err := set.Named("long-first"); err != nil || plan == nil {
		t.Errorf("got %v", err)
	}
	for name, wrong := range map[string]strategy.Set{" ": {" ": strategy.InOrder}, "x": {"x": nil}} {
		if err := wrong.Check(); err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), fmt.Sprintf("%q", name)) {
			t.Errorf("%q: got %v", name, err)
		}
	}
	_, err := set.Named("longfirst")
	if want := `strategy: nothing is registered as "longfirst", did you mean "long-first"? Valid are long-first`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestLevels(t *testing.T) {
	for _, level := range []strategy.Level{strategy.Inter, strategy.Intra, strategy.Interleaved, strategy.KeepOrder} {
		if got, err := strategy.ParseLevel(level.String()); err != nil || got != level {
			t.Errorf("%v is read as %v, %v", level, got, err)
		}
	}
	if got, err := strategy.ParseLevel(""); err != nil || got != strategy.Inter {
		t.Errorf("nothing is read as %v, %v", got, err)
	}
	if _, err := strategy.ParseLevel("intre"); err == nil || err.Error() != `strategy: balance: there is no level "intre", did you mean "inter"? Valid are inter, intra, interleaved, keep_order` {
		t.Errorf("got %v", err)
	}
}
