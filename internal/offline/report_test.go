package offline_test

import (
	"math"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/offline"
	"github.com/millrace-data/millrace/internal/reference"
)

// TestReport holds the totals of a report against the reference reader.
func TestReport(t *testing.T) {
	st := files()
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			want := totalsOf(r.solve(t, st))
			lines := int64(0)
			got, err := r.open(t, st, nil).Report(t.Context(), offline.ReportOptions{Steps: r.limit(), StepTime: time.Second, Each: func(l *offline.Line) error {
				if l.Step != lines || l.Fill <= 0 || len(l.Plan) != 64 {
					t.Errorf("line %d is %+v", lines, l)
				}
				lines++
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			if got.Steps != want.steps || lines != want.steps || got.Documents != want.documents || got.Tokens != want.tokens || got.Padding != want.room-want.tokens {
				t.Errorf("the report has %d steps, %d documents, %d tokens, %d of padding, want %+v", got.Steps, got.Documents, got.Tokens, got.Padding, want)
			}
			if fill := float64(want.tokens) / float64(want.room); math.Abs(got.Fill-fill) > 1e-12 {
				t.Errorf("rows are %v full, want %v", got.Fill, fill)
			}
			for i, s := range got.Sources {
				if s.Drawn != want.drawn[s.Name] || s.Documents != want.from[s.Name] {
					t.Errorf("source %d, %s: %d tokens, %d documents, want %d, %d", i, s.Name, s.Drawn, s.Documents, want.drawn[s.Name], want.from[s.Name])
				}
			}
			for _, b := range got.Lengths {
				if n := want.lengths[bits.Len32(uint32(b.From))]; b.Documents != n || b.To != 2*b.From-1 {
					t.Errorf("%d documents of %d to %d tokens, want %d", b.Documents, b.From, b.To, n)
				}
			}
			checkNumbers(t, got)
		})
	}
}

// totals sum up steps.
type totals struct {
	steps, documents, tokens, room int64
	drawn, from                    map[string]int64
	lengths                        [32]int64
}

func totalsOf(steps []*reference.Step) totals {
	sum := totals{drawn: map[string]int64{}, from: map[string]int64{}}
	for _, s := range steps {
		sum.steps++
		sum.room += int64(len(s.Rows) * s.SequenceLength)
		for i, n := range s.Drawn {
			sum.drawn[s.Sources[i]] += n
		}
		for row, places := range s.Places {
			for k, p := range places {
				n := len(s.Rows[row].Segments[k])
				sum.documents++
				sum.tokens += int64(n)
				sum.from[p.Source]++
				sum.lengths[bits.Len32(uint32(n))]++
			}
		}
	}
	return sum
}

// checkNumbers checks what must hold between the numbers of any report.
func checkNumbers(t *testing.T, r *offline.Report) {
	t.Helper()
	share, scheduled := 0.0, 0.0
	for _, s := range r.Sources {
		share, scheduled = share+s.Share, scheduled+s.Scheduled
		if s.Samples > 0 && s.SamplesPerSecond <= 0 {
			t.Errorf("%s gave %d samples at %v a second", s.Name, s.Samples, s.SamplesPerSecond)
		}
	}
	if math.Abs(share-1) > 1e-9 || math.Abs(scheduled-1) > 1e-6 {
		t.Errorf("shares sum to %v, scheduled ones to %v", share, scheduled)
	}
	for _, m := range r.Modules {
		if m.Mean < 1 || m.Worst < m.Mean-1e-9 || m.Lockstep > 0 && m.Lockstep < m.Mean-1e-9 {
			t.Errorf("balance cannot be %+v", m)
		}
	}
	if s := r.Speed; s.SecondsPerStep <= 0 || math.Abs(s.Cores-s.SecondsPerStep) > 1e-9 || s.SamplesNeeded != s.SamplesPerStep {
		t.Errorf("at one step a second speed cannot be %+v", s)
	}
	if len(r.Hops) != 3 || len(r.Memory) != 3 {
		t.Errorf("%d hops, %d roles", len(r.Hops), len(r.Memory))
	}
	for _, h := range r.Hops {
		if h.Bytes <= 0 || h.Basis == "" {
			t.Errorf("hop %+v", h)
		}
	}
	for _, m := range r.Memory {
		if m.Bytes <= 0 || m.Basis == "" {
			t.Errorf("memory %+v", m)
		}
	}
	for _, s := range r.Timeline.Series {
		if len(s.Values) != r.Timeline.Points() {
			t.Errorf("series %s has %d points, the timeline %d", s.Name, len(s.Values), r.Timeline.Points())
		}
	}
}

