package page

import (
	"fmt"
	"html/template"
	"math"
	"strings"
)

// Sizes of a chart, in units of its own that the page scales.
const (
	width, height       = 720.0, 220.0
	left, right         = 54.0, 10.0
	top, bottom         = 10.0, 24.0
	plotWide, plotHigh  = width - left - right, height - top - bottom
	colours             = 10 // classes c0 to c9 of the style
	labelGap, tickCount = 4.0, 4
)

// line is one line of a chart, at evenly spaced steps.
type line struct {
	name   string
	class  int // colour
	dashed bool
	values []float64
}

// axis is the range of a chart's values.
type axis struct {
	low, high float64
	format    func(float64) string
}

// over makes an axis that holds all lines, and low and high at least.
func over(lines []line, low, high float64, format func(float64) string) axis {
	for _, l := range lines {
		for _, v := range l.values {
			low, high = math.Min(low, v), math.Max(high, v)
		}
	}
	if high <= low {
		high = low + 1
	}
	step := niceStep((high - low) / tickCount)
	return axis{math.Floor(low/step) * step, math.Ceil(high/step) * step, format}
}

// niceStep is the least of 1, 2, 5, 10, ... times a power of ten that is not below x.
func niceStep(x float64) float64 {
	if x <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= x*(1-1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

func (a axis) y(v float64) float64 { return top + plotHigh*(1-(v-a.low)/(a.high-a.low)) }

// drawing is an SVG in the making.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format, args...) }

func (d *drawing) text(x, y float64, anchor, text string) {
	d.add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, template.HTMLEscapeString(text))
}

// begin opens a chart that a screen reader can name.
func (d *drawing) begin(label string) {
	d.add(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, width, height, template.HTMLEscapeString(label))
}

// grid draws the lines and labels of the value axis.
func (d *drawing) grid(a axis) {
	step := niceStep((a.high - a.low) / tickCount)
	for v := a.low; v <= a.high+step/2; v += step {
		y := a.y(v)
		d.add(`<path class="grid" d="M%.1f %.1fH%.1f"/>`, left, y, width-right)
		d.text(left-labelGap, y+labelGap, "end", a.format(v))
	}
}

// lines draws a line chart over steps: first is the step of the first point, each
// point stands for several steps.
func lines(label string, first, perPoint int64, a axis, all []line) template.HTML {
	var d drawing
	d.begin(label)
	d.grid(a)
	points := 0
	for _, l := range all {
		points = max(points, len(l.values))
	}
	x := func(i int) float64 { return left + plotWide*float64(i)/math.Max(float64(points-1), 1) }
	d.steps(first, perPoint, points, x)
	for _, l := range all {
		class := fmt.Sprintf("line c%d", l.class%colours)
		if l.dashed {
			class += " dashed"
		}
		d.add(`<path class="%s" d="%s"><title>%s</title></path>`, class, pathOf(l.values, x, a), template.HTMLEscapeString(l.name))
	}
	d.add(`</svg>`)
	return template.HTML(d.String())
}

// steps labels round steps below a chart.
func (d *drawing) steps(first, perPoint int64, points int, x func(int) float64) {
	last := first + int64(points-1)*perPoint
	apart := max(int64(niceStep(float64(last-first)/(2*tickCount))), 1)
	for step := (first + apart - 1) / apart * apart; step <= last; step += apart {
		anchor, at := "middle", x(int((step-first)/perPoint))
		if at < left+labelGap {
			anchor = "start"
		}
		d.text(math.Min(at, width-right-2*labelGap), height-6, anchor, fmt.Sprint(step))
	}
}

// pathOf is the path of a line; a single point is drawn across the chart.
func pathOf(values []float64, x func(int) float64, a axis) string {
	var b strings.Builder
	for i, v := range values {
		op := "L"
		if i == 0 {
			op = "M"
		}
		fmt.Fprintf(&b, "%s%.1f %.1f", op, x(i), a.y(v))
	}
	if len(values) == 1 {
		fmt.Fprintf(&b, "H%.1f", width-right)
	}
	return b.String()
}

// bar is one bar of a histogram.
type bar struct {
	label string
	value float64
	title string
}

// bars draws a histogram.
func bars(label string, a axis, all []bar) template.HTML {
	var d drawing
	d.begin(label)
	d.grid(a)
	wide := plotWide / math.Max(float64(len(all)), 1)
	for i, b := range all {
		x, y := left+wide*float64(i), a.y(b.value)
		d.add(`<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`,
			x+1, y, math.Max(wide-2, 1), top+plotHigh-y, template.HTMLEscapeString(b.title))
		d.text(x+wide/2, height-6, "middle", b.label)
	}
	d.add(`</svg>`)
	return template.HTML(d.String())
}
