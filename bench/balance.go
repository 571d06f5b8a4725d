package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/millrace-data/millrace/balance"
	"github.com/millrace-data/millrace/bench/internal/trainsim"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/cost"
)

const (
	balanceSteps = 20    // measured of each job, after one
	balanceBlock = 20000 // samples
)

// evenJob is a job whose rows are evened, on the planner's core.
type evenJob struct {
	name   string
	draw   func(*rand.Rand) int32
	length int // tokens of a row
	rows   int
	ranks  int
	cost   string
	split  int // batch.context_split
	fills  []int
}

// evenLine is what the ranks of a job get, the mean of its steps.
type evenLine struct {
	fill, ranks, slots, leastRanks, leastSlots, alone, ms float64
	samples                                               int
}

// benchBalance prints how even the steps are that a planner makes, by the fill that the job asks
// for: as a table for docs/benchmarks.md. The fill that the preflight recommends is in bold.
func benchBalance(_ context.Context, cfg *config) error {
	jobs, err := evenJobs()
	if err != nil {
		return err
	}
	cfg.report.title("Steps as planned: %d of each, load %s", balanceSteps, load())
	cfg.report.note("| lengths, cost | rows x tokens, ranks | `fill` | full | tokens given up | ranks | slots | least | partition alone | samples | ms |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	for _, j := range jobs {
		lines, best, err := j.compare()
		if err != nil {
			return err
		}
		full := slices.MaxFunc(lines, func(a, b evenLine) int { return cmp.Compare(a.fill, b.fill) }).fill
		for i, l := range lines {
			name := strconv.Itoa(preview.Fills[i])
			if preview.Fills[i] == best {
				name = "**" + name + "**"
			} else if !slices.Contains(j.fills, preview.Fills[i]) {
				continue
			}
			cfg.report.note("| %s, %s | %d x %d, %d | %s | %.2f %% | %.1f %% | %.4f | %.4f | %.4f, %.4f | %.4f | %d | %.0f |",
				j.name, j.cost, j.rows, j.length, j.ranks, name, 100*l.fill, 100*(1-l.fill/full), l.ranks, l.slots, l.leastRanks, l.leastSlots, l.alone, l.samples, l.ms)
		}
	}
	return nil
}

// compare runs a job with each fill that the preflight compares, and returns the one that it recommends.
func (j evenJob) compare() (lines []evenLine, best int, err error) {
	var all []preview.FillReport
	for _, fill := range preview.Fills {
		l, err := j.run(fill)
		if err != nil {
			return nil, 0, fmt.Errorf("%s, fill %d: %w", j.name, fill, err)
		}
		slowest := l.ranks
		if j.split > 0 { // ranks wait for each other in each microbatch
			slowest = l.slots
		}
		lines, all = append(lines, l), append(all, preview.FillReport{Fill: fill, Tokens: l.fill, Slowest: slowest})
	}
	return lines, preview.BestFill(all), nil
}

// spec is the job's, whose source is never opened.
func (j evenJob) spec(fill int) string {
	split, axis := "", "dp"
	if j.split > 0 {
		split, axis = fmt.Sprintf(", context_split: %d}\noutput: {format: megatron-thd", j.split), "cp"
	}
	return fmt.Sprintf("name: balance\nseed: 7\nsources: [{name: s, files: s.jsonl}]\nbatch: {sequence_length: %d, sequences: %d, fill: %d%s}\ntopology: {dp: %d}\nstrategy: [{distribute: %s}, {cost: \"%s\"}, {balance: {level: interleaved}}]\n",
		j.length, j.rows, fill, split, j.ranks, axis, j.cost)
}

func (j evenJob) run(fill int) (l evenLine, err error) {
	job, findings := jobspec.Parse("balance.yaml", []byte(j.spec(fill)), "")
	if err := findings.Err(); err != nil {
		return l, err
	}
	cfg, err := compile.Plan(job, compile.Registry{})
	if err != nil {
		return l, err
	}
	cfg.Ahead, cfg.Window = 1, balanceBlock
	cfg.Sources = []plan.Source{{Name: "s", Blocks: 1 << 20, Longest: int32(job.LongestSample())}}
	model, err := cost.Parse(j.cost)
	if err != nil {
		return l, err
	}
	core := plan.New(cfg)
	effects := core.Start()
	for n := range int64(balanceSteps + 1) {
		from := time.Now()
		if n > 0 {
			effects = core.Apply(plan.Acked{Step: n})
		}
		step, inside := settle(core, effects, j.lengths)
		took := time.Since(from) - inside
		if step == nil {
			return l, fmt.Errorf("step %d was not planned", n)
		}
		if n > 0 {
			if err := l.add(step, model, took); err != nil {
				return l, err
			}
		}
	}
	return l, nil
}

// add adds a step.
func (l *evenLine) add(s *plan.Step, model cost.Model, took time.Duration) error {
	m := s.Placed.Modules[0]
	costs, rows := []int64(nil), make([]int64, len(s.Placed.Rank))
	for i, row := range s.Placed.RowOf {
		if row < 0 {
			continue
		}
		units, err := model.Cost(cost.Sample{Tokens: int64(s.Buffer.Tokens[i])})
		if err != nil {
			return err
		}
		costs, rows[row] = append(costs, units), rows[row]+units
	}
	leastRanks, leastSlots, err := trainsim.Least(s.Placed, rows, m.Buckets.Bins)
	if err != nil {
		return err
	}
	var b balance.Balancer
	alone, err := b.Partition(costs, balance.Options{Bins: m.Buckets.Bins})
	if err != nil {
		return err
	}
	q, err := b.Evaluate(costs, alone, balance.Options{Bins: m.Buckets.Bins})
	if err != nil {
		return err
	}
	const part = 1.0 / balanceSteps
	l.fill += part * float64(s.Filled) / (float64(s.Shape.Rows) * float64(s.Shape.SequenceLength))
	l.ranks += part * m.Buckets.Imbalance()
	l.slots += part * float64(m.Lockstep) / m.Buckets.Mean()
	l.leastRanks += part * leastRanks
	l.leastSlots += part * leastSlots
	l.alone += part * q.Imbalance()
	l.ms += part * took.Seconds() * 1000
	l.samples = len(costs)
	return nil
}

