package strategy_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/mesh"
	"github.com/millrace-data/millrace/planner/strategy"
)

// cluster is a step of about 300,000 samples, with as many images, for 4096 ranks.
func cluster(b *testing.B) (batch, strategy.Input) {
	step := draw(b, 9, 8192, 32768, 97, true)
	in := step.input(mesh.Sizes{DP: 512, CP: 1, PP: 2, TP: 4}, 1)
	b.Logf("%d samples, %d images, %d ranks", step.buf.Len(), step.buf.Images(), in.Tree.World())
	return step, in
}

func BenchmarkPlan(b *testing.B) {
	_, in := cluster(b)
	llm, vit := model(b, "llama-12b"), model(b, "vit-2b")
	for _, bench := range []struct {
		name string
		plan strategy.Strategy
	}{
		{"in order", strategy.InOrder},
		{"keep order with costs", text(llm, 1, strategy.Balance{Level: strategy.KeepOrder})},
		{"inter", text(llm, 1, strategy.Balance{})},
		{"inter in groups", text(llm, 16, strategy.Balance{})},
		{"intra", text(llm, 1, strategy.Balance{Level: strategy.Intra})},
		{"interleaved", text(llm, 1, strategy.Balance{Level: strategy.Interleaved})},
		{"interleaved and images", vision(llm, vit, "world", 1, strategy.Balance{Level: strategy.Interleaved})},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var runner strategy.Runner
			r, err := runner.Run(bench.plan, in) // grows the scratch
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if r, err = runner.Run(bench.plan, in); err != nil {
					b.Fatal(err)
				}
			}
			for _, m := range r.Modules {
				b.ReportMetric(m.Buckets.Imbalance(), m.Name+"-max/mean")
				if m.Lockstep > 0 {
					b.ReportMetric(float64(m.Lockstep)/m.Buckets.Mean(), "lockstep/mean")
				}
			}
		})
	}
}

// manySources is a step of 306,000 short samples of 306 sources in 4096 rows.
func manySources(b *testing.B) strategy.Input {
	const rows, length, sources, block = 4096, 8192, 306, 8000
	rng, buf, seen := rand.New(rand.NewPCG(1, 2)), &dgraph.Buffer{}, [sources]int{}
	for tokens := 0; tokens < rows*length; {
		source := rng.IntN(sources)
		at := source*97 + seen[source] // some are in the middle of a block
		seen[source]++
		buf.Source, buf.Seq = append(buf.Source, int32(source)), append(buf.Seq, int64(at/block))
		buf.Index, buf.Tokens = append(buf.Index, int32(at%block)), append(buf.Tokens, 1+int32(109*rng.ExpFloat64()))
		tokens += int(buf.Tokens[buf.Len()-1])
	}
	rowOf, _, err := new(balance.Packer).Pack(buf.Tokens, 0, length, rows, 32)
	if err != nil {
		b.Fatal(err)
	}
	shape := strategy.Shape{Rows: rows, SequenceLength: length, MicrobatchSize: 1, Packing: true}
	return batch{buf, rowOf, shape}.input(mesh.Sizes{DP: 256, CP: 1, PP: 4, TP: 4}, 1)
}

// BenchmarkRegistered plans rows in order by a strategy of the user's, whose plan is checked, and cuts the plan for each of
// 16 constructors.
func BenchmarkRegistered(b *testing.B) {
	in := manySources(b)
	plan, err := strategy.Set{"own": text(model(b, "quadratic"), 1, strategy.Balance{Level: strategy.KeepOrder})}.Named("own")
	if err != nil {
		b.Fatal(err)
	}
	var runner strategy.Runner
	r, err := runner.Run(plan, in)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("plan", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := runner.Run(plan, in); err != nil {
				b.Fatal(err)
			}
		}
	})
	const constructors = 16
	buckets := make([][]uint32, constructors)
	for d := range uint32(256) {
		buckets[d%constructors] = append(buckets[d%constructors], d)
	}
	b.Run("parts", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			for _, mine := range buckets {
				r.Part(mine)
			}
		}
	})
}

// BenchmarkCosts gives text its costs, and rows theirs.
func BenchmarkCosts(b *testing.B) {
	_, in := cluster(b)
	draw := in.Draw
	in.Draw = func(shares []uint64) (*dgraph.Buffer, []int32, error) {
		buf, rowOf, err := draw(shares)
		return &dgraph.Buffer{Source: buf.Source, Seq: buf.Seq, Index: buf.Index, Tokens: buf.Tokens}, rowOf, err
	}
	for _, name := range []string{"tokens", "llama-12b", "if(tokens > 4096, tokens * tokens / 64, tokens * 40)"} {
		b.Run(name, func(b *testing.B) {
			var runner strategy.Runner
			for b.Loop() {
				if _, err := runner.Run(text(model(b, name), 1, strategy.Balance{Level: strategy.KeepOrder}), in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkParts cuts a plan for each of 64 constructors.
func BenchmarkParts(b *testing.B) {
	step, in := cluster(b)
	r, err := new(strategy.Runner).Run(vision(model(b, "llama-12b"), model(b, "vit-2b"), "world", 1, strategy.Balance{}), in)
	if err != nil {
		b.Fatal(err)
	}
	const constructors = 64
	buckets := make([][]uint32, constructors)
	for d := range uint32(512) {
		buckets[d%constructors] = append(buckets[d%constructors], d)
	}
	b.Run(fmt.Sprintf("%d constructors", constructors), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			again := *r // without what the calls before left
			for _, mine := range buckets {
				again.Part(mine)
			}
		}
	})
	b.Run("graph", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.Graph(dgraph.Text, step.buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
