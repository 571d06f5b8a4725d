package cost_test

import (
	"testing"

	"github.com/millrace-data/millrace/planner/cost"
)

// BenchmarkCost is the cost of one sample, as the planner asks for it: through the
// interface, for lengths that differ.
func BenchmarkCost(b *testing.B) {
	square := cost.Func(func(s cost.Sample) int64 { return s.Tokens*s.Tokens + 24576*s.Tokens })
	for _, bench := range []struct{ name, spec string }{
		{"func", ""},
		{"quadratic", "quadratic"},
		{"transformer", "llama-12b"},
		{"field", "tokens"},
		{"expr_quadratic", "tokens * tokens + 24576 * tokens"},
		{"expr_horner", "tokens * (tokens + 24576)"},
		{"expr_decimal", "0.5 * tokens * tokens + 1.25 * tokens"},
		{"expr_piecewise", "if(tokens > 4096, tokens * tokens, 4096 * tokens) + 1280 * patches"},
		{"expr_divide", "(tokens + 127) / 128 * 128"},
	} {
		var model cost.Model = square
		if bench.spec != "" {
			model = parse(b, bench.spec)
		}
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			var sum, i int64
			for b.Loop() {
				i++
				units, err := model.Cost(cost.Sample{Tokens: 64 + i&0x3fff, Patches: i & 0xff})
				if err != nil {
					b.Fatal(err)
				}
				sum += units
			}
			if sum <= 0 {
				b.Fatal("no cost")
			}
		})
	}
}

func parse(tb testing.TB, spec string) cost.Model {
	tb.Helper()
	m, err := cost.Parse(spec)
	if err != nil {
		tb.Fatal(err)
	}
	return m
}
