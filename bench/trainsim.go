package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/millrace-data/millrace/bench/internal/trainsim"
	"github.com/millrace-data/millrace/internal/testdata"
)

// simSeeds are drawn for each cell of the reference scene and of real traces, the
// first simFewer for each other one.
const (
	simSeeds = 4
	simFewer = 2
)

var simContexts = []int64{4 << 10, 8 << 10, 16 << 10}

// benchTrainsim simulates training iterations with samples placed as they arrive, as package
// balance places them without a token cap, and as the planner of a service does, in rows. Times are virtual and independent of the machine.
func benchTrainsim(ctx context.Context, cfg *config) error {
	b := &simBench{report: cfg.report}
	b.report.title("Training throughput, simulated: what balancing is worth")
	b.report.note("Dealt: samples go to microbatches by cost, however many tokens these have then; no job gets that. Served: plans of the service's planner, rows of at most the context, against the same rows in the order of packing.")
	b.report.note("Speedups over samples in arrival order. The shape and the efficiency are claimed, never the absolute points of the paper: its packing, images and barriers are not published.")
	steps := []func() error{b.reference, b.sensitivity, b.traces}
	for _, step := range steps {
		if err := errors.Join(ctx.Err(), step()); err != nil {
			return err
		}
	}
	return nil
}

// simBench prints tables of simulated scenes.
type simBench struct{ report *report }

// simCell holds the outcomes of a scene and a pair, one for each seed.
type simCell struct {
	pair     string
	outcomes []*trainsim.Outcome
	served   []*trainsim.Served
}

type simCells []simCell

// mean averages a figure over the seeds of all cells.
func (c simCells) mean(figure func(*trainsim.Outcome) float64) float64 {
	total, n := 0.0, 0
	for i := range c {
		for _, o := range c[i].outcomes {
			total += figure(o)
			n++
		}
	}
	return total / float64(n)
}

// plans averages a figure of served plans over the seeds of all cells.
func (c simCells) plans(figure func(*trainsim.Served) float64) float64 {
	total, n := 0.0, 0
	for i := range c {
		for _, o := range c[i].served {
			total += figure(o)
			n++
		}
	}
	return total / float64(n)
}

// servedText is the speedups of served plans, and the efficiency of the best.
func (c simCells) servedText(format string) string {
	return fmt.Sprintf(format,
		c.plans(func(o *trainsim.Served) float64 { return o.Speedup(trainsim.Backbone) }),
		c.plans(func(o *trainsim.Served) float64 { return o.Speedup(trainsim.Hybrid) }),
		c.plans(func(o *trainsim.Served) float64 { return o.Efficiency(trainsim.Hybrid) }))
}

func (c simCells) speedup(s trainsim.Strategy) float64 {
	return c.mean(func(o *trainsim.Outcome) float64 { return o.Speedup(s) })
}

func (c simCells) efficiency(s trainsim.Strategy) float64 {
	return c.mean(func(o *trainsim.Outcome) float64 { return o.Efficiency(s) })
}

// simulate runs a scene for all pairs and writes each cell to the report's file.
func (b *simBench) simulate(scene trainsim.Scene, seeds int) (simCells, error) {
	var cells simCells
	for _, pair := range trainsim.Pairs() {
		c := simCell{pair: pair.Name()}
		res := result{Scenario: "trainsim", Name: fmt.Sprintf("%s, %s, %d", scene.Name, c.pair, scene.Context), Unit: "hybrid speedup"}
		for seed := range uint64(seeds) {
			o, err := trainsim.Simulate(scene, pair, seed+1)
			if err != nil {
				return nil, err
			}
			served, err := trainsim.Serve(scene, pair, seed+1)
			if err != nil {
				return nil, err
			}
			c.outcomes, c.served = append(c.outcomes, o), append(c.served, served)
			res.add(sample{o.Speedup(trainsim.Hybrid), map[string]float64{
				"backbone": o.Speedup(trainsim.Backbone), "hybrid efficiency": o.Efficiency(trainsim.Hybrid),
				"largest image":   o.LargestImage,
				"served backbone": served.Speedup(trainsim.Backbone), "served hybrid": served.Speedup(trainsim.Hybrid),
				"served hybrid efficiency": served.Efficiency(trainsim.Hybrid),
			}})
		}
		res.summarize()
		if err := b.report.json(&res); err != nil {
			return nil, err
		}
		cells = append(cells, c)
	}
	return cells, nil
}

