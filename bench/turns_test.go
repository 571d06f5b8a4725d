package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCompare puts the turns of two versions side by side, with what one of them alone measured.
func TestCompare(t *testing.T) {
	rate := func(v, cpu float64) result {
		return result{Scenario: "text", Name: "service", Unit: "M tokens/s", Values: []float64{v}, Extra: map[string][]float64{allCPU: {cpu}, megabytes: {1}}}
	}
	cycle := func(values ...float64) result {
		return result{Scenario: "text", Name: "cycle", Unit: "ms", Values: values, Less: true}
	}
	rows := compareTurns([2][]result{
		{rate(10, 2), cycle(5, 1, 3), rate(20, 2), cycle(6, 6, 6)},
		{rate(11, 1), cycle(6, 6, 6), rate(10, 3), cycle(3, 3, 3), {Scenario: "text", Name: "new", Unit: "ms", Values: []float64{1}}},
	})
	var got []string
	for _, c := range rows {
		got = append(got, c.Name+" "+c.Unit)
	}
	if want := []string{"service M tokens/s", "service " + allCPU, "cycle ms", "new ms"}; !slices.Equal(got, want) {
		t.Fatalf("the rows are %q, want %q", got, want)
	}
	for i, want := range [][]float64{{1.1, 0.5}, {0.5, 1.5}, {2, 0.5}, nil} {
		if !slices.Equal(rows[i].ratios(), want) {
			t.Errorf("%s: the ratios are %v, want %v", got[i], rows[i].ratios(), want)
		}
	}
	for i, want := range []int{1, 1, 1, 0} {
		if rows[i].better() != want {
			t.Errorf("%s is better in %d turns, want %d", got[i], rows[i].better(), want)
		}
	}
	path := filepath.Join(t.TempDir(), "out.jsonl")
	var text strings.Builder
	r, err := newReport(&text, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.table([]result{rate(10, 2)}); err != nil {
		t.Fatal(err)
	}
	if err := r.sideBySide(rows); err != nil {
		t.Fatal(err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"| service | M tokens/s | 15.0 | 10.5 | 0.800, 0.500 to 1.100 | 1 of 2 |", "| new | ms | of one version only |"} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("the table has no line %q:\n%s", line, text.String())
		}
	}
	results, err := readResults(path)
	if err != nil || len(results) != 1 || results[0].Name != "service" || results[0].Values[0] != 10 {
		t.Errorf("what a report wrote reads as %+v, %v", results, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
