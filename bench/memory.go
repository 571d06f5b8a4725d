package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The job of the memory scenario: every source with the same weight, byte-level
// tokens, 16 ranks.
const memorySpec = `
name: many-sources
seed: 1
batch: {sequence_length: 2048, sequences: 32, microbatch_size: 2}
topology: {dp: 4, cp: 2, pp: 2}
resources: {loader_buffer: %s, loader_disk: %s, constructor_buffer: 64MiB}
sources:
`

// loaderBudgets are measured: the comparison uses the first. The sources'
// current blocks exceed the first two, and spill to the local disk; without
// it they are read again for every step. The last holds all of them in memory.
var loaderBudgets = []struct{ buffer, disk string }{
	{"64MiB", "4GiB"}, {"256MiB", "4GiB"}, {"64MiB", "0"}, {"4GiB", "0"},
}

// memorySteps run before memory is measured: every source was drawn from.
const memorySteps = 20

// The setup that the service is compared with: the same number of ranks, each with
// its own worker processes, each with all files open.
const (
	colocatedRanks   = 16
	colocatedWorkers = 4
)

// benchMemory measures the memory of a service with many sources.
func benchMemory(ctx context.Context, cfg *config) error {
	sources, origin, err := writeSources(ctx, filepath.Join(cfg.dir, "sources"))
	if err != nil {
		return err
	}
	cfg.report.title("Memory: %d Parquet sources (%s), %d ranks", len(sources), origin, colocatedRanks)
	var ours float64
	for i, budget := range loaderBudgets {
		pss, err := serviceMemory(ctx, cfg, sources, budget.buffer, budget.disk)
		if err != nil {
			return err
		}
		if i == 0 {
			ours = pss
		}
	}
	if cfg.python == "" {
		cfg.report.note("No comparison: give -python an interpreter that has millrace and pyarrow.")
		return nil
	}
	ranks, err := pythonRanks(ctx, cfg, sources)
	if err != nil {
		return err
	}
	return colocated(ctx, cfg, sources, ours, ranks)
}

