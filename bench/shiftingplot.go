package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/mix"
)

// Sizes of the plot, in its own units.
const (
	plotWidth, plotHeight = 720, 120 // of a panel
	plotLeft, plotTop     = 56, 24
	plotBelow             = 22
)

var plotColors = []string{"#c2410c", "#1d4ed8", "#15803d", "#7e22ce"}

// plotLine is a line of a panel, a value a step.
type plotLine struct {
	name   string
	values []float64
}

// plot draws the mix, the waits, and loaders with the scaler's decisions, over the steps of the last runs.
func (b *shifting) plot() error {
	var waits, loaders []plotLine
	for _, o := range b.outcomes {
		wait, count := plotLine{name: o.name}, plotLine{name: o.name}
		for step, w := range o.wait {
			if step < shiftingWarm {
				w = 0 // processes start, and sources are indexed
			}
			wait.values = append(wait.values, float64(w)/float64(time.Millisecond))
			count.values = append(count.values, float64(o.loaders[step]))
		}
		waits, loaders = append(waits, wait), append(loaders, count)
	}
	decisions := b.outcomes[len(b.outcomes)-1].decisions
	var svg bytes.Buffer
	width, height := plotLeft+plotWidth+20, 3*(plotTop+plotHeight+plotBelow)
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">`+"\n", width, height, width, height)
	fmt.Fprintf(&svg, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	b.panel(&svg, 0, "the mix, % of tokens", b.shares(), nil)
	b.panel(&svg, 1, fmt.Sprintf("wait of the slowest rank, ms, at %v a step", b.opts.pace), waits, nil)
	b.panel(&svg, 2, "loaders, and when the scaler decided", loaders, decisions)
	svg.WriteString("</svg>\n")
	if err := os.MkdirAll(filepath.Dir(b.opts.svg), 0o755); err != nil {
		return err
	}
	b.cfg.report.note("\nThe plot is %s.", b.opts.svg)
	return os.WriteFile(b.opts.svg, svg.Bytes(), 0o644)
}

// shares are those of each kind of sources, by the schedule.
func (b *shifting) shares() (lines []plotLine) {
	schedule := compile.Schedule(b.long.job)
	for _, k := range b.kinds {
		lines = append(lines, plotLine{name: k.name, values: make([]float64, b.opts.steps)})
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

// panel draws the n-th panel.
func (b *shifting) panel(svg *bytes.Buffer, n int, title string, lines []plotLine, decisions []shiftingDecision) {
	top := 1.0
	for _, l := range lines {
		top = max(top, slices.Max(l.values))
	}
	x := func(step int) float64 { return float64(step) / float64(b.opts.steps) * plotWidth }
	fmt.Fprintf(svg, `<g transform="translate(%d,%d)">`+"\n", plotLeft, n*(plotTop+plotHeight+plotBelow)+plotTop)
	fmt.Fprintf(svg, `<rect width="%d" height="%d" fill="none" stroke="#999"/><text y="-6" font-weight="bold">%s</text>`+"\n", plotWidth, plotHeight, html.EscapeString(title))
	fmt.Fprintf(svg, `<text x="-4" y="8" text-anchor="end">%.0f</text><text x="-4" y="%d" text-anchor="end">0</text><text x="%d" y="%d" text-anchor="end">step %d</text>`+"\n",
		top, plotHeight, plotWidth, plotHeight+12, b.opts.steps)
	for _, d := range decisions {
		fmt.Fprintf(svg, `<line x1="%.1f" x2="%.1f" y1="0" y2="%d" stroke="#888" stroke-dasharray="3 2"><title>step %d: %s</title></line>`+"\n",
			x(int(d.step)), x(int(d.step)), plotHeight, d.step, html.EscapeString(d.did))
	}
	for i, l := range lines {
		var points []string
		for step, v := range l.values {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(step), plotHeight*(1-v/top)))
		}
		color := plotColors[i%len(plotColors)]
		fmt.Fprintf(svg, `<polyline fill="none" stroke="%s" points="%s"/><text x="4" y="%d" fill="%s">%s</text>`+"\n",
			color, strings.Join(points, " "), 12+12*i, color, html.EscapeString(l.name))
	}
	svg.WriteString("</g>\n")
}
