package telemetry

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the list of metrics into docs/telemetry.md")

var shapes = struct{ name, label, unit *regexp.Regexp }{
	regexp.MustCompile(`^(millrace|process|go)(\.[a-z]+(_[a-z]+)*)+$`),
	regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`),
	regexp.MustCompile(`^(|1|s|By|By/s|\{[a-z]+\})$`),
}

// TestMetrics: each metric has a name, a unit and a sentence that fit OpenTelemetry's rules, and
// Prometheus tells all names apart.
func TestMetrics(t *testing.T) {
	seen := map[string]bool{}
	for id, m := range Metrics {
		if !shapes.name.MatchString(m.Name) || !shapes.unit.MatchString(m.Unit) || m.Kind != Counter && m.Kind != Gauge {
			t.Errorf("metric %d: name %q, unit %q, kind %q", id, m.Name, m.Unit, m.Kind)
		}
		if n := m.Prometheus(); seen[n] {
			t.Errorf("two metrics are %s", n)
		} else {
			seen[n] = true
		}
		if !strings.HasSuffix(m.Help, ".") || strings.Contains(m.Help, "|") {
			t.Errorf("%s: the help is no sentence for a table: %q", m.Name, m.Help)
		}
		for _, l := range m.Labels {
			if !shapes.label.MatchString(l) {
				t.Errorf("%s: label %q", m.Name, l)
			}
		}
	}
}

const page = "../../docs/telemetry.md"

// TestPage compares the page's list of metrics with Metrics.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(text, []byte("<!-- metrics -->\n"))
	_, after, ended := bytes.Cut(rest, []byte("<!-- end of metrics -->\n"))
	if !ok || !ended {
		t.Fatalf("%s has no place for the list", page)
	}
	want := slices.Concat(before, []byte("<!-- metrics -->\n"+list()+"<!-- end of metrics -->\n"), after)
	if *rewrite {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(text, want) {
		t.Errorf("%s does not list the metrics as they are: run `make generate`", page)
	}
}

func list() string {
	var b strings.Builder
	b.WriteString("| metric (Prometheus) | OpenTelemetry, unit | labels | what it is |\n|---|---|---|---|\n")
	for _, m := range Metrics {
		unit := ""
		if m.Unit != "" {
			unit = ", " + m.Unit
		}
		fmt.Fprintf(&b, "| `%s` | `%s`%s | %s | %s |\n", m.Prometheus(), m.Name, unit, strings.Join(m.Labels, ", "), m.Help)
	}
	return b.String()
}

// TestSampled: a step is traced by its number alone, and by nobody whom nobody asked for it.
func TestSampled(t *testing.T) {
	if (*Board)(nil).TraceEvery() != 0 {
		t.Error("a board that is not there has steps traced")
	}
	all := NewBoard(func(Span) {}, 7)
	for _, c := range []struct {
		step, every uint64
		want        bool
	}{{0, 0, false}, {100, 0, false}, {0, 100, true}, {99, 100, false}, {200, 100, true}, {7, 1, true}} {
		if got := all.Traces(c.step, c.every); got != c.want {
			t.Errorf("step %d of every %d: %v", c.step, c.every, got)
		}
		if (*Board)(nil).Traces(c.step, c.every) || NewBoard(nil, 0).Traces(c.step, c.every) {
			t.Errorf("step %d of every %d is traced by nobody", c.step, c.every)
		}
	}
}

// TestTraceIDs: the numbers of a step's trace and spans were computed by sha256sum, as docs/bytes.md says.
func TestTraceIDs(t *testing.T) {
	s := StepID{Generation: 2, Step: 300}
	for i := range s.Identity {
		s.Identity[i] = byte(i)
	}
	if got := fmt.Sprintf("%x", s.Trace()); got != wantTrace {
		t.Errorf("the trace is %s, want %s", got, wantTrace)
	}
	if got := fmt.Sprintf("%x", s.Span(SpanDeliver, "dp=1 cp=0 pp=0 tp=0")); got != wantSpan {
		t.Errorf("the span is %s, want %s", got, wantSpan)
	}
}

const (
	wantTrace = "57b1dedeac727e3d10d3b4f0cebf0084"
	wantSpan  = "9dbc1efabbdc05ab"
)

// TestEnvironment: what metrics call an environment has no part of its name, and differs from that of another one.
func TestEnvironment(t *testing.T) {
	a, b := Environment("/home/jane/bin/python with /data/secret"), Environment("/home/jane/bin/python with /data/other")
	if a == b || a != Environment("/home/jane/bin/python with /data/secret") || !regexp.MustCompile(`^python-[0-9a-f]{8}$`).MatchString(a) {
		t.Errorf("the labels are %s and %s", a, b)
	}
}
