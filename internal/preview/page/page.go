package page

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"

	"github.com/millrace-data/millrace/internal/preview"
)

//go:embed page.html.tmpl
var text string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": percent, "factor": factor, "count": count, "size": size, "grouped": grouped,
	"bytes": func(n int64) string { return size(float64(n)) },
	"part":  func(a, b int64) string { return fmt.Sprintf("%.1f%%", 100*float64(min(a, b))/float64(max(b, 1))) },
}).Parse(text))

// view is what the template sees.
type view struct {
	*preview.Report
	Charts []chart
}

// chart is a plot with its words.
type chart struct {
	Title, Note string
	Basis       preview.Basis
	Plot        template.HTML
	Key         []key
}

// key names the colour of a line.
type key struct {
	Colour int
	Name   string
}

// Write writes a report as a page.
func Write(w io.Writer, r *preview.Report) error {
	v := view{Report: r}
	if r.Steps > 0 {
		v.Charts = append(v.Charts, fill(r), shares(r), balance(r), volume(r), padding(r), lengths(r))
	}
	if err := page.Execute(w, v); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// perPoint says what a point of a chart stands for.
func perPoint(r *preview.Report, of string) string {
	if r.Timeline.Width == 1 {
		return "by step"
	}
	return fmt.Sprintf("by step, %d steps to a point%s", r.Timeline.Width, of)
}

func plot(r *preview.Report, label string, a axis, all []line) template.HTML {
	return lines(label, r.Timeline.First, r.Timeline.Width, a, all)
}

func fill(r *preview.Report) chart {
	all := []line{{"mean", 0, false, r.Timeline.At("fill").Values}, {"lowest", 1, true, r.Timeline.At("fill.min").Values}}
	return chart{
		Title: "Fill of rows", Note: perPoint(r, ": the mean and the lowest of them"), Basis: preview.Planned,
		Plot: plot(r, "fill of rows by step", over(all, 1, 1, percent), all), Key: keys(all),
	}
}

// keys are the names of the lines, a colour once.
func keys(all []line) (named []key) {
	for _, l := range all {
		if !l.dashed || l.class > 0 {
			named = append(named, key{l.class % colours, l.name})
		}
	}
	return named
}

// maxLines of one chart: one for each colour.
const maxLines = colours

func shares(r *preview.Report) chart {
	sources := slices.Clone(r.Sources)
	c := chart{Title: "Shares of sources", Basis: preview.Planned}
	if len(sources) > maxLines {
		slices.SortStableFunc(sources, func(a, b preview.SourceReport) int { return cmp.Compare(b.Scheduled, a.Scheduled) })
		sources = sources[:maxLines]
		c.Note = fmt.Sprintf("the %d largest of %d sources; ", maxLines, len(r.Sources))
	}
	var all []line
	for i, s := range sources {
		all = append(all,
			line{s.Name + " (scheduled)", i, true, r.Timeline.At("scheduled." + s.Name).Values},
			line{s.Name, i, false, r.Timeline.At("share." + s.Name).Values})
		c.Key = append(c.Key, key{i % colours, s.Name})
	}
	c.Note += perPoint(r, "") + "; solid is what is drawn, dashed what the schedule asks for"
	c.Plot = plot(r, "shares of sources by step", over(all, 0, 0, percent), all)
	return c
}

func balance(r *preview.Report) chart {
	var all []line
	for i, m := range r.Modules {
		all = append(all, line{m.Name, i, false, r.Timeline.At("balance." + m.Name).Values})
	}
	return chart{
		Title: "Balance", Note: "largest load over the mean one, " + perPoint(r, ": the worst of them") + "; 1 is even", Basis: preview.Planned,
		Plot: plot(r, "balance by step", over(all, 1, 1, factor), all), Key: keys(all),
	}
}

func volume(r *preview.Report) chart {
	all := []line{{"documents", 2, false, r.Timeline.At("documents").Values}}
	return chart{
		Title: "Documents in a step", Note: perPoint(r, ": the mean"), Basis: preview.Planned,
		Plot: plot(r, "documents by step", over(all, 0, 0, count), all), Key: keys(all),
	}
}

func padding(r *preview.Report) chart {
	all := []line{{"tokens", 3, false, r.Timeline.At("tokens").Values}, {"padding", 1, false, r.Timeline.At("padding").Values}}
	return chart{
		Title: "Tokens and padding in a step", Note: perPoint(r, ": the mean"), Basis: preview.Planned,
		Plot: plot(r, "tokens and padding by step", over(all, 0, 0, count), all), Key: keys(all),
	}
}

func lengths(r *preview.Report) chart {
	var all []bar
	most := []line{{}}
	for _, b := range r.Lengths {
		all = append(all, bar{power(b.From), float64(b.Documents), fmt.Sprintf("%d to %d tokens: %d documents", b.From, b.To, b.Documents)})
		most[0].values = append(most[0].values, float64(b.Documents))
	}
	return chart{
		Title: "Lengths of documents", Note: "documents by their tokens, each bar from its number up to the next", Basis: preview.Planned,
		Plot: bars("documents by tokens", over(most, 0, 0, count), all),
	}
}
