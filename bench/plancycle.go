package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The planning cycle's job: 4096 rows of 8192 tokens for 4096 ranks, about 300,000
// samples a step, from 306 sources.
const (
	cycleSources      = 306
	cycleRows         = 4096
	cycleMean         = 110  // tokens of a sample
	cycleBlock        = 8000 // samples: four chunks of 1 MiB of text
	cycleConstructors = 16
	cycleWarm         = 5 // steps before the clock starts
)

// cycleCase is a way to run the job. All give the same plans.
type cycleCase struct {
	name    string
	loaders int
	pause   time.Duration // a trainer's step: from the last part of a plan to its acknowledgement
}

// With a pause, the next step's blocks are known when it is planned. Without one,
// they arrive while it is: metadata, planning and parts are one after another.
var cycleCases = []cycleCase{
	{"64 loaders, paced", 64, 300 * time.Millisecond},
	{"306 loaders, paced", 306, 300 * time.Millisecond},
	{"306 loaders, closed loop", 306, 0},
}

// benchPlanCycle measures a planner's whole cycle: the metadata of blocks comes in,
// a step is drawn, packed, balanced twice, written to the step log, cut and sent. Planner and loaders
// are separate processes; the planner is the real one, loaders report synthetic lengths, and
// 16 constructors in this process acknowledge their parts. All plans of all cases
// must be equal, and so must those after a resume in the middle.
func benchPlanCycle(ctx context.Context, cfg *config) error {
	steps := max(30, cfg.runs)
	cfg.report.title("Planning cycle: %d ranks, %d sources, %d rows a step, %d constructors", cycleRows, cycleSources, cycleRows, cycleConstructors)
	var want []string
	for _, c := range cycleCases {
		job, err := startCycle(ctx, cfg, c)
		if err != nil {
			return err
		}
		run, err := job.run(ctx, cycleWarm+steps)
		if err = job.close(run, err); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if want == nil {
			want = run.hashes()
			if err := resumeCycle(ctx, cfg, c, run); err != nil {
				return err
			}
		}
		if at := firstDifference(want, run.hashes()); at >= 0 {
			return fmt.Errorf("%s: the plan of step %d differs from that of the first case", c.name, at)
		}
		if err := run.report(cfg, c); err != nil {
			return err
		}
	}
	cfg.report.note("Plans of %d steps were equal in all %d cases, and after a resume at step %d: %.16s.", len(want), len(cycleCases), len(want)/2, want[len(want)-1])
	return nil
}

// resumeCycle runs the second half of a run again, in a fresh service, from the
// token of its middle.
func resumeCycle(ctx context.Context, cfg *config, c cycleCase, first *cycleRun) error {
	c.pause = 0
	job, err := startCycle(ctx, cfg, c)
	if err != nil {
		return err
	}
	want := first.hashes()[first.tokenStep:]
	run, err := job.resume(ctx, first.token, len(want))
	if err = job.close(run, err); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if at := firstDifference(want, run.hashes()); at >= 0 {
		return fmt.Errorf("after a resume at step %d, the plan of step %d differs", first.tokenStep, first.tokenStep+at)
	}
	return nil
}

