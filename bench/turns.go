package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// The two versions that a comparison runs.
const (
	before = iota
	now
)

var versionNames = [2]string{"before", "now"}

// turns compares this program with the one of another commit: each turn runs a scenario once of
// both, so that whatever else the machine does slows both, and who begins changes with the turn.
type turns struct {
	programs [2]string
	dir      string
	report   *report
}

// runTurns runs scenarios in turns with the program of a commit, and prints what changed. A
// scenario that only simulates takes no part: its figures are the same at any time.
func runTurns(ctx context.Context, cfg *config, commit, only string) error {
	t := &turns{dir: cfg.dir, report: cfg.report}
	var err error
	if t.programs[now], err = os.Executable(); err != nil {
		return err
	}
	if t.programs[before], err = buildAt(ctx, commit, filepath.Join(cfg.dir, "tree")); err != nil {
		return fmt.Errorf("building the bench of %s: %w", commit, err)
	}
	wanted, err := named(only)
	if err != nil {
		return err
	}
	for _, name := range wanted {
		if name == "trainsim" && only == "" {
			continue
		}
		if err := t.scenario(ctx, name, cfg.runs); err != nil {
			return fmt.Errorf("scenario %s: %w", name, err)
		}
	}
	return nil
}

// buildAt builds the bench of a commit from a copy of its tree.
func buildAt(ctx context.Context, commit, dir string) (program string, err error) {
	top, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("run it in a checkout of the repository: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tree := exec.CommandContext(ctx, "git", "-C", strings.TrimSpace(string(top)), "archive", commit)
	unpack := exec.CommandContext(ctx, "tar", "-x", "-C", dir)
	tree.Stderr, unpack.Stderr = os.Stderr, os.Stderr
	if unpack.Stdin, err = tree.StdoutPipe(); err != nil {
		return "", err
	}
	if err := errors.Join(tree.Start(), unpack.Run(), tree.Wait()); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "bench.program")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", program, "./bench")
	build.Dir, build.Stderr = dir, os.Stderr
	return program, build.Run()
}

// scenario runs one scenario in turns, and prints its comparison.
func (t *turns) scenario(ctx context.Context, name string, count int) error {
	var all [2][]result
	for turn := range count {
		for _, version := range [][2]int{{before, now}, {now, before}}[turn%2] {
			results, err := t.once(ctx, name, version)
			if err != nil {
				return fmt.Errorf("%s: %w", versionNames[version], err)
			}
			all[version] = append(all[version], results...)
		}
		fmt.Fprintf(os.Stderr, "%s: turn %d of %d\n", name, turn+1, count)
	}
	t.report.title("%s, %d turns, load %s", name, count, load())
	return t.report.sideBySide(compareTurns(all))
}

// once runs a scenario in a process of its own, and returns its results.
func (t *turns) once(ctx context.Context, name string, version int) ([]result, error) {
	out := filepath.Join(t.dir, "results.jsonl")
	inputs := filepath.Join(t.dir, versionNames[version])
	if err := errors.Join(os.MkdirAll(inputs, 0o755), os.RemoveAll(out)); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, t.programs[version], "-scenario", name, "-runs", "1", "-inputs", inputs, "-out", out)
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return readResults(out)
}

// readResults reads what a report wrote. A line that is no result, such as the machine's, is passed over.
func readResults(path string) (results []result, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 16<<20); lines.Scan(); {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		if len(r.Values) > 0 {
			results = append(results, r)
		}
	}
	return results, lines.Err()
}

// comparison is a measurement of two versions: the median of each turn.
type comparison struct {
	Scenario string       `json:"scenario"`
	Name     string       `json:"name"`
	Unit     string       `json:"unit"`
	Less     bool         `json:"less_is_better,omitempty"`
	Turns    [2][]float64 `json:"turns"` // before, now
}

// comparedExtras are the further measurements that are compared. Less is better of all.
var comparedExtras = []string{allCPU, "p99"}

// compareTurns sorts the results of all turns by measurement, in their order.
func compareTurns(all [2][]result) (rows []*comparison) {
	add := func(version int, r *result, name, unit string, less bool, value float64) {
		i := slices.IndexFunc(rows, func(c *comparison) bool { return c.Scenario == r.Scenario && c.Name == name && c.Unit == unit })
		if i < 0 {
			i = len(rows)
			rows = append(rows, &comparison{Scenario: r.Scenario, Name: name, Unit: unit, Less: less})
		}
		rows[i].Turns[version] = append(rows[i].Turns[version], value)
	}
	for version, results := range all {
		for i := range results {
			r := &results[i]
			add(version, r, r.Name, r.Unit, r.Less, median(r.Values))
			for _, extra := range comparedExtras {
				if values := r.Extra[extra]; len(values) > 0 {
					add(version, r, r.Name, extra, true, median(values))
				}
			}
		}
	}
	return rows
}

// ratios are now / before of each turn.
func (c *comparison) ratios() (ratios []float64) {
	for i := range min(len(c.Turns[before]), len(c.Turns[now])) {
		ratios = append(ratios, c.Turns[now][i]/c.Turns[before][i])
	}
	return ratios
}

// better is in how many turns this version was better.
func (c *comparison) better() (n int) {
	for _, r := range c.ratios() {
		if r != 1 && (r < 1) == c.Less {
			n++
		}
	}
	return n
}

// sideBySide prints comparisons as a Markdown table and appends them to the file.
func (r *report) sideBySide(rows []*comparison) error {
	fmt.Fprintf(r.out, "| measurement | unit | before | now | now / before: median, least to most | now is better |\n|---|---|--:|--:|--:|--:|\n")
	var errs []error
	for _, c := range rows {
		errs = append(errs, r.json(c))
		ratios := c.ratios()
		if len(ratios) == 0 {
			fmt.Fprintf(r.out, "| %s | %s | of one version only | | | |\n", c.Name, c.Unit)
			continue
		}
		fmt.Fprintf(r.out, "| %s | %s | %s | %s | %.3f, %.3f to %.3f | %d of %d |\n", c.Name, c.Unit, figure(median(c.Turns[before])), figure(median(c.Turns[now])),
			median(ratios), slices.Min(ratios), slices.Max(ratios), c.better(), len(ratios))
	}
	fmt.Fprintln(r.out)
	return errors.Join(errs...)
}
