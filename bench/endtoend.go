package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/jobspec"
)

// The shape of a step: 256 Ki tokens to 8 ranks.
const endToEndSpec = `
name: bench
seed: 1
sources:
  - name: corpus
    files: %q
    transforms: [%s]
batch: {sequence_length: 4096, sequences: 64, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
resources: {loader_buffer: %s, constructor_buffer: %s}
`

// Budgets of the end-to-end scenarios, in the spec's form: peak memory is compared
// with them.
const (
	loaderBuffer      = "128MiB"
	constructorBuffer = "64MiB"
)

// Steps of one measurement: the pipeline is full after warmSteps, and the clock
// stops before anything drains.
const (
	warmSteps  = 60
	clockSteps = 300
)

// Names of the further measurements.
const (
	megabytes = "MB/s"
	allCPU    = "cpu s/M tokens"
	ranksCPU  = "of it ranks"
	idleCores = "idle cores"
	wireBytes = "wire B/token"
)

// endToEnd is one scenario from files to ranks.
type endToEnd struct {
	cfg   *config
	name  string
	job   *jobspec.Job
	spec  string // file
	files *files
	last  consumed
	peak  []float64 // resident bytes of the service at most, by run
}

func newEndToEnd(ctx context.Context, cfg *config, name, dir, column string, transforms ...string) (*endToEnd, error) {
	e := &endToEnd{cfg: cfg, name: name, spec: filepath.Join(cfg.dir, name+".yaml")}
	yaml := fmt.Sprintf(endToEndSpec, dir, strings.Join(transforms, ", "), loaderBuffer, constructorBuffer)
	if err := os.WriteFile(e.spec, []byte(yaml), 0o644); err != nil {
		return nil, err
	}
	var err error
	if e.job, err = jobspec.Load(e.spec); err != nil {
		return nil, err
	}
	e.files, err = openFiles(ctx, dir, column)
	return e, err
}

// service measures a fresh service. With -profile, the first one is profiled.
func (e *endToEnd) service(ctx context.Context, run int) (sample, error) {
	profile, err := e.cfg.profileOf(e.name, run)
	if err != nil {
		return sample{}, err
	}
	a := consumeArgs{Spec: e.spec, Profile: profile, Warm: warmSteps, Steps: clockSteps, Way: client.Way(e.cfg.way)}
	got, err := a.run(ctx, func(service, _ *process) error {
		m, err := memoryOf(service.pid())
		e.peak = append(e.peak, float64(m.Peak))
		return err
	})
	if err != nil {
		return sample{}, err
	}
	e.last = got
	return sampleOf(got), nil
}

// ranks measures a fresh service with ranks in Python, by a way.
func (e *endToEnd) ranks(way client.Way) func(context.Context, int) (sample, error) {
	return func(ctx context.Context, _ int) (sample, error) {
		a := consumeArgs{Spec: e.spec, Warm: warmSteps, Steps: clockSteps, Way: way, Python: e.cfg.python}
		got, err := a.run(ctx, nil)
		if err != nil {
			return sample{}, err
		}
		got.Tokens, got.Bytes = e.last.Tokens, e.last.Bytes // the same steps, which ranks in Python do not count
		return sampleOf(got), nil
	}
}

// inPython are the measurements of ranks in Python, if there is one.
func (e *endToEnd) inPython() []measurement {
	if e.cfg.python == "" {
		return nil
	}
	return []measurement{
		{"end to end, 8 ranks in Python", e.ranks(client.Way(e.cfg.way))},
		{"the same by a call for each step", e.ranks(client.WayCalls)},
	}
}

// sampleOf is a run as the tables have it.
func sampleOf(got consumed) sample {
	tokens := float64(got.Tokens) / 1e6
	return sample{tokens / got.Seconds, map[string]float64{
		megabytes: float64(got.Bytes) / 1e6 / got.Seconds,
		allCPU:    (got.ServiceCPU + got.RanksCPU) / tokens,
		ranksCPU:  got.RanksCPU / tokens,
		idleCores: got.Idle / got.Seconds,
		wireBytes: float64(got.Received) / float64(got.Tokens),
	}}
}

// bare measures gRPC alone, moving batches of the sizes of the service's last run
// as its trainers hold them: ids and positions in their delivered width.
func (e *endToEnd) bare(ctx context.Context, _ int) (sample, error) {
	moved, err := bareRun(ctx, e.last.Batches, clockSteps)
	if err != nil {
		return sample{}, err
	}
	size := 0.0
	for _, n := range e.last.Batches {
		size += float64(n) * clockSteps
	}
	tokens := size * float64(e.last.Tokens) / float64(e.last.Bytes) / 1e6
	return sample{tokens / moved.Seconds, map[string]float64{
		megabytes: size / 1e6 / moved.Seconds,
		allCPU:    (moved.ServiceCPU + moved.RanksCPU) / tokens,
		ranksCPU:  moved.RanksCPU / tokens,
		idleCores: moved.Idle / moved.Seconds,
		wireBytes: size / tokens / 1e6,
	}}, nil
}

// whole measures a pass over the files in this process. MB/s count size.
func whole(tokens int64, size int64, pass func(context.Context) (float64, error)) func(context.Context, int) (sample, error) {
	return func(ctx context.Context, _ int) (sample, error) {
		runtime.GC() // garbage of an earlier pass is not this one's work
		before := selfCPU()
		seconds, err := pass(ctx)
		million := float64(tokens) / 1e6
		return sample{million / seconds, map[string]float64{
			megabytes: float64(size) / 1e6 / seconds,
			allCPU:    (selfCPU() - before).Seconds() / million,
		}}, err
	}
}