// firstDifference returns the first entry in which two lists differ, -1 if none.
func firstDifference(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// cycleStep is one step as observed. Times are of the machine's clock.
type cycleStep struct {
	begin   time.Time // the step before it was acknowledged
	end     time.Time // the last constructor had its part
	hash    string
	samples int
	bytes   int // of all parts
}

// cycleRun is the outcome of one run.
type cycleRun struct {
	steps     []cycleStep
	times     []cycleTimes  // of the planner, by step
	cpu       time.Duration // of the planner, over the measured steps
	stolen    time.Duration // core time that the host took in them
	loaded    cycleLoaded
	token     []byte // of the middle
	tokenStep int
}

func (r *cycleRun) hashes() (hashes []string) {
	for _, s := range r.steps {
		hashes = append(hashes, s.hash)
	}
	return hashes
}

// report prints the phases of the measured steps. What is ahead of a cycle is done while
// trainers work on the step before.
func (r *cycleRun) report(cfg *config, c cycleCase) error {
	phases := []struct {
		name string
		of   func(s cycleStep, m cycleTimes) time.Duration
	}{
		{"whole cycle", func(s cycleStep, m cycleTimes) time.Duration { return s.end.Sub(s.begin) }},
		{"whole cycle and drawing ahead of it", func(s cycleStep, m cycleTimes) time.Duration {
			drawn, _ := split(s.begin, m.Draws...)
			placed, _ := split(s.begin, m.Placed)
			return drawn + placed + s.end.Sub(s.begin)
		}},
		{"ahead of the cycle, mix and packing", func(s cycleStep, m cycleTimes) time.Duration { ahead, _ := split(s.begin, m.Draws...); return ahead }},
		{"ahead of the cycle, graph, cost, balance", func(s cycleStep, m cycleTimes) time.Duration { ahead, _ := split(s.begin, m.Placed); return ahead }},
		{"in the cycle, mix and packing", func(s cycleStep, m cycleTimes) time.Duration { _, late := split(s.begin, m.Draws...); return late }},
		{"in the cycle, graph, cost, balance", func(s cycleStep, m cycleTimes) time.Duration { _, late := split(s.begin, m.Placed); return late }},
		{"in the cycle, before that: acknowledgements, blocks", func(s cycleStep, m cycleTimes) time.Duration {
			_, drawn := split(s.begin, m.Draws...)
			_, placed := split(s.begin, m.Placed)
			return max(m.Placed.To.Sub(s.begin), 0) - drawn - placed
		}},
		{"cut, encode, send", func(s cycleStep, m cycleTimes) time.Duration {
			return min(s.end.Sub(m.Placed.To), s.end.Sub(s.begin))
		}},
		{"graph, cost, balance of rows", func(_ cycleStep, m cycleTimes) time.Duration { return m.Rows.To.Sub(m.Rows.From) }},
		{"beside it, balance of 4096 ranks", func(_ cycleStep, m cycleTimes) time.Duration { return m.Second.To.Sub(m.Second.From) }},
	}
	var results []result
	for _, p := range phases {
		res := result{Scenario: "plancycle", Name: c.name + ": " + p.name, Unit: "ms a step", Less: true}
		var took []float64
		for i, s := range r.steps[cycleWarm:] {
			took = append(took, p.of(s, r.times[cycleWarm+i]).Seconds()*1000)
		}
		slices.Sort(took)
		for _, ms := range took {
			res.add(sample{ms, map[string]float64{"p99": quantile(took, 0.99)}})
		}
		results = append(results, res)
	}
	last := r.steps[len(r.steps)-1]
	cfg.report.note("%s: %d samples a step; %.1f MB of metadata in, %.1f MB of parts out; planner %.0f CPU ms a step, %.0f ms of all cores were stolen; load %s", c.name, last.samples,
		float64(last.samples)*float64(r.loaded.Bytes)/float64(r.loaded.Samples)/1e6, float64(last.bytes)/1e6,
		r.cpu.Seconds()*1000/float64(len(r.steps)-cycleWarm), r.stolen.Seconds()*1000/float64(len(r.steps)-cycleWarm), load())
	cfg.report.note("")
	return cfg.report.table(results, "p99")
}

// cycleSpec writes the job spec. Its sources are never opened.
func cycleSpec(dir string) (string, error) {
	var b strings.Builder
	b.WriteString("name: plancycle\nseed: 7\nsources:\n")
	weights := make([]string, cycleSources)
	for i := range cycleSources {
		fmt.Fprintf(&b, "  - {name: s%03d, files: s%03d.jsonl}\n", i, i)
		weights[i] = fmt.Sprintf("s%03d: %d", i, 1+i%7)
	}
	fmt.Fprintf(&b, "mix: {weights: {%s}}\n", strings.Join(weights, ", "))
	fmt.Fprintf(&b, "batch: {sequence_length: %d, sequences: %d}\ntopology: {dp: 256, pp: 4, tp: 4}\n", planLength, cycleRows)
	fmt.Fprintf(&b, "strategy: %s\nresources: {prefetch: 1, window: %d}\n", cycleStrategy, cycleBlock)
	path := filepath.Join(dir, "plancycle.yaml")
	return path, os.WriteFile(path, []byte(b.String()), 0o644)
}
