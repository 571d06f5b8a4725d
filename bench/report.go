package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
)

// result is one measurement of a scenario: a line of the JSON file.
type result struct {
	Scenario string               `json:"scenario"`
	Name     string               `json:"name"`
	Unit     string               `json:"unit"` // of Values
	Values   []float64            `json:"values"`
	Less     bool                 `json:"less_is_better,omitempty"`
	Best     float64              `json:"best"`
	Median   float64              `json:"median"`
	Extra    map[string][]float64 `json:"extra,omitempty"` // further measurements
}

// sample is one run of a measurement.
type sample struct {
	value float64
	extra map[string]float64
}

func (r *result) add(s sample) {
	r.Values = append(r.Values, s.value)
	for k, v := range s.extra {
		if r.Extra == nil {
			r.Extra = map[string][]float64{}
		}
		r.Extra[k] = append(r.Extra[k], v)
	}
}

func (r *result) summarize() {
	r.Best, r.Median = slices.Max(r.Values), median(r.Values)
	if r.Less {
		r.Best = slices.Min(r.Values)
	}
}

// report prints tables for people and appends JSON lines for programs.
type report struct {
	out  io.Writer
	file *os.File
}

func newReport(out io.Writer, path string) (*report, error) {
	r := &report{out: out}
	if path != "" {
		var err error
		if r.file, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return nil, err
		}
	}
	m := machine()
	fmt.Fprintf(out, "Machine: %s\n", m)
	return r, r.json(map[string]string{"machine": m})
}

func (r *report) close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

func (r *report) json(v any) error {
	if r.file == nil {
		return nil
	}
	return json.NewEncoder(r.file).Encode(v)
}

// note prints a line of context below a table.
func (r *report) note(format string, args ...any) {
	fmt.Fprintf(r.out, format+"\n", args...)
}

// title begins a scenario.
func (r *report) title(format string, args ...any) {
	fmt.Fprintf(r.out, "\n## "+format+"\n\n", args...)
}

// table prints results as a Markdown table and appends them to the file. Rates
// are compared with the first. extras are the keys of Extra that get a column.
func (r *report) table(results []result, extras ...string) error {
	fmt.Fprintf(r.out, "| measurement | unit | median | best | first / this |")
	for _, e := range extras {
		fmt.Fprintf(r.out, " %s |", e)
	}
	fmt.Fprintf(r.out, "\n|---|---|--:|--:|--:|%s\n", strings.Repeat("--:|", len(extras)))
	var errs []error
	for i := range results {
		res := &results[i]
		res.summarize()
		fmt.Fprintf(r.out, "| %s | %s | %s | %s | ", res.Name, res.Unit, figure(res.Median), figure(res.Best))
		if !res.Less && !results[0].Less {
			fmt.Fprintf(r.out, "%.2f ", results[0].Median/res.Median)
		}
		fmt.Fprint(r.out, "|")
		for _, e := range extras {
			if v, ok := res.Extra[e]; ok {
				fmt.Fprintf(r.out, " %s |", figure(median(v)))
			} else {
				fmt.Fprintf(r.out, " |")
			}
		}
		fmt.Fprintln(r.out)
		errs = append(errs, r.json(res))
	}
	fmt.Fprintln(r.out)
	return errors.Join(errs...)
}

// figure prints three significant digits.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	if n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[n/2]
}

// machine describes the machine of the figures.
func machine() string {
	return fmt.Sprintf("%s, %d cores (GOMAXPROCS %d), %s %s/%s, load %s",
		processor(), runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.Version(), runtime.GOOS, runtime.GOARCH, load())
}

func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}

// load is the load average of the last minute.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(data), " ")
	return one
}
