package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// epochSteps are measured: many epochs of most sources.
const epochSteps = 200

// benchEpochs measures sources that are smaller than a step's share, or not much
// larger: whole epochs of them go into every few steps.
func benchEpochs(ctx context.Context, cfg *config) error {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, kind := range []struct {
		name  string
		bytes func() int // of text in one source
	}{
		{"60 to 210 bytes each", func() int { return 60 + rng.IntN(150) }},
		{"60 bytes to 20 kB each", func() int { return int(math.Pow(10, 1.8+2.5*rng.Float64())) }},
	} {
		spec, err := writeSmallSources(cfg.dir, strings.ReplaceAll(kind.name, " ", "-"), kind.bytes)
		if err != nil {
			return err
		}
		cfg.report.title("Epochs: %d JSONL sources, %s, %d ranks", manySources, kind.name, colocatedRanks)
		rows := []result{
			{Name: "end to end", Unit: "M tokens/s"},
			{Name: "service peak memory", Unit: "MiB", Less: true},
		}
		for i := range rows {
			rows[i].Scenario = "epochs, " + kind.name
		}
		for run := range cfg.runs {
			profile, err := cfg.profileOf(filepath.Base(spec), run)
			if err != nil {
				return err
			}
			got, err := serviceRun(ctx, spec, profile, warmSteps, epochSteps, func(service, _ *process) error {
				m, err := memoryOf(service.pid())
				rows[1].add(sample{value: float64(m.Peak) / (1 << 20)})
				return err
			})
			if err != nil {
				return err
			}
			tokens := float64(got.Tokens) / 1e6
			rows[0].add(sample{tokens / got.Seconds, map[string]float64{
				allCPU: (got.ServiceCPU + got.RanksCPU) / tokens, ranksCPU: got.RanksCPU / tokens, idleCores: got.Idle / got.Seconds,
			}})
		}
		if err := cfg.report.table(rows, allCPU, ranksCPU, idleCores); err != nil {
			return err
		}
	}
	return nil
}

// writeSmallSources writes manySources files of short lines, each a source, and a job
// like that of the memory scenario.
func writeSmallSources(dir, name string, size func() int) (spec string, err error) {
	words := strings.Fields(string(synthetic().documents[0]))
	var b, weights strings.Builder
	fmt.Fprintf(&b, memorySpec, "64MiB", "4GiB")
	if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
		return "", err
	}
	for i := range manySources {
		var lines []byte
		for k, left := 0, size(); left > 0; k++ {
			from := (7*i + 13*k) % (len(words) - 12)
			text := strings.Join(words[from:from+3+(i+k)%9], " ")
			line, err := json.Marshal(map[string]string{"text": text})
			if err != nil {
				return "", err
			}
			lines, left = append(append(lines, line...), '\n'), left-len(text)-1
		}
		path := filepath.Join(dir, name, fmt.Sprintf("%03d.jsonl", i))
		if err := os.WriteFile(path, lines, 0o644); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "  - {name: s%03d, files: %q}\n", i, path)
		fmt.Fprintf(&weights, "s%03d: 1, ", i)
	}
	fmt.Fprintf(&b, "mix: {weights: {%s}}\n", strings.TrimSuffix(weights.String(), ", "))
	spec = filepath.Join(dir, name+".yaml")
	return spec, os.WriteFile(spec, []byte(b.String()), 0o644)
}
