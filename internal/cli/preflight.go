package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/millrace-data/millrace/internal/preview"
)

// maxWarnings are printed: a job of a thousand sources must not fill the screen.
const maxWarnings = 20

// printReport prints a report for a person, a screen of it.
func printReport(w io.Writer, r *preview.Report) {
	fmt.Fprintf(w, "%s: %s, mesh %s: planned, nothing was trained\n", r.Job, fromTo(r.First, r.First+r.Steps-1), r.Mesh)
	fmt.Fprintf(w, "%s: %s, %s, %d of padding, rows %.3f %% full; the worst step is %d with %.2f %%\n",
		preview.Count(r.Steps, "step"), preview.Count(r.Documents, "document"), preview.Count(r.Tokens, "token"), r.Padding, 100*r.Fill, r.Worst.Step, 100*r.Worst.Fill)
	if r.End >= 0 {
		fmt.Fprintf(w, "the data ends after %s\n", preview.Count(r.End, "step"))
	}
	if o := r.Outliers; o != nil {
		fmt.Fprintf(w, "outliers: %s waited for others of their length, %.1f steps on average, at most %d at a time\n", preview.Count(o.Waited, "sample"), o.Steps, o.Most)
	}
	printSources(w, r)
	printModules(w, r)
	printNeeds(w, r)
	if len(r.Warnings) > 0 {
		fmt.Fprintf(w, "\nto look at:\n")
		for _, text := range r.Warnings[:min(len(r.Warnings), maxWarnings)] {
			fmt.Fprintf(w, "- %s\n", text)
		}
		if more := len(r.Warnings) - maxWarnings; more > 0 {
			fmt.Fprintf(w, "- and %d more; --json and --html have all\n", more)
		}
	}
}

// fromTo names the steps from the first to the last.
func fromTo(first, last int64) string {
	if first == last {
		return fmt.Sprintf("step %d", first)
	}
	return fmt.Sprintf("steps %d to %d", first, last)
}

func newTable(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func printSources(out io.Writer, r *preview.Report) {
	w := newTable(out)
	fmt.Fprintf(w, "\nsource\tfiles\ttokens\tdocuments\tshare\tscheduled\tepochs\texhausted\tfiltered\ttoo long\tempty\tbad\tsamples/core s\t\n")
	for _, s := range r.Sources {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%.2f %%\t%.2f %%\t%.2f\t%s\t%d\t%d\t%d\t%d\t%.0f\t\n", s.Name, s.Files, grouped(s.Tokens), grouped(s.Documents),
			100*s.Share, 100*s.Scheduled, s.Epochs, atStep(s.ExhaustedAt), s.Filtered, s.Dropped, s.Empty, s.Skipped, s.SamplesPerSecond)
	}
	w.Flush()
	drawn := int64(0)
	for _, s := range r.Sources {
		drawn += s.Drawn
	}
	if beyond := drawn - r.Tokens; beyond > 0 {
		fmt.Fprintf(out, "%s more tokens were drawn, which are in no row of these steps: they are carried into later ones, or skipped\n", grouped(beyond))
	}
}

// atStep prints a step; none is -1.
func atStep(step int64) string {
	if step < 0 {
		return "-"
	}
	return fmt.Sprintf("step %d", step)
}

func printModules(out io.Writer, r *preview.Report) {
	w := newTable(out)
	fmt.Fprintf(w, "\nbalance\tcost\tover\tmax/mean\tworst\tin step\tlockstep\titem-bound\t\n")
	for _, m := range r.Modules {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.4f\t%.4f\t%d\t%.4f\t%d\t\n", m.Name, m.Model, m.Axis, m.Mean, m.Worst, m.WorstStep, m.Lockstep, m.ItemBound)
	}
	w.Flush()
	if len(r.Fills) == 0 {
		return
	}
	w = newTable(out)
	fmt.Fprintf(w, "\nbatch.fill\ttokens of a step\tslowest rank/mean\t\t\n")
	for _, f := range r.Fills {
		note := ""
		if f.Fill == r.BestFill {
			note = "recommended"
		}
		fmt.Fprintf(w, "%d\t%.2f %%\t%.4f\t%s\t\n", f.Fill, 100*f.Tokens, f.Slowest, note)
	}
	w.Flush()
}

// printNeeds prints what moves, what is held and how fast it must be read.
func printNeeds(out io.Writer, r *preview.Report) {
	w := newTable(out)
	fmt.Fprintf(w, "\nof a step\tMiB\t\t\n")
	for _, h := range r.Hops {
		fmt.Fprintf(w, "%s to %s\t%.3f\t%s\t\n", h.From, h.To, h.Bytes/(1<<20), h.Basis)
	}
	fmt.Fprintf(w, "\nheld at most\tMiB\tbudget of one\t\t\n")
	for _, m := range r.Memory {
		budget := "-"
		if m.Budget > 0 {
			budget = fmt.Sprintf("%d", m.Budget>>20)
		}
		fmt.Fprintf(w, "%s\t%.3f\t%s\t%s\t\n", m.Role, float64(m.Bytes)/(1<<20), budget, m.Basis)
	}
	w.Flush()
	s := r.Speed
	fmt.Fprintf(out, "\nreading: %.0f samples a second on one core, %.1f ms of a core for each step (measured)\n", s.SamplesPerSecond, 1000*s.SecondsPerStep)
	if s.StepTime > 0 {
		fmt.Fprintf(out, "at %v a step loaders must give %.0f samples a second: %.2g cores (derived)\n",
			time.Duration(s.StepTime*float64(time.Second)), s.SamplesNeeded, s.Cores)
	}
}