// lengths are the samples of a block.
func (j evenJob) lengths(w plan.Want) []int32 {
	rng := rand.New(rand.NewPCG(uint64(w.Seq), 17))
	lengths := make([]int32, balanceBlock)
	longest := int32(j.length * max(j.split, 1))
	for i := range lengths {
		lengths[i] = max(1, min(j.draw(rng), longest))
	}
	return lengths
}

// evenJobs are four shapes of lengths, real ones if there are any, and giants.
func evenJobs() ([]evenJob, error) {
	const cost7b, squares = "quadratic(a=24576, b=1)", "quadratic(a=0, b=1)"
	fills := []int{1000, 990, 975, 950, 900}
	jobs := []evenJob{
		{"lognormal", lognormalLength(8192), 32768, 512, 64, cost7b, 0, fills},
		{"vision-language", visionLength, 32768, 512, 64, cost7b, 0, fills},
		{"Pareto", paretoLength, 32768, 512, 64, cost7b, 0, fills},
		{"answers (RL)", answerLength, 32768, 512, 64, cost7b, 0, fills},
	}
	traces, err := lengthTraces()
	if err != nil {
		return nil, err
	}
	for _, tr := range traces {
		draw := func(rng *rand.Rand) int32 { return tr.lengths[rng.IntN(len(tr.lengths))] }
		jobs = append(jobs, evenJob{tr.name, draw, 32768, 256, 32, cost7b, 0, []int{1000, 975}})
		if tr.name == "OmniBal" { // five samples of four sizes in a row
			jobs = append(jobs, evenJob{tr.name, draw, 4096, 1024, 128, cost7b, 0, fills}, evenJob{tr.name, draw, 4096, 1024, 128, squares, 0, fills})
		}
	}
	for _, c := range []string{cost7b, squares} {
		jobs = append(jobs, evenJob{"lognormal with giants", lognormalLength(32768), 10240, 3072, 1024, c, 64, fills})
	}
	return jobs, nil
}

func lognormalLength(most float64) func(*rand.Rand) int32 {
	return func(rng *rand.Rand) int32 { return int32(min(max(1000*math.Exp(rng.NormFloat64()), 16), most)) }
}

// visionLength is an image, as patches, and its caption.
func visionLength(rng *rand.Rand) int32 {
	text := 1 + rng.IntN(64)
	if rng.IntN(10000) >= 9823 {
		text = 65 + int(rng.ExpFloat64()*40)
	}
	return int32(text) + int32(min(max(700*math.Exp(1.1*rng.NormFloat64()), 16), 16384))
}

func paretoLength(rng *rand.Rand) int32 {
	return int32(min(200*math.Pow(1-rng.Float64(), -1/1.2), 8192))
}

// answerLength is a prompt and an answer that was cut where it was too long.
func answerLength(rng *rand.Rand) int32 {
	answer := 800 * math.Exp(0.7*rng.NormFloat64()) * math.Exp(0.6*rng.NormFloat64())
	return 32 + rng.Int32N(480) + int32(min(max(answer, 8), 8192))
}

type lengthTrace struct {
	name    string
	lengths []int32
}

// lengthTraces are those of the shared data set; none if it is not there.
func lengthTraces() (all []lengthTrace, err error) {
	dir, ok := testdata.Find()
	if !ok {
		return nil, nil
	}
	dir = filepath.Join(dir, "traces")
	var packed []int32
	var tiles []struct {
		Tokens int32 `json:"token_num"`
	}
	if err := readJSONFile(filepath.Join(dir, "multipack", "testdata.json"), &packed); err != nil {
		return nil, err
	}
	if err := readJSONFile(filepath.Join(dir, "omnibal-vlm", "ai2d_train_12k_wh_token_lengths.json"), &tiles); err != nil {
		return nil, err
	}
	images := make([]int32, len(tiles))
	for i, x := range tiles {
		images[i] = x.Tokens
	}
	prompts, err := readRequests(filepath.Join(dir, "mooncake", "conversation_trace.jsonl"))
	if err != nil {
		return nil, err
	}
	chats, err := readColumn[int32](filepath.Join(dir, "azure", "AzureLLMInferenceTrace_conv.csv"), "ContextTokens")
	if err != nil {
		return nil, err
	}
	papers, err := readColumn[int32](filepath.Join(dir, "vidur", "arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv"), "num_total_tokens")
	if err != nil {
		return nil, err
	}
	var cut []int32 // as the rule for long samples does
	for _, n := range prompts {
		for ; n > 32768; n -= 32768 {
			cut = append(cut, 32768)
		}
		cut = append(cut, int32(n))
	}
	return []lengthTrace{{"multipack", packed}, {"OmniBal", images}, {"Mooncake", cut}, {"Azure", chats}, {"Vidur", papers}}, nil
}

func readJSONFile(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// readColumn reads a column of whole numbers.
func readColumn[T int32 | int64](path, column string) (lengths []T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	at := slices.Index(rows[0], column)
	if at < 0 {
		return nil, fmt.Errorf("reading %s: no column %s", path, column)
	}
	for _, row := range rows[1:] {
		n, err := strconv.ParseInt(row[at], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		lengths = append(lengths, T(n))
	}
	return lengths, nil
}
