package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Sizes of the drawing, in its own units.
const (
	panelWidth, panelHeight = 360, 110
	marginLeft, marginTop   = 56, 24
	marginBottom            = 22
	columns                 = 2
)

// colors of the lines of a panel, one for each prefetch.
var colors = []string{"#c2410c", "#1d4ed8", "#15803d", "#7e22ce"}

// draw draws a panel for each scenario and pace: the longest wait of each step's ranks, a line for
// each prefetch, and where harm was done.
func draw(w io.Writer, runs []*measured) error {
	type key struct {
		title string
		pace  float64
	}
	var order []key
	panels := map[key][]*measured{}
	for _, m := range runs {
		k := key{m.Title, m.Pace}
		if m.Ranks != "Go" {
			k.title += ", ranks in " + m.Ranks
		}
		if panels[k] == nil {
			order = append(order, k)
		}
		panels[k] = append(panels[k], m)
	}
	rows := (len(order) + columns - 1) / columns
	width, height := columns*(marginLeft+panelWidth+20), rows*(marginTop+panelHeight+marginBottom)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	for i, k := range order {
		x, y := i%columns*(marginLeft+panelWidth+20)+marginLeft, i/columns*(marginTop+panelHeight+marginBottom)+marginTop
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", x, y)
		panel(&b, fmt.Sprintf("%s, %.0f ms a step", k.title, k.pace), panels[k])
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// panel draws one; its origin is the upper left corner of its field.
func panel(b *bytes.Buffer, title string, runs []*measured) {
	top, steps := 10.0, 1
	for _, m := range runs {
		if n := len(m.Longest); n > warm {
			top, steps = max(top, slices.Max(m.Longest[warm:])), max(steps, n)
		}
	}
	x := func(step int) float64 { return float64(step) / float64(steps) * panelWidth }
	y := func(wait float64) float64 { return panelHeight - min(wait/top, 1)*panelHeight }
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="none" stroke="#999"/><text y="-6" font-weight="bold">%s</text>`+"\n", panelWidth, panelHeight, escape(title))
	fmt.Fprintf(b, `<text x="-4" y="8" text-anchor="end">%.0f ms</text><text x="-4" y="%d" text-anchor="end">0</text><text x="%d" y="%d" text-anchor="end">step %d</text>`+"\n",
		top, panelHeight, panelWidth, panelHeight+12, steps)
	for i, m := range runs {
		color := colors[i%len(colors)]
		if i == 0 {
			for _, step := range m.Harms {
				fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="0" y2="%d" stroke="#888" stroke-dasharray="3 2"/>`+"\n", x(int(step)), x(int(step)), panelHeight)
			}
		}
		var points []string
		for step := warm; step < len(m.Longest); step++ {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(step), y(m.Longest[step])))
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" points="%s"/><text x="%d" y="%d" fill="%s">prefetch %d</text>`+"\n",
			color, strings.Join(points, " "), 4, 12+12*i, color, m.Prefetch)
	}
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
