package preview_test

import (
	"fmt"
	"math"
	"math/bits"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/preview"
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
			got, err := r.open(t, st, nil).Report(t.Context(), preview.ReportOptions{Steps: r.limit(), StepTime: time.Second, Each: func(l *preview.Line) error {
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
				if s.Drawn != want.drawn[s.Name] || s.Documents != want.from[s.Name] || s.Tokens != want.rows[s.Name] {
					t.Errorf("source %d, %s: %d tokens drawn, %d documents of %d tokens, want %d, %d, %d", i, s.Name, s.Drawn, s.Documents, s.Tokens, want.drawn[s.Name], want.from[s.Name], want.rows[s.Name])
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
	drawn, from, rows              map[string]int64 // of sources: tokens drawn, documents, tokens in rows
	lengths                        [32]int64
}

func totalsOf(steps []*reference.Step) totals {
	sum := totals{drawn: map[string]int64{}, from: map[string]int64{}, rows: map[string]int64{}}
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
				sum.rows[p.Source] += int64(n)
				sum.lengths[bits.Len32(uint32(n))]++
			}
		}
	}
	return sum
}

// checkNumbers checks what must hold between the numbers of any report.
func checkNumbers(t *testing.T, r *preview.Report) {
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

// TestHops holds what a step moves against the rows of the reference, with kept columns
// and with images, whose pixels are made on either side.
func TestHops(t *testing.T) {
	st := files()
	r := recipes[7]
	r.spec = strings.Replace(r.spec, "    chunk_bytes: 2000\n", "    chunk_bytes: 2000\n    keep: [lang, id]\n", 1)
	r.spec = strings.Replace(r.spec, "dp: 2, cp: 2", "dp: 2, cp: 2, tp: 2", 1)
	for _, decode := range []string{"constructor", "loader"} {
		r.spec = strings.NewReplacer("{columns: png, decode: constructor,", "{columns: png, decode: loader,", "{columns: png, token", "{columns: png, decode: "+decode+", token").Replace(r.spec)
		hops := func(r recipe) []preview.Hop {
			got, err := r.open(t, st, nil).Report(t.Context(), preview.ReportOptions{Steps: r.limit()})
			if err != nil {
				t.Fatal(err)
			}
			return got.Hops
		}
		var fetched, kept, values, images, pixels int
		steps := r.solve(t, st)
		for _, s := range steps {
			for _, row := range s.Rows {
				for _, tokens := range row.Segments {
					fetched += 4*len(tokens) + 4
				}
				for _, v := range row.Kept {
					kept, values = kept+len(v.Data), values+1
				}
				for _, x := range row.Images {
					images, pixels = images+1, pixels+x.H*x.W*14*14*3
					if decode == "constructor" {
						fetched += len(x.Data)
					}
				}
			}
		}
		if decode == "loader" {
			fetched += pixels
		}
		got := hops(r)
		if want := float64(fetched+kept) / float64(len(steps)); values < 100 || images < 50 || math.Abs(got[1].Bytes-want) > 1e-6 {
			t.Errorf("decode %s: constructors fetch %v bytes, want %v", decode, got[1].Bytes, want)
		}
		bare := r
		bare.spec = strings.Replace(bare.spec, "    keep: [lang, id]\n", "", 1)
		// Ranks with the row: 2 x 2 of cp and tp.
		if more, want := got[2].Bytes-hops(bare)[2].Bytes, 4*float64(kept+32*values)/float64(len(steps)); math.Abs(more-want) > 1e-6 {
			t.Errorf("decode %s: trainers receive %v bytes more for what they keep, want %v", decode, more, want)
		}
		if got[2].Bytes < float64(pixels)/float64(len(steps)) {
			t.Errorf("decode %s: trainers receive %v bytes, pixels alone are %v", decode, got[2].Bytes, float64(pixels)/float64(len(steps)))
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
		r, err := c.r.open(t, st, nil).Report(t.Context(), preview.ReportOptions{Steps: c.r.limit()})
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
		r, err := job.open(t, files(), nil).Report(t.Context(), preview.ReportOptions{Steps: 3})
		if err != nil {
			t.Fatal(err)
		}
		held, disk := r.Memory[0], preview.Memory{}
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

// TestHeaviest: where a single sample costs more than a rank's share, the report names
// it, its place and its cost beside the mean.
func TestHeaviest(t *testing.T) {
	st := files()
	for _, c := range []struct {
		strategy string
		of       func(row *batch.Row, document int) int64
		what     string
		mend     string
	}{
		{"strategy: [distribute: dp, cost: {expression: tokens * tokens * tokens}, balance: auto]", func(row *batch.Row, document int) int64 {
			n := int64(len(row.Segments[document]))
			return n * n * n
		}, "token", "splitting long documents does"},
		{"strategy: [graph: image, distribute: world, cost: {expression: patches * patches}, balance: auto]", func(row *batch.Row, document int) (most int64) {
			for _, x := range row.Images {
				if n := int64(x.H * x.W); x.Document == document {
					most = max(most, n*n)
				}
			}
			return most
		}, "image ", "smaller images do, or more of them in a step"},
	} {
		r := recipes[7]
		r.spec = r.spec[:strings.Index(r.spec, "strategy:")] + c.strategy + "\n"
		r.spec = strings.Replace(r.spec, "dp: 2, cp: 2", "dp: 8, cp: 1", 1)
		got, err := r.open(t, st, nil).Report(t.Context(), preview.ReportOptions{Steps: r.limit()})
		if err != nil {
			t.Fatal(err)
		}
		m := got.Modules[2]
		if m.ItemBound < 2 {
			t.Fatalf("%s: no step is bound by an item: %+v", c.strategy, m)
		}
		s := r.solve(t, st)[m.FirstItem]
		var most int64
		var at reference.Place
		for row := range s.Rows {
			for document, p := range s.Places[row] {
				if units := c.of(&s.Rows[row], document); units > most {
					most, at = units, p
				}
			}
		}
		want := fmt.Sprintf("%s row %d of source %q", at.File, at.Row, at.Source)
		all := strings.Join(got.Warnings, "\n")
		if !strings.HasPrefix(m.Heaviest, want) || !strings.Contains(m.Heaviest, fmt.Sprintf("costs %d, ", most)) || !strings.Contains(m.Heaviest, c.what) || !strings.Contains(all, ", where "+want) || !strings.Contains(all, c.mend) {
			t.Errorf("%s: it names %s, want %s with cost %d; the warnings are\n%s", c.strategy, m.Heaviest, want, most, all)
		}
	}
}

// TestBound: a document or an image is blamed only where it costs more than a rank's mean;
// where rows as they are packed keep ranks from being even, the report says that.
func TestBound(t *testing.T) {
	st := files()
	for _, c := range []struct {
		dp          int
		tokens      string // of a sample: what it costs
		rows, items bool
	}{
		{2, "tokens", false, false},
		{4, "tokens * tokens", true, false},
		{8, "tokens * tokens", false, true},
	} {
		spec := fmt.Sprintf("batch: {sequence_length: 512, sequences: 8}\ntopology: {dp: %d}\nstrategy: [distribute: dp, cost: {expression: %s}, balance: auto]\n", c.dp, c.tokens)
		got, err := recipe{spec: sources + stages + spec}.open(t, st, nil).Report(t.Context(), preview.ReportOptions{Steps: 20})
		if err != nil {
			t.Fatal(err)
		}
		m, all := got.Modules[2], strings.Join(got.Warnings, "\n")
		if (m.RowBound > 0) != c.rows || (m.ItemBound > 0) != c.items || (m.LeastRow > 1.02) != c.rows || m.LeastRow > m.Worst || (m.FirstRow >= 0) != c.rows {
			t.Errorf("dp %d, %s: %+v", c.dp, c.tokens, m)
		}
		if strings.Contains(all, "bound by rows as they are packed") != c.rows || strings.Contains(all, "splitting long documents does") != c.items {
			t.Errorf("dp %d, %s: the warnings are\n%s", c.dp, c.tokens, all)
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
	got, err := r.open(t, st, nil).Report(t.Context(), preview.ReportOptions{Steps: -1})
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

// TestEndedBy names the source whose end is that of the data, which no other source has reached.
func TestEndedBy(t *testing.T) {
	r := recipes[2]
	got, err := r.open(t, files(), nil).Report(t.Context(), preview.ReportOptions{Steps: -1})
	if err != nil {
		t.Fatal(err)
	}
	ended := 0
	for _, s := range got.Sources[:2] {
		says := fmt.Sprintf("the data ends after %d steps, where source %q is exhausted (mix.exhausted: stop)", got.End, s.Name)
		over := s.Epochs == 1
		if over {
			ended++
		}
		if over != strings.Contains(strings.Join(got.Warnings, "\n"), says) || over != (s.ExhaustedAt == got.End) || !over && s.ExhaustedAt >= 0 {
			t.Errorf("%s is exhausted at %d of %d, after %v epochs: %q", s.Name, s.ExhaustedAt, got.End, s.Epochs, got.Warnings)
		}
	}
	if ended != 1 {
		t.Errorf("%d sources ended", ended)
	}
}

// TestTimeline plans more steps than a series has points.
func TestTimeline(t *testing.T) {
	r := recipe{spec: sources + `
mix: {weights: {chat: 0.5, books: 0.4, capped: 0.1}}
batch: {sequence_length: 512, sequences: 1}
`}
	got, err := r.open(t, files(), nil).Report(t.Context(), preview.ReportOptions{Steps: 1500})
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
func withSpeed(r *preview.Report) *preview.Report {
	r.Speed.Cores, r.Speed.SamplesNeeded = r.Speed.SecondsPerStep, r.Speed.SamplesPerStep
	return r
}

// TestFills: a report of a job whose rows are evened compares values of batch.fill, and
// others do not.
func TestFills(t *testing.T) {
	st := files()
	for _, r := range recipes {
		if r.name != "balanced" && r.name != "padded documents" {
			continue
		}
		got, err := r.open(t, st, nil).Report(t.Context(), preview.ReportOptions{Steps: 3})
		if err != nil {
			t.Fatal(err)
		}
		if r.name != "balanced" {
			if got.Fills != nil || got.BestFill != 0 {
				t.Errorf("%s: fills %+v, best %d", r.name, got.Fills, got.BestFill)
			}
			continue
		}
		best := -1
		for i, f := range got.Fills {
			t.Logf("%+v", f)
			if want := float64(f.Fill) / 1000; f.Tokens > want+0.06 || f.Tokens < want-0.06 || f.Slowest < 1 || i > 0 && f.Tokens > got.Fills[i-1].Tokens {
				t.Errorf("fill %d: %.4f of the tokens, the slowest rank %.4f of the mean", f.Fill, f.Tokens, f.Slowest)
			}
			if f.Fill == got.BestFill {
				best = i
			}
		}
		if best < 0 {
			t.Fatalf("fill %d is recommended, of %+v", got.BestFill, got.Fills)
		}
		for _, f := range got.Fills {
			if f.Slowest < got.Fills[best].Slowest/1.0011 {
				t.Errorf("fill %d is recommended, and %d has %.4f in place of %.4f", got.BestFill, f.Fill, f.Slowest, got.Fills[best].Slowest)
			}
		}
	}
}