// TestWarnings plans jobs that each have something to look at.
func TestWarnings(t *testing.T) {
	st := files()
	for _, c := range []struct {
		r    recipe
		says []string
	}{
		{recipes[1], []string{"the data ends after", `source "capped" is exhausted at step`}},
		{recipes[2], []string{"the data ends after"}},
		{recipes[3], []string{"rows are"}}, // a sample a row
		{recipe{spec: sources + `
mix: {weights: {chat: 1, books: 0, capped: 0}}
batch: {sequence_length: 512, sequences: 4}
`, steps: 150}, []string{`source "books" is never drawn`, `most often "chat"`}},
		{recipe{spec: sources + stages + `
batch: {sequence_length: 512, sequences: 64}
resources: {loader_buffer: 1KiB, loader_disk: 1KiB, constructor_buffer: 1KiB}
`, steps: 3}, []string{"loaders hold", "the budget of one is 0 MiB", "constructors hold"}},
		{recipe{spec: strings.Replace(sources, "max: 100", "max: 100, rule: drop", 1) + stages + `
batch: {sequence_length: 512, sequences: 16}
`, steps: 20}, []string{`source "capped" loses`}},
	} {
		if strings.Contains(c.r.spec, "rule: truncate, max: 100, rule") {
			c.r.spec = strings.Replace(c.r.spec, "rule: truncate, ", "", 1)
		}
		r, err := c.r.open(t, st, nil).Report(t.Context(), offline.ReportOptions{Steps: c.r.limit()})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(r.Warnings, "\n")
		for _, says := range c.says {
			if !strings.Contains(all, says) {
				t.Errorf("no warning says %q:\n%s", says, all)
			}
		}
	}
}

// TestDiskNeeded says how much of a loader's local disk a job needs, if any.
func TestDiskNeeded(t *testing.T) {
	for _, c := range []struct {
		resources  string
		disk, warn bool
	}{
		{"{}", false, false},
		{"{loader_buffer: 1KiB}", true, false},
		{"{loader_buffer: 1KiB, loader_disk: 2KiB}", true, true},
		{"{loader_buffer: 1KiB, loader_disk: 0}", false, true},
	} {
		job := recipe{spec: sources + stages + "\nbatch: {sequence_length: 512, sequences: 8}\nresources: " + c.resources + "\n"}
		r, err := job.open(t, files(), nil).Report(t.Context(), offline.ReportOptions{Steps: 3})
		if err != nil {
			t.Fatal(err)
		}
		held, disk := r.Memory[0], offline.Memory{}
		for _, m := range r.Memory {
			if m.Role == "loaders' disk" {
				disk = m
			}
		}
		if (disk.Bytes > 0) != c.disk || c.disk && disk.Bytes != held.Bytes-held.Budget {
			t.Errorf("%s: loaders hold %+v, of it on the disk %+v", c.resources, held, disk)
		}
		if warned := strings.Contains(strings.Join(r.Warnings, "\n"), "loaders hold"); warned != c.warn {
			t.Errorf("%s: warned %v: %q", c.resources, warned, r.Warnings)
		}
	}
}

// TestExhausted finds the step from which on a source is missing, as the
// reference draws.
func TestExhausted(t *testing.T) {
	st, r := files(), recipes[1]
	last := map[string]int64{}
	steps := r.solve(t, st)
	for _, s := range steps {
		for i, n := range s.Drawn {
			if n > 0 {
				last[s.Sources[i]] = s.Step
			}
		}
	}
	got, err := r.open(t, st, nil).Report(t.Context(), offline.ReportOptions{Steps: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range got.Sources {
		want := last[s.Name] + 1
		if want >= int64(len(steps)) {
			want = -1
		}
		if s.ExhaustedAt != want || math.Abs(s.Epochs-2) > 0.01 {
			t.Errorf("%s is exhausted at %d after %v epochs, want %d after 2", s.Name, s.ExhaustedAt, s.Epochs, want)
		}
	}
}

// TestTimeline plans more steps than a series has points.
func TestTimeline(t *testing.T) {
	r := recipe{spec: sources + `
mix: {weights: {chat: 0.5, books: 0.4, capped: 0.1}}
batch: {sequence_length: 512, sequences: 1}
`}
	got, err := r.open(t, files(), nil).Report(t.Context(), offline.ReportOptions{Steps: 1500})
	if err != nil {
		t.Fatal(err)
	}
	if got.Timeline.Width != 4 || got.Timeline.Points() != 375 {
		t.Errorf("1500 steps become %d points of %d", got.Timeline.Points(), got.Timeline.Width)
	}
	sum, low := 0.0, 1.0
	for i, v := range got.Timeline.At("tokens").Values {
		sum += 4 * v
		low = min(low, got.Timeline.At("fill.min").Values[i])
	}
	if math.Abs(sum-float64(got.Tokens)) > 1 || low != got.Worst.Fill {
		t.Errorf("the points come to %v tokens, %v full at least; the report says %d, %v", sum, low, got.Tokens, got.Worst.Fill)
	}
	checkNumbers(t, withSpeed(got))
}

// withSpeed fills in what a report without a step time leaves out.
func withSpeed(r *offline.Report) *offline.Report {
	r.Speed.Cores, r.Speed.SamplesNeeded = r.Speed.SecondsPerStep, r.Speed.SamplesPerStep
	return r
}