// pairsTable prints a scene pair by pair, and their average.
func (b *simBench) pairsTable(cells simCells) {
	b.report.note("| model | served: backbone | served: hybrid | of ideal | dealt: backbone | dealt: hybrid | of ideal | largest image / GPU's mean | peak tokens vanilla / dealt hybrid |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
	row := func(name string, cells simCells) {
		b.report.note("| %s | %s | %.2f | %.2f | %.3f | %.2f | %.2f |", name, cells.servedText("%.2f | %.2f | %.3f"),
			cells.speedup(trainsim.Backbone),
			cells.speedup(trainsim.Hybrid), cells.efficiency(trainsim.Hybrid),
			cells.mean(func(o *trainsim.Outcome) float64 { return o.LargestImage }),
			cells.mean(func(o *trainsim.Outcome) float64 {
				return float64(o.PeakTokens[trainsim.Vanilla]) / float64(o.PeakTokens[trainsim.Hybrid])
			}))
	}
	for i := range cells {
		row(cells[i].pair, cells[i:i+1])
	}
	row("average", cells)
}

func (b *simBench) reference() error {
	b.report.note("\n### Reference scene: 288 GPUs (DP72 TP4), 72 samples a rank, images Pareto 0.6 from 48 patches up to the context, %d seeds", simSeeds)
	for _, context := range simContexts {
		cells, err := b.simulate(trainsim.Reference(context), simSeeds)
		if err != nil {
			return err
		}
		b.report.note("\nContext %d:\n", context)
		b.pairsTable(cells)
		best := slices.MaxFunc(cells, func(x, y simCell) int {
			return cmp.Compare(simCells{x}.speedup(trainsim.Hybrid), simCells{y}.speedup(trainsim.Hybrid))
		})
		b.report.note("\nBest pair: %s, %.2fx.", best.pair, simCells{best}.speedup(trainsim.Hybrid))
	}
	return nil
}

// sensitivity prints the averages with one choice changed at a time.
func (b *simBench) sensitivity() error {
	b.report.note("\n### Sensitivity: one choice changed, average of 6 pairs, %d seeds\n", simFewer)
	var rows [][]trainsim.Scene // a scene at every context
	for i, scene := range trainsim.Sensitivity(simContexts[0]) {
		row := []trainsim.Scene{scene}
		for _, context := range simContexts[1:] {
			row = append(row, trainsim.Sensitivity(context)[i])
		}
		rows = append(rows, row)
	}
	reference := []trainsim.Scene{}
	for _, context := range simContexts {
		reference = append(reference, trainsim.Reference(context))
	}
	return b.contextsTable(append([][]trainsim.Scene{reference}, rows...), simFewer)
}

// contextsTable prints a row for each scene, with a column for each context.
func (b *simBench) contextsTable(rows [][]trainsim.Scene, seeds int) error {
	b.report.note("Served: backbone / hybrid (of ideal). Dealt: backbone / hybrid (of ideal).\n")
	b.report.note("| scene | 4k | 8k | 16k |\n|---|---|---|---|")
	for _, row := range rows {
		line := "| " + row[0].Name + " |"
		for _, scene := range row {
			cells, err := b.simulate(scene, seeds)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" served %s, dealt %.2f / %.2f (%.3f) |", cells.servedText("%.2f / %.2f (%.3f)"),
				cells.speedup(trainsim.Backbone), cells.speedup(trainsim.Hybrid), cells.efficiency(trainsim.Hybrid))
		}
		b.report.note("%s", line)
	}
	return nil
}

