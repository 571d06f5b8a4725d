package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/failpoint"
)

// table is what is known of each site.
type table struct {
	rows    []*row
	bySite  map[failpoint.Site]*row
	kills   int
	runs    int
	steps   int64
	samples int
	damages []*damaged
	splits  []*splits
}

// row is one site. Waits are the longest of each run, in ms, without the first step.
type row struct {
	Role       failpoint.Role `json:"role"`
	Site       failpoint.Site `json:"failpoint"`
	Runs       int            `json:"runs"`
	Kills      int            `json:"kills"`      // of processes, in runs whose target it was
	Hits       int            `json:"hits"`       // in all runs
	Mismatches int            `json:"mismatches"` // runs that did not pass
	Median     float64        `json:"stall_ms_p50"`
	Longest    float64        `json:"stall_ms_max"`

	waits []time.Duration
}

func newTable(sites []failpoint.Info) *table {
	t := &table{bySite: map[failpoint.Site]*row{}}
	for _, s := range sites {
		r := &row{Role: s.Role, Site: s.Site}
		t.rows, t.bySite[s.Site] = append(t.rows, r), r
	}
	return t
}

// longest is the longest wait of a run's ranks, the first step's not counted: it has the
// start of all processes in it.
func longest(res result) time.Duration {
	if res.trained == nil || len(res.trained.Waits) < 2 {
		return 0
	}
	return slices.Max(res.trained.Longest(1))
}

// add counts a run.
func (t *table) add(p plan, res result) {
	r := t.bySite[p.site]
	r.Runs++
	r.Kills += res.kills
	r.waits = append(r.waits, longest(res))
	if res.err != nil {
		r.Mismatches++
	}
	for site, n := range res.hits {
		if of := t.bySite[site]; of != nil {
			of.Hits += n
		}
	}
	t.runs++
	t.kills += res.kills
	if res.trained != nil {
		t.steps, t.samples = t.steps+res.trained.Steps, t.samples+res.trained.Samples
	}
}

// summary is a sentence about all runs. No run is under way.
func (m *matrix) summary() string {
	var unhit []string
	for _, r := range m.table.rows {
		if r.Hits == 0 {
			unhit = append(unhit, string(r.Site))
		}
	}
	if m.table.runs == 0 {
		unhit = nil
	}
	s := fmt.Sprintf("%d kills in %d runs, %d of which did not pass; %d steps and %d samples were compared with the reference; seed %d, %.0f s on %d cores.",
		m.table.kills, m.table.runs, m.failed, m.table.steps, m.table.samples, m.opts.seed, time.Since(m.begin).Seconds(), runtime.NumCPU())
	if len(unhit) > 0 {
		s += " Never hit: " + strings.Join(unhit, ", ") + "."
	}
	return s
}

// settle computes what the rows show of waits.
func (t *table) settle() {
	ms := func(d time.Duration) float64 { return float64(d.Round(time.Millisecond)) / float64(time.Millisecond) }
	for _, r := range t.rows {
		if len(r.waits) > 0 {
			slices.Sort(r.waits)
			r.Median, r.Longest = ms(r.waits[len(r.waits)/2]), ms(r.waits[len(r.waits)-1])
		}
	}
}

// print writes the table as Markdown.
func (t *table) print(w io.Writer, summary string) error {
	_, err := fmt.Fprintf(w, "%s\n\n| role | failpoint | runs | kills | hits | mismatches | longest wait, ms: p50 | max |\n|---|---|--:|--:|--:|--:|--:|--:|\n", summary)
	for _, r := range t.rows {
		if err == nil && r.Runs > 0 {
			_, err = fmt.Fprintf(w, "| %s | `%s` | %d | %d | %d | %d | %.0f | %.0f |\n", r.Role, r.Site, r.Runs, r.Kills, r.Hits, r.Mismatches, r.Median, r.Longest)
		}
	}
	for i, x := range t.splits {
		if i == 0 && err == nil {
			_, err = fmt.Fprint(w, "\n| a leader is stopped at | times | another took over | its next write was refused | mismatches |\n|---|--:|--:|--:|--:|\n")
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "| `%s` | %d | %d | %d | %d |\n", x.Site, x.Stopped, x.Replaced, x.Refused, x.Failed)
		}
	}
	if err == nil && len(t.damages) > 0 {
		_, err = fmt.Fprint(w, "\n| damage to a file of the log | cases | refused | harmless | silent |\n|---|--:|--:|--:|--:|\n")
	}
	for _, d := range t.damages {
		if err == nil {
			_, err = fmt.Fprintf(w, "| %s | %d | %d | %d | %d |\n", d.Kind, d.Cases, d.Refused, d.Harmless, d.Silent)
		}
	}
	return err
}

// write writes the table to where the command line asks for it.
func (t *table) write(o options, summary string) error {
	t.settle()
	if err := t.print(os.Stdout, summary); err != nil {
		return err
	}
	if o.markdown != "" {
		f, err := os.Create(o.markdown)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := t.print(f, summary); err != nil {
			return err
		}
	}
	if o.json == "" {
		return nil
	}
	data, err := json.MarshalIndent(map[string]any{"summary": summary, "seed": o.seed, "kills": t.kills, "runs": t.runs, "rows": t.rows, "damage": t.damages, "split_brain": t.splits}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.json, append(data, '\n'), 0o644)
}
