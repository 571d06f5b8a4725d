package main

import (
	"bytes"
	"encoding/xml"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/rig"
)

// TestMeasure runs two scenarios with few loaders: one without harm, and one whose loaders
// die, with a pace that no wait for them is hidden behind.
func TestMeasure(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "st") // a short path: sockets lie in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "millrace")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w", "-o", binary, "../../cmd/millrace").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("MILLRACE_ACCESS_KEY", "key-of-a-test-on-one-machine")
	data := filepath.Join(dir, "data")
	if err := rig.WriteFleet(data); err != nil {
		t.Fatal(err)
	}
	answer, err := rig.Solve(t.Context(), data, rig.Fleet(45), 4)
	if err != nil {
		t.Fatal(err)
	}
	o := options{binary: binary, dir: dir, loaders: 3, constructors: 2, steps: 45, restart: 100 * time.Millisecond}
	var runs []*measured
	for _, s := range scenarios {
		if s.name != "calm" && s.name != "loaders-40%" {
			continue
		}
		m := measure(t.Context(), o, answer, trial{scenario: s, pace: 20 * time.Millisecond, prefetch: 2, steps: 45}, map[int64][]byte{})
		if m.Error != "" || m.Steps != 45 || len(m.Longest) != 45 || m.Max <= 0 {
			t.Errorf("%+v", m)
		}
		if harmed := s.name != "calm"; harmed != (len(m.Harms) == 1) {
			t.Errorf("%s has harm after the steps %v", s.name, m.Harms)
		}
		runs = append(runs, m)
	}
	var drawing bytes.Buffer
	if err := draw(&drawing, runs); err != nil {
		t.Fatal(err)
	}
	elements := xml.NewDecoder(strings.NewReader(drawing.String()))
	lines := 0
	for {
		token, err := elements.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != len(runs) {
		t.Errorf("%d lines are drawn for %d runs", lines, len(runs))
	}
}
