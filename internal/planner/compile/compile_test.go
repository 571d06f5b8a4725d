package compile_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/feedback"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

const head = `
name: demo
sources: [{name: a, files: a.txt}]
batch: {sequence_length: 64, sequences: 48, microbatch_size: 2}
topology: {dp: 4, cp: 2}
`

func load(t *testing.T, text string) *jobspec.Job {
	t.Helper()
	job, findings := jobspec.Parse("f", []byte(head+text), "", jobspec.CheckCost(compile.CheckCost))
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return job
}

// input is a step of 100 samples of rising length, with images.
func input(t *testing.T) strategy.Input {
	t.Helper()
	tree, err := mesh.New(mesh.Sizes{DP: 4, CP: 2, PP: 1, TP: 1, VPP: 1, EP: 1})
	if err != nil {
		t.Fatal(err)
	}
	b, rowOf := &dgraph.Buffer{ImageOffsets: []int32{0}}, []int32(nil)
	for i := range int32(100) {
		b.Source, b.Seq, b.Index, b.Tokens = append(b.Source, 0), append(b.Seq, 0), append(b.Index, i), append(b.Tokens, 1+i*i%31)
		b.Patches = append(b.Patches, 16+i*i*i%97)
		b.ImageOffsets, rowOf = append(b.ImageOffsets, i+1), append(rowOf, i%48)
	}
	return strategy.Input{Tree: tree, Shape: strategy.Shape{Rows: 48, SequenceLength: 128, MicrobatchSize: 2, Packing: true},
		Draw: func([]uint64) (*dgraph.Buffer, []int32, error) { return b, rowOf, nil }}
}

func run(t *testing.T, plan strategy.Strategy, pool bool) *strategy.Result {
	t.Helper()
	in := input(t)
	in.Shape.Pool, in.Sources = pool, []string{"a"}
	r, err := new(strategy.Runner).Run(plan, in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// overDP balances rows over dp by a cost.
func overDP(m cost.Model) strategy.Strategy {
	return func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Distribute("dp", 1)
		g.Mix(nil)
		g.Cost(m)
		g.Balance(strategy.Balance{})
		return g.Plan()
	}
}

// last moves the first sample to the last row, if it has room.
type last struct{}

func (last) Name() string { return "last" }

func (last) Assign(in strategy.RowSamples) ([]int32, error) {
	row, tokens := slices.Clone(in.Row), in.Tokens[0]
	for i, r := range row {
		if int(r) == in.Rows-1 {
			tokens += in.Tokens[i]
		}
	}
	if tokens <= in.Capacity {
		row[0] = int32(in.Rows - 1)
	}
	return row, nil
}

func must(t *testing.T, text string) cost.Model {
	t.Helper()
	m, err := cost.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSameCalls: a spec plans what the same calls in Go plan.
func TestSameCalls(t *testing.T) {
	quadratic, encoder, expression := must(t, "quadratic(a=24576, b=1)"), must(t, "encoder(layers=39, hidden=1408)"), must(t, "tokens*tokens")
	for spec, calls := range map[string]strategy.Strategy{
		"": strategy.InOrder,
		`strategy:
  - distribute: {axis: dp, group_size: 1}
  - cost: {model: quadratic, a: 24576, b: 1}
  - balance: {method: auto, level: interleaved, keep_order: false}
  - broadcast_at: tp
  - graph: image
  - distribute: world
  - cost: {model: encoder, layers: 39, hidden: 1408}
  - balance: auto
`: func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(s.Schedule())
			g.Distribute("dp", 1)
			g.Cost(quadratic)
			g.Balance(strategy.Balance{Method: "auto", Level: strategy.Interleaved})
			g.BroadcastAt("tp")
			v := s.Graph(dgraph.Image)
			v.Distribute("world", 1)
			v.Cost(encoder)
			v.Balance(strategy.Balance{Method: "auto"})
			return v.Plan()
		},
		"strategy: [{mix: {}}, distribute: {group_size: 2}, cost: tokens*tokens, balance: kk]": func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			g.Distribute("dp", 2)
			g.Cost(expression)
			g.Balance(strategy.Balance{Method: "kk"})
			return g.Plan()
		},
		"output: {broadcast_at: tp}\nstrategy: [distribute: dp, cost: {expression: tokens*tokens}, {balance: {level: intra, keep_order: true}}]": func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			g.Distribute("dp", 1)
			g.Cost(expression)
			g.BroadcastAt("tp")
			return g.Plan()
		},
		"output: {broadcast_at: tp}\nstrategy: [graph: image, distribute: cp, balance: {keep_order: true}]": func(s *strategy.Step) error {
			v := s.Graph(dgraph.Image)
			v.Mix(nil)
			v.Distribute("cp", 1)
			g := s.Graph(dgraph.Text)
			g.Distribute("dp", 1)
			g.BroadcastAt("tp")
			return v.Plan()
		},
		"output: {format: megatron-thd}\nstrategy: [distribute: {axis: cp, group_size: 3, last_group: smaller}, cost: tokens*tokens, balance: {level: interleaved, row_method: last}]": func(s *strategy.Step) error {
			g := s.Graph(dgraph.Text)
			g.Mix(nil)
			g.Distribute("cp", 3, mesh.SmallerLast)
			g.Cost(expression)
			g.Balance(strategy.Balance{Level: strategy.Interleaved, Rows: last{}})
			return g.Plan()
		},
		"strategy: [distribute: dp, cost: tokens*tokens, balance: auto, graph: {of: text, sources: a}, cost: {model: quadratic, a: 24576, b: 1}]": func(s *strategy.Step) error {
			s.Graph(dgraph.Text, "a").Cost(quadratic)
			return overDP(expression)(s)
		},
	} {
		job := load(t, spec)
		plan, err := (compile.Registry{RowMethods: strategy.RowMethods{"last": last{}}}).Compile(job)
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		if got, want := run(t, plan, job.Pool()), run(t, calls, job.Pool()); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the spec plans\n%+v, the calls\n%+v", spec, got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	job := load(t, "strategy: shortest")
	if _, err := (compile.Registry{}).Compile(job); err == nil || !strings.Contains(err.Error(), `nothing is registered as "shortest"`) {
		t.Fatalf("got %v", err)
	}
	called := false
	names := compile.Registry{Strategies: strategy.Set{"shortest": func(s *strategy.Step) error { called = true; return strategy.InOrder(s) }}}
	plan, err := names.Compile(job)
	if err != nil {
		t.Fatal(err)
	}
	if run(t, plan, false); !called {
		t.Error("another strategy was called")
	}
}