// measurement is a row of a table.
type measurement struct {
	name string
	once func(ctx context.Context, run int) (sample, error)
}

// interleave runs all measurements in turn, cfg.runs times.
func (e *endToEnd) interleave(ctx context.Context, rows []measurement) error {
	results := make([]result, len(rows))
	for run := range e.cfg.runs {
		for i, row := range rows {
			s, err := row.once(ctx, run)
			if err != nil {
				return fmt.Errorf("%s: %w", row.name, err)
			}
			results[i].add(s)
		}
	}
	for i, row := range rows {
		results[i].Scenario, results[i].Name, results[i].Unit = e.name, row.name, "M tokens/s"
	}
	if err := e.cfg.report.table(results, megabytes, allCPU, ranksCPU, idleCores, wireBytes); err != nil {
		return err
	}
	return e.reportPeak()
}

// reportPeak compares the service's peak memory with its budgets.
func (e *endToEnd) reportPeak() error {
	budget := float64(e.job.Resources.LoaderBuffer + e.job.Resources.ConstructorBuffer)
	peak := result{Scenario: e.name, Name: "service peak memory", Unit: "MiB", Less: true, Values: e.peak}
	for i := range peak.Values {
		peak.Values[i] /= 1 << 20
	}
	peak.summarize()
	e.cfg.report.note("Service peak memory: median %.0f, most %.0f MiB; budgets: loader %s + constructor %s = %.0f MiB.",
		peak.Median, slices.Max(peak.Values), loaderBuffer, constructorBuffer, budget/(1<<20))
	return e.cfg.report.json(&peak)
}

// serviceRun starts a service, feeds its ranks and returns their totals.
// look, if not nil, is called while both processes still run.
func serviceRun(ctx context.Context, spec, profile string, warm, steps int, look func(service, ranks *process) error) (consumed, error) {
	return consumeArgs{Spec: spec, Profile: profile, Warm: warm, Steps: steps}.run(ctx, look)
}

// run is serviceRun with what ranks are like.
func (a consumeArgs) run(ctx context.Context, look func(service, ranks *process) error) (consumed, error) {
	var got consumed
	service, err := start(ctx, "serve", serveArgs{Spec: a.Spec, Profile: a.Profile})
	if err != nil {
		return got, err
	}
	defer service.stop()
	a.Service = service.pid()
	if a.Profile != "" {
		a.Profile += ".ranks"
	}
	if err := service.receive(&a.Address); err != nil {
		return got, err
	}
	ranks, err := start(ctx, "consume", a)
	if err != nil {
		return got, err
	}
	defer ranks.stop()
	if err := ranks.receive(&got); err != nil || look == nil {
		return got, err
	}
	return got, look(service, ranks)
}

// benchText goes from raw text to ranks: read, parse, tokenize, pack, deliver.
func benchText(ctx context.Context, cfg *config) error {
	c, err := readCorpus(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(cfg.dir, "text")
	if err := c.writeText(dir); err != nil {
		return err
	}
	e, err := newEndToEnd(ctx, cfg, "text", dir, "text", `text: "{text}"`, c.tokenizeStep(), "append_eod: {}")
	if err != nil {
		return err
	}
	chain, err := e.files.load(ctx, e.job.Sources[0], e.job.Batch.SequenceLength)
	if err != nil {
		return err
	}
	_, tokens, err := chain.run()
	if err != nil {
		return err
	}
	size := e.files.bytes()
	cfg.report.title("Raw text to ranks: %.0f MB of JSONL, %s, %s", float64(size)/1e6, c.origin, c.tokenize.Encoding)
	return e.interleave(ctx, append([]measurement{
		{"end to end, 8 ranks", e.service},
		{"transform chain alone, records in memory", whole(tokens, size, func(context.Context) (float64, error) {
			seconds, _, err := chain.run()
			return seconds, err
		})},
		{"read and decode alone", whole(tokens, size, e.files.decode)},
		{"read alone", whole(tokens, size, e.files.read)},
		{"gRPC alone, the ranks' bytes", e.bare},
	}, e.inPython()...))
}

// benchParquet goes from token ids to ranks: read, decode, pack, deliver.
func benchParquet(ctx context.Context, cfg *config) error {
	c, err := readCorpus(ctx)
	if err != nil {
		return err
	}
	rows, err := c.tokens()
	if err != nil {
		return err
	}
	for _, codec := range []string{"plain", "zstd"} {
		dir := filepath.Join(cfg.dir, codec)
		tokens, err := writeTokens(dir, rows, codec == "zstd")
		if err != nil {
			return err
		}
		e, err := newEndToEnd(ctx, cfg, "parquet-"+codec, dir, "input_ids", "tokens: input_ids")
		if err != nil {
			return err
		}
		size := e.files.bytes()
		cfg.report.title("Tokenized Parquet to ranks: %.0f MB of list<int32>, %s, %s ids", float64(size)/1e6, codec, c.tokenize.Encoding)
		err = e.interleave(ctx, append([]measurement{
			{"end to end, 8 ranks", e.service},
			{"read and decode alone", whole(tokens, size, e.files.decode)},
			{"read alone", whole(tokens, size, e.files.read)},
			{"gRPC alone, the ranks' bytes", e.bare},
		}, e.inPython()...))
		if err != nil {
			return err
		}
	}
	return nil
}
