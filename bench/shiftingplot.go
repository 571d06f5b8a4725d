package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/mix"
)

// plotColumns is how wide a plot is: some steps each.
const plotColumns = 64

// plotLine is a line of the plot, a value a step. Lines of a scale are drawn alike.
type plotLine struct {
	scale, name string
	values      []float64
}

// plot draws the mix, the waits, and loaders with the scaler's decisions, over the steps of the last runs.
func (b *shifting) plot() {
	lines := b.shares()
	for _, o := range b.outcomes {
		wait := plotLine{"waits, ms", o.name, nil}
		for step, w := range o.wait {
			if step < shiftingWarm {
				w = 0 // processes start, and sources are indexed
			}
			wait.values = append(wait.values, float64(w.Milliseconds()))
		}
		lines = append(lines, wait)
	}
	last := b.outcomes[len(b.outcomes)-1]
	count := plotLine{"loaders", last.name, nil}
	for _, n := range last.loaders {
		count.values = append(count.values, float64(n))
	}
	b.cfg.report.note("\n```\n%s```", drawn(append(lines, count), last.decisions, b.opts.steps))
	for i, d := range last.decisions {
		b.cfg.report.note("%d. Step %d: %s.", i+1, d.step, d.did)
	}
}

// shares are those of each kind of sources, by the schedule.
func (b *shifting) shares() (lines []plotLine) {
	schedule := compile.Schedule(b.long.job)
	for _, k := range b.kinds {
		lines = append(lines, plotLine{"mix, %", k.name, make([]float64, b.opts.steps)})
	}
	for step := range b.opts.steps {
		all := schedule.Shares(int64(step))
		for i, k := range b.kinds {
			for _, share := range all[:k.sources] {
				lines[i].values[step] += 100 * float64(share) / (1 << mix.Bits)
			}
			all = all[k.sources:]
		}
	}
	return lines
}

// bars are eight heights; a space is nothing.
var bars = []rune(" ▁▂▃▄▅▆▇█")

// drawn are lines with the most of each of some steps, and below them the numbers of decisions where they were made.
func drawn(lines []plotLine, decisions []shiftingDecision, steps int) string {
	most, wide := map[string]float64{}, 0
	for _, l := range lines {
		most[l.scale], wide = max(most[l.scale], slices.Max(l.values)), max(wide, len(l.name))
	}
	column := func(step int) int { return min(step*plotColumns/steps, plotColumns-1) }
	var text strings.Builder
	scale := ""
	for _, l := range lines {
		if scale != l.scale {
			scale = l.scale
			fmt.Fprintf(&text, "%s; a full bar is %.0f\n", scale, most[scale])
		}
		row := make([]float64, plotColumns)
		for step, v := range l.values {
			row[column(step)] = max(row[column(step)], v)
		}
		fmt.Fprintf(&text, "  %-*s |", wide, l.name)
		for _, v := range row {
			at := int(v/max(most[scale], 1)*8 + 0.5)
			if v > 0 {
				at = max(at, 1)
			}
			text.WriteRune(bars[at])
		}
		text.WriteString("|\n")
	}
	marks := []byte(strings.Repeat(" ", plotColumns))
	for i, d := range decisions {
		marks[column(int(d.step))] = "123456789abcdefghijklmnopqrstuvwxyz"[min(i, 34)]
	}
	fmt.Fprintf(&text, "  %-*s |%s|\n  %-*s 0%*s\n", wide, "decisions", marks, wide, "step", plotColumns, fmt.Sprint(steps))
	return text.String()
}
