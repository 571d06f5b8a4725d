package strategy_test

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// exampleInput is a step of eight packed rows for four ranks: the core gives such.
// Rows of one long sample cost more than those of several short ones.
func exampleInput() strategy.Input {
	tree, err := mesh.New(mesh.Sizes{DP: 2, CP: 1, PP: 1, TP: 2, VPP: 1, EP: 1})
	if err != nil {
		panic(err)
	}
	buf, rowOf := &dgraph.Buffer{ImageOffsets: []int32{0}}, []int32(nil)
	for row, lengths := range [][]int32{{1000}, {500, 500}, {1000}, {250, 250, 250, 250}, {1000}, {500, 500}, {1000}, {250, 250, 250, 250}} {
		for _, n := range lengths {
			buf.Source, buf.Seq, buf.Index = append(buf.Source, 0), append(buf.Seq, 0), append(buf.Index, int32(buf.Len()))
			buf.Tokens, rowOf = append(buf.Tokens, n), append(rowOf, int32(row))
			if n == 1000 { // two images, a large one and a small one
				buf.Patches = append(buf.Patches, 1024, 64)
			}
			buf.ImageOffsets = append(buf.ImageOffsets, int32(len(buf.Patches)))
		}
	}
	return strategy.Input{
		Tree: tree, Shape: strategy.Shape{Rows: 8, SequenceLength: 1000, MicrobatchSize: 1, Packing: true},
		Draw: func([]uint64) (*dgraph.Buffer, []int32, error) { return buf, rowOf, nil },
	}
}

func parse(text string) cost.Model {
	model, err := cost.Parse(text)
	if err != nil {
		panic(err)
	}
	return model
}

// The strategy of a language model: rows of like cost for all ranks.
func Example_text() {
	model := parse("quadratic(a=100, b=1)")
	llm := func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", 1)
		g.Cost(model)
		g.Balance(strategy.Balance{Method: "auto", Level: strategy.Interleaved})
		g.BroadcastAt("tp")
		return g.Plan()
	}
	result, err := new(strategy.Runner).Run(llm, exampleInput())
	if err != nil {
		fmt.Println(err)
		return
	}
	// In the order of packing rank 0 would get all the long samples.
	fmt.Printf("%d microbatches for each rank, tensors fetched along %v by rank 0 only\n", result.Microbatches, result.BroadcastAt)
	fmt.Printf("largest rank over mean: %.2f\n", result.Modules[0].Buckets.Imbalance())
	// Output:
	// 4 microbatches for each rank, tensors fetched along [tp] by rank 0 only
	// largest rank over mean: 1.00
}

// The strategy of a vision-language model takes five lines more: the encoder runs on
// every rank by itself, so images are balanced over all of them.
func Example_visionLanguage() {
	backbone, encoder := parse("llama-12b"), parse("vit-2b")
	vlm := func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", 1)
		g.Cost(backbone)
		g.Balance(strategy.Balance{Method: "auto"})
		g.BroadcastAt("tp")

		v := s.Graph(dgraph.Image)
		v.Distribute("world", 1)
		v.Cost(encoder)
		v.Balance(strategy.Balance{Method: "auto"})
		return v.Plan()
	}
	result, err := new(strategy.Runner).Run(vlm, exampleInput())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range result.Modules {
		fmt.Printf("%s over %s: %d in %d, largest over mean %.2f\n", m.Name, m.Axis, m.Buckets.Items, m.Buckets.Bins, m.Buckets.Imbalance())
	}
	// Output:
	// text over dp: 8 in 2, largest over mean 1.00
	// image over world: 8 in 4, largest over mean 1.00
}

// ZigZag deals items to bins by falling cost, back and forth.
type ZigZag struct{}

func (ZigZag) Name() string { return "zig-zag" }

func (ZigZag) Assign(costs []int64, bins int) ([][]int32, error) {
	order := make([]int32, len(costs))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(cmp.Compare(costs[b], costs[a]), cmp.Compare(a, b)) })
	out := make([][]int32, bins)
	for k, item := range order {
		bin := k % bins
		if k/bins%2 == 1 {
			bin = bins - 1 - bin
		}
		out[bin] = append(out[bin], item)
	}
	return out, nil
}

// OneExchange gives the costliest row a cheaper sample of the same length for one of its own.
type OneExchange struct{}

func (OneExchange) Name() string { return "one-exchange" }

func (OneExchange) Assign(in strategy.RowSamples) ([]int32, error) {
	row, cost := slices.Clone(in.Row), make([]int64, in.Rows)
	for i, r := range row {
		cost[r] += in.Costs[i]
	}
	most := int32(slices.Index(cost, slices.Max(cost)))
	for i, r := range row { // one exchange of samples of a length, which keeps every row's tokens
		for k, other := range row {
			if r == most && other != r && in.Tokens[i] == in.Tokens[k] && in.Costs[k] < in.Costs[i] {
				row[i], row[k] = other, r
				return row, nil
			}
		}
	}
	return row, nil
}

// A row method of one's own is asked at the level inside microbatches, here with a cost that
// one source has to itself. Breaking the token cap would be an error that names the row.
func Example_rowMethod() {
	plan := func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", 1)
		g.Cost(parse("linear"))
		s.Graph(dgraph.Text, "code").Cost(parse("linear(a=3)"))
		g.Balance(strategy.Balance{Level: strategy.Interleaved, Rows: OneExchange{}})
		return g.Plan()
	}
	in := exampleInput()
	in.Sources = []string{"web", "code"}
	result, err := new(strategy.Runner).Run(plan, in)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range result.Modules {
		fmt.Printf("%s costs %d by %s\n", m.Name, m.Buckets.Total, m.Model)
	}
	// Output:
	// text costs 8000 by linear(a=1), linear(a=3) of code
	// text of code costs 0 by linear(a=3)
}

// Every rank of DP x CP has rows of its own, in groups of three ranks and one.
func Example_rowsAtCP() {
	plan := func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("cp", 3, mesh.SmallerLast)
		g.Cost(parse("quadratic(a=100, b=1)"))
		g.Balance(strategy.Balance{})
		return g.Plan()
	}
	in := exampleInput()
	in.Shape.Pool = true // as the core says it of a job with `distribute: cp`
	in.Tree, _ = in.Tree.Change(mesh.Sizes{DP: 2, CP: 2, TP: 1})
	result, err := new(strategy.Runner).Run(plan, in)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d ranks of %d microbatches, largest over mean %.2f\n", result.Ranks(), result.Microbatches, result.Modules[0].Buckets.Imbalance())
	// Output:
	// 4 ranks of 2 microbatches, largest over mean 1.08
}

// A method of one's own has a name and says which items share a bin. Losing an item, or
// giving ranks unequal numbers of rows, would be an error that names it.
func Example_ownMethod() {
	model := parse("quadratic(a=100, b=1)")
	plan := func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", 1)
		g.Cost(model)
		g.Balance(strategy.Balance{Custom: ZigZag{}})
		return g.Plan()
	}
	result, err := new(strategy.Runner).Run(plan, exampleInput())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("rank of each row", result.Rank, "microbatch", result.Microbatch)
	fmt.Printf("largest rank over mean: %.2f\n", result.Modules[0].Buckets.Imbalance())
	// Output:
	// rank of each row [0 0 1 1 1 1 0 0] microbatch [0 2 0 3 1 2 1 3]
	// largest rank over mean: 1.00
}