// TestCosts: what is wrong with a cost is found when the spec is read, and when a job
// that nobody checked is compiled.
func TestCosts(t *testing.T) {
	const spec = "strategy: [distribute: dp, cost: qadratic, balance: auto]"
	_, findings := jobspec.Parse("f", []byte(head+spec), "", jobspec.CheckCost(compile.CheckCost))
	if len(findings) != 1 || findings[0].Line != 6 || findings[0].Field != "strategy[1].cost" || !strings.Contains(findings[0].Message, "quadratic") {
		t.Errorf("got %+v", findings)
	}
	job, _ := jobspec.Parse("f", []byte(head+spec), "")
	if _, err := (compile.Registry{}).Compile(job); err == nil || fault.ClassOf(err) != fault.User || !strings.HasPrefix(err.Error(), "strategy[1]: cost") {
		t.Errorf("got %v", err)
	}
}

// TestNames: names that the program does not know are found when the spec is read.
func TestNames(t *testing.T) {
	names := compile.Registry{Strategies: strategy.Set{"shortest": strategy.InOrder}}
	if err := names.Check(); err != nil {
		t.Fatal(err)
	}
	_, findings := jobspec.Parse("f", []byte(head+"mix: {feedback: expo}\nstrategy: shotest"), "", names.CheckNames())
	if len(findings) != 2 || findings[0].Line != 6 || findings[0].Field != "mix.feedback.policy" || !strings.Contains(findings[0].Message, "exponential") ||
		findings[1].Line != 7 || !strings.Contains(findings[1].Message, `did you mean "shortest"`) {
		t.Errorf("got %+v", findings)
	}
	if _, findings := jobspec.Parse("f", []byte(head+"mix: {feedback: exponential}\nstrategy: shortest"), "", names.CheckNames()); findings != nil {
		t.Errorf("got %v", findings)
	}
	wrong := compile.Registry{Policies: feedback.Set{"none": nil}}
	if err := wrong.Check(); fault.ClassOf(err) != fault.User || err == nil {
		t.Errorf("got %v", err)
	}
}