// pythonRanks measures a service of the first budget, and its ranks in Python, and returns what these take, in MiB: the trainers' own
// processes, before a model is in them.
func pythonRanks(ctx context.Context, cfg *config, sources []parquetSource) (float64, error) {
	budget := loaderBudgets[0]
	spec := filepath.Join(cfg.dir, "memory-python.yaml")
	if err := os.WriteFile(spec, []byte(memoryYAML(sources, budget.buffer, budget.disk)), 0o644); err != nil {
		return 0, err
	}
	rows := []result{
		{Scenario: "memory-python", Name: fmt.Sprintf("service, PSS, with %d ranks in Python", colocatedRanks), Unit: "MiB", Less: true},
		{Scenario: "memory-python", Name: fmt.Sprintf("%d ranks in Python, PSS", colocatedRanks), Unit: "MiB", Less: true},
	}
	for range cfg.runs {
		_, err := consumeArgs{Spec: spec, Warm: 1, Steps: memorySteps, Python: cfg.python}.run(ctx, func(service, ranks *process) error {
			s, err := memoryOf(service.pid())
			if err != nil {
				return err
			}
			all, err := childrenPSS(ranks.pid())
			rows[0].add(sample{value: float64(s.PSS) / (1 << 20)})
			rows[1].add(sample{value: float64(all) / (1 << 20)})
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	cfg.report.note("loader_buffer %s, loader_disk %s, ranks in Python:\n", budget.buffer, budget.disk)
	return median(rows[1].Values), cfg.report.table(rows)
}

// serviceMemory measures services with one budget for samples, and returns the
// median of their PSS in MiB.
func serviceMemory(ctx context.Context, cfg *config, sources []parquetSource, buffer, disk string) (float64, error) {
	name := "memory-" + buffer + "-disk-" + disk
	spec := filepath.Join(cfg.dir, name+".yaml")
	if err := os.WriteFile(spec, []byte(memoryYAML(sources, buffer, disk)), 0o644); err != nil {
		return 0, err
	}
	rows := []result{
		{Name: "service, PSS", Unit: "MiB", Less: true},
		{Name: "service, RSS", Unit: "MiB", Less: true},
		{Name: "service, peak RSS", Unit: "MiB", Less: true},
		{Name: "service, on the local disk", Unit: "MiB", Less: true},
		{Name: "service, files there", Unit: "files", Less: true},
		{Name: "16 plain ranks in one process, PSS", Unit: "MiB", Less: true},
		{Name: "end to end", Unit: "M tokens/s"},
	}
	for i := range rows {
		rows[i].Scenario = name
	}
	for run := range cfg.runs {
		profile, err := cfg.profileOf(rows[0].Scenario, run)
		if err != nil {
			return 0, err
		}
		got, err := serviceRun(ctx, spec, profile, 1, memorySteps, func(service, ranks *process) error {
			s, err := memoryOf(service.pid())
			if err != nil {
				return err
			}
			bytes, files, err := unnamedFiles(service.pid())
			if err != nil {
				return err
			}
			r, err := memoryOf(ranks.pid())
			const mib = 1 << 20
			for i, value := range []float64{float64(s.PSS) / mib, float64(s.RSS) / mib, float64(s.Peak) / mib, float64(bytes) / mib, float64(files), float64(r.PSS) / mib} {
				rows[i].add(sample{value: value})
			}
			return err
		})
		if err != nil {
			return 0, err
		}
		rows[6].add(sample{value: float64(got.Tokens) / 1e6 / got.Seconds})
	}
	cfg.report.note("loader_buffer %s, loader_disk %s:\n", buffer, disk)
	return median(rows[0].Values), cfg.report.table(rows)
}

func memoryYAML(sources []parquetSource, buffer, disk string) string {
	var b, weights strings.Builder
	fmt.Fprintf(&b, memorySpec, buffer, disk)
	for i, s := range sources {
		fmt.Fprintf(&b, "  - {name: s%03d, files: %q, transforms: [{text: \"{%s}\"}, {tokenize: bytes}, {append_eod: {}}], bad_records: {policy: skip, limit: 1M}}\n",
			i, s.Path, s.Column)
		fmt.Fprintf(&weights, "s%03d: 1, ", i)
	}
	fmt.Fprintf(&b, "mix: {weights: {%s}}\n", strings.TrimSuffix(weights.String(), ", "))
	return b.String()
}

// workerMemory is a line of colocated.py's output, one for each number of workers.
type workerMemory struct {
	Workers  int      `json:"workers"`
	PSS      float64  `json:"pss_mib"` // of all workers together
	RSS      float64  `json:"rss_mib"`
	Private  float64  `json:"private_mib"`
	Files    int      `json:"files"` // opened by each worker
	Versions []string `json:"versions"`
}

// colocated measures workers in the ranks and compares. A few workers are measured;
// the whole node is an extrapolation, and the report says so.
func colocated(ctx context.Context, cfg *config, sources []parquetSource, ours, ranks float64) error {
	list, err := json.Marshal(sources)
	if err != nil {
		return err
	}
	script := filepath.Join("bench", "colocated.py")
	cmd := exec.CommandContext(ctx, cfg.python, script, "1", "2", "4", "8")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(list), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w; run the bench from the root of the repository", script, err)
	}
	var all []workerMemory
	for line := range bytes.Lines(out) {
		var w workerMemory
		if err := json.Unmarshal(line, &w); err != nil {
			return fmt.Errorf("%s printed %q: %w", script, line, err)
		}
		all = append(all, w)
		if err := cfg.report.json(w); err != nil {
			return err
		}
	}
	return compare(cfg.report, all, ours, ranks)
}

// compare prints the workers' memory and an estimate for a full node.
func compare(r *report, all []workerMemory, ours, ranks float64) error {
	if len(all) < 2 {
		return fmt.Errorf("the comparison needs two worker counts, %d were measured", len(all))
	}
	r.note("Worker processes that hold all files open (%s), %d of %d files readable there:\n",
		strings.Join(all[0].Versions, ", "), all[0].Files, manySources)
	r.note("| workers | PSS MiB | RSS MiB | private MiB | PSS MiB a worker |\n|--:|--:|--:|--:|--:|")
	for _, w := range all {
		r.note("| %d | %.0f | %.0f | %.0f | %.1f |", w.Workers, w.PSS, w.RSS, w.Private, w.PSS/float64(w.Workers))
	}
	first, last := all[0], all[len(all)-1]
	slope := (last.PSS - first.PSS) / float64(last.Workers-first.Workers)
	workers := colocatedRanks * colocatedWorkers
	whole := first.PSS + slope*float64(workers-first.Workers)
	r.note("\nExtrapolated (a straight line through %d and %d workers, all forked from one parent): %d ranks x %d workers take %.0f MiB of PSS, "+
		"the service %.0f: %.1f times less. With %.0f for the ranks in Python on either side, which those workers come beside: %.1f times less.",
		first.Workers, last.Workers, colocatedRanks, colocatedWorkers, whole, ours, whole/ours, ranks, (whole+ranks)/(ours+ranks))
	return r.json(map[string]float64{"colocated_mib": whole, "service_mib": ours, "ranks_mib": ranks, "ratio": whole / ours, "ratio_with_ranks": (whole + ranks) / (ours + ranks)})
}