// traces runs the reference scene on sizes and lengths of real data, if available.
func (b *simBench) traces() error {
	dir, ok := testdata.Find()
	if !ok {
		b.report.note("\nNo real traces: set %s to the shared data set's folder to have them.", testdata.Env)
		return nil
	}
	data, err := readSimTraces(dir)
	if err != nil {
		return err
	}
	b.report.note("\n### Reference scene on real sizes and lengths, average of 6 pairs, %d seeds\n", simSeeds)
	var rows [][]trainsim.Scene
	for _, d := range data {
		var row []trainsim.Scene
		for _, context := range simContexts {
			scene := trainsim.Reference(context)
			scene.Name, scene.Data = d.name, d.data
			row = append(row, scene)
		}
		rows = append(rows, row)
	}
	return b.contextsTable(rows, simSeeds)
}

type simTrace struct {
	name string
	data trainsim.Data
}

// readSimTraces combines the traces of the shared data set: sizes of photographs with
// their captions, with lengths of chats, pairs of tiles and tokens, and two logs
// of text alone.
func readSimTraces(dir string) ([]simTrace, error) {
	patches, captions, err := readCOCO(filepath.Join(dir, "images", "coco-captions", "captions.jsonl"))
	if err != nil {
		return nil, err
	}
	tiles, err := readTiles(filepath.Join(dir, "traces", "omnibal-vlm", "ai2d_train_12k_wh_token_lengths.json"))
	if err != nil {
		return nil, err
	}
	chats, err := readColumn[int64](filepath.Join(dir, "traces", "azure", "AzureLLMInferenceTrace_conv.csv"), "ContextTokens")
	if err != nil {
		return nil, err
	}
	long, err := readRequests(filepath.Join(dir, "traces", "mooncake", "conversation_trace.jsonl"))
	if err != nil {
		return nil, err
	}
	return []simTrace{
		{"COCO photographs, captions", trainsim.Captioned(trainsim.Trace(patches), trainsim.Trace(captions))},
		{"COCO photographs, Azure chats", trainsim.Captioned(trainsim.Trace(patches), trainsim.Trace(chats))},
		{"OmniBal AI2D tiles and tokens", trainsim.Resample(tiles)},
		{"Azure chats, text only", trainsim.Resample(textOnly(chats))},
		{"Mooncake prompts, text only", trainsim.Resample(textOnly(long))},
	}, nil
}

func textOnly(lengths []int64) []trainsim.Sample {
	samples := make([]trainsim.Sample, len(lengths))
	for i, n := range lengths {
		samples[i].Tokens = n
	}
	return samples
}

// readCOCO returns the patches of 14 x 14 pixels of each image, and an estimate of
// its first caption's tokens: one for every four bytes.
func readCOCO(path string) (patches, captions []int64, err error) {
	const side, bytesPerToken = 14, 4
	err = eachLine(path, func(line *struct {
		Width, Height int64
		Captions      []string
	}) {
		patches = append(patches, ceil(line.Width, side)*ceil(line.Height, side))
		if len(line.Captions) > 0 {
			captions = append(captions, ceil(int64(len(line.Captions[0])), bytesPerToken))
		}
	})
	return patches, captions, err
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// readRequests returns the prompt lengths of a log of requests.
func readRequests(path string) (lengths []int64, err error) {
	err = eachLine(path, func(line *struct {
		Input int64 `json:"input_length"`
	}) {
		lengths = append(lengths, line.Input)
	})
	return lengths, err
}

// eachLine decodes the values of a JSONL file one after the other.
func eachLine[T any](path string, do func(*T)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := json.NewDecoder(bufio.NewReader(f)); lines.More(); {
		var line T
		if err := lines.Decode(&line); err != nil {
			return fmt.Errorf("reading %s: %w", path, err)
		}
		do(&line)
	}
	return nil
}

// readTiles returns samples of several image tiles, each encoded on its own.
func readTiles(path string) ([]trainsim.Sample, error) {
	const patches = 32 * 32 // of a tile of 448 x 448 pixels
	var lines []struct {
		Tiles  int32 `json:"vit_num"`
		Tokens int64 `json:"token_num"`
	}
	if err := readJSONFile(path, &lines); err != nil {
		return nil, err
	}
	samples := make([]trainsim.Sample, len(lines))
	for i, l := range lines {
		samples[i] = trainsim.Sample{Tokens: l.Tokens, Images: l.Tiles, Patches: patches}
	}
	return samples, nil
}
