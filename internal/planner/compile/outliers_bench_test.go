package compile_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

// BenchmarkOutliers plans steps with and without outliers that wait, and reports
// how long the slowest of 8 DP ranks takes over all steps against the mean one
// (ranks), and the same if ranks wait for each other after each microbatch
// (lockstep): 1 is ideal. Costs are 24576 s + s^2. Lengths are those of the
// mooncake trace, where it is there, and of a corpus of short documents with one
// in 400 that is long.
func BenchmarkOutliers(b *testing.B) {
	for _, corpus := range []struct {
		name    string
		lengths []int32
	}{{"mooncake", mooncake(b)}, {"few-giants", fewGiants()}} {
		if corpus.lengths == nil {
			continue
		}
		for _, level := range []string{"inter", "interleaved"} {
			for _, outliers := range []string{"", "32Ki", "{above: [32Ki, 64Ki, 96Ki], together: 8}", "[32Ki, 64Ki, 96Ki]"} {
				b.Run(fmt.Sprintf("%s/%s/%s", corpus.name, level, outliers), func(b *testing.B) {
					for b.Loop() {
						evennessOf(b, corpus.lengths, level, outliers)
					}
				})
			}
		}
	}
}

// evennessOf plans 200 steps of 32 rows of 128 Ki tokens.
func evennessOf(b *testing.B, lengths []int32, level, outliers string) {
	spec := `
name: bench
sources: [{name: s, files: s.txt}]
batch: {sequence_length: 128Ki, sequences: 32`
	if strings.HasPrefix(outliers, "[") {
		outliers = "{above: " + outliers + "}"
	}
	if outliers != "" {
		spec += ", outliers: " + outliers
	}
	spec += "}\ntopology: {dp: 8}\nstrategy: [distribute: dp, cost: {model: quadratic, a: 24576, b: 1}, balance: {level: " + level + "}]\n"
	job, findings := jobspec.Parse("bench.yaml", []byte(spec), "/")
	if err := findings.Err(); err != nil {
		b.Fatal(err)
	}
	cfg, err := compile.Plan(job, compile.Registry{})
	if err != nil {
		b.Fatal(err)
	}
	const block = 256
	cfg.Sources = []plan.Source{{Name: "s", Blocks: 1 << 30}}
	core := plan.New(cfg)
	steps, held, waited := 0, 0, 0
	var ranks, lockstep, mean, filled float64
	for queue := core.Start(); steps < 200; queue = queue[1:] {
		switch e := queue[0].(type) {
		case plan.Want:
			rng := rand.New(rand.NewPCG(1, uint64(e.Seq)))
			read := plan.BlockRead{Source: e.Source, Seq: e.Seq}
			for range block {
				read.Lengths = append(read.Lengths, lengths[rng.IntN(len(lengths))])
			}
			queue = append(queue, core.Apply(read)...)
		case plan.Publish:
			r, l, m := loads(e.Step)
			ranks, lockstep, mean = ranks+r, lockstep+l, mean+m
			filled += float64(e.Step.Filled) / float64(32*cfg.SequenceLength)
			steps++
			held, waited = max(held, len(e.Step.After.Held)), waited+len(e.Step.Waited)
			queue = append(queue, core.Apply(plan.Acked{Step: e.Step.Step + 1})...)
		case plan.Fail:
			b.Fatal(e.Err)
		}
	}
	b.ReportMetric(ranks/mean, "ranks")
	b.ReportMetric(lockstep/mean, "lockstep")
	b.ReportMetric(filled/float64(steps), "fill")
	b.ReportMetric(float64(held), "held")
	b.ReportMetric(float64(waited)/float64(steps), "waited/step")
}

// loads are the cost of a step on its slowest rank, that of the slowest of each
// microbatch, and that of a mean rank.
func loads(s *plan.Step) (ranks, lockstep, mean float64) {
	dp := s.Mesh.Sizes().DP
	rank, slot := make([]float64, dp), make([][]float64, s.Placed.Microbatches)
	for row := range s.Rows {
		m, r := s.Placed.Microbatch[row], s.Placed.Rank[row]
		if slot[m] == nil {
			slot[m] = make([]float64, dp)
		}
		for _, i := range s.Placed.Samples(row) {
			length := float64(s.Buffer.Tokens[i])
			cost := 24576*length + length*length
			rank[r] += cost
			slot[m][r] += cost
			mean += cost / float64(dp)
		}
	}
	for _, x := range rank {
		ranks = max(ranks, x)
	}
	for _, loads := range slot {
		most := 0.0
		for _, x := range loads {
			most = max(most, x)
		}
		lockstep += most
	}
	return ranks, lockstep, mean
}

// fewGiants are lognormal lengths of about 2000 tokens, and one in 400 uniform
// between 32 Ki and 128 Ki.
func fewGiants() (lengths []int32) {
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 40000 {
		n := int32(min(max(math.Exp(7+rng.NormFloat64()), 1), 16384))
		if i%400 == 0 {
			n = 1<<15 + rng.Int32N(1<<17-1<<15)
		}
		lengths = append(lengths, n)
	}
	return lengths
}

// mooncake are the lengths of a serving log with long contexts; nil where it is
// not there.
func mooncake(b *testing.B) (lengths []int32) {
	if _, ok := testdata.Find(); !ok {
		return nil
	}
	f, err := os.Open(filepath.Join(testdata.Dir(b), "traces", "mooncake", "conversation_trace.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for lines := json.NewDecoder(bufio.NewReader(f)); lines.More(); {
		var request struct {
			Input int32 `json:"input_length"`
		}
		if err := lines.Decode(&request); err != nil {
			b.Fatal(err)
		}
		if request.Input > 0 {
			lengths = append(lengths, min(request.Input, 1<<17))
		}
	}
	return lengths
}
