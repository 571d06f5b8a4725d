package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// report collects the runs, and writes them at the end; each is printed when it is done.
type report struct {
	opts options
	runs []*measured
}

const header = `| scenario | ranks | step, ms | prefetch | waits, ms: p50 | p99 | max | stalled steps | back after, ms: p50 | max |
|---|---|--:|--:|--:|--:|--:|--:|--:|--:|
`

func (r *report) add(m *measured) {
	if len(r.runs) == 0 {
		fmt.Print(header)
	}
	r.runs = append(r.runs, m)
	fmt.Print(m.row())
}

// row is a line of the table.
func (m *measured) row() string {
	back := " | "
	if n := len(m.Recoveries); n > 0 {
		slices.Sort(m.Recoveries)
		back = fmt.Sprintf("%.0f | %.0f", m.Recoveries[n/2], m.Recoveries[n-1])
	}
	title := m.Title
	if m.Error != "" {
		title += "; **" + strings.ReplaceAll(m.Error, "|", "/") + "**"
	}
	return fmt.Sprintf("| %s | %s | %.0f | %d | %.1f | %.1f | %.0f | %d | %s |\n", title, m.Ranks, m.Pace, m.Prefetch, m.P50, m.P99, m.Max, m.Stalled, back)
}

// write writes what the command line asks for.
func (r *report) write() error {
	o := r.opts
	return firstError(
		to(o.markdown, func(w io.Writer) error {
			fmt.Fprintf(w, "%d loaders and %d constructors, processes of their own; 8 ranks; %d steps a run (%d at the slower pace), on %d cores; roles start again %v after their end.\n\n%s", o.loaders, o.constructors, o.steps, o.slowSteps, runtime.NumCPU(), o.restart, header)
			for _, m := range r.runs {
				if _, err := io.WriteString(w, m.row()); err != nil {
					return err
				}
			}
			return nil
		}),
		to(o.json, func(w io.Writer) error {
			lines := json.NewEncoder(w)
			for _, m := range r.runs {
				if err := lines.Encode(m); err != nil {
					return err
				}
			}
			return nil
		}),
		to(o.svg, func(w io.Writer) error { return draw(w, r.runs) }),
	)
}

// to writes a file; "" writes none.
func to(path string, f func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f(file); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
