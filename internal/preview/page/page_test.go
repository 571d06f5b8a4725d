package page_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/preview/page"
)

// report is one with a number of sources, and points in each series.
func report(sources, points int) *preview.Report {
	r := &preview.Report{
		Job: `demo <1> & "2"`, Identity: "0a1b", Mesh: "tp1 cp2 dp4 pp1", First: 100, Steps: int64(points), End: 5100, Documents: 1234567, Tokens: 16000000, Padding: 384000, Fill: 0.9766,
		Worst: preview.StepFill{Step: 117, Fill: 0.9123}, Plan: "c0ffee",
		Modules:  []preview.ModuleReport{{Name: "text", Model: "quadratic", Axis: "dp", Mean: 1.0123, Worst: 1.25, WorstStep: 120, Lockstep: 1.03, ItemBound: 3, FirstItem: 111}},
		Lengths:  []preview.Bin{{From: 1, To: 1, Documents: 5}, {From: 2, To: 3, Documents: 70}},
		Hops:     []preview.Hop{{From: "loaders", To: "constructors", Bytes: 65536, What: "tokens", Basis: preview.Derived}},
		Memory:   []preview.Memory{{Role: "loaders", Bytes: 48 << 20, Budget: 64 << 20, What: "samples", Basis: preview.Measured}},
		Speed:    preview.Speed{SamplesPerStep: 75.5, TokensPerStep: 32000, SamplesPerSecond: 20500, SecondsPerStep: 0.004, StepTime: 2, SamplesNeeded: 37.75, Cores: 0.002},
		Warnings: []string{`source "late" is exhausted at step 42`},
		Timeline: preview.Timeline{First: 100, Width: 8},
	}
	wave := make([]float64, points)
	for i := range wave {
		wave[i] = 0.9 + float64(i%7)/100
	}
	for _, name := range []string{"fill", "fill.min", "tokens", "padding", "documents", "balance.text"} {
		r.Timeline.Series = append(r.Timeline.Series, preview.Series{Name: name, Values: wave})
	}
	for i := range sources {
		s := preview.SourceReport{Name: fmt.Sprintf("source-%d", i), Files: 12, Bytes: 3 << 30, Tokens: 123456789, Documents: 98765, Share: 0.2512, Scheduled: 0.25, Epochs: 1.75, ExhaustedAt: -1}
		r.Sources = append(r.Sources, s)
		r.Timeline.Series = append(r.Timeline.Series, preview.Series{Name: "share." + s.Name, Values: wave}, preview.Series{Name: "scheduled." + s.Name, Values: wave})
	}
	return r
}

func write(t *testing.T, r *preview.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := page.Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPage checks that the page says the key numbers, in words a person reads.
func TestPage(t *testing.T) {
	html := write(t, report(3, 60))
	for _, says := range []string{
		"demo &lt;1&gt; &amp; &#34;2&#34;", "97.66 %", "lowest 91.23 %, step 117", "step 5100", "20.5k", "at 2 s a step: 37.8 samples a second",
		"source &#34;late&#34; is exhausted at step 42", "<td>25.12 %</td><td>25 %</td><td>1.75</td>", "123\u202f456\u202f789", "3 GiB",
		"<td>1.012</td><td>1.25</td><td>120</td><td>1.03</td><td>3</td><td>step 111</td>", "<td>64 KiB</td>", "width: 75.0%", "2 to 3 tokens: 70 documents", "c0ffee",
	} {
		if !strings.Contains(html, says) {
			t.Errorf("the page does not say %q", says)
		}
	}
	if n := strings.Count(html, "<article"); n != 6 {
		t.Errorf("%d charts, want 6", n)
	}
}

var outside = regexp.MustCompile(`(?i)https?:|src\s*=|href\s*=|<script|<link|@import|url\(`)

// TestPageStandsAlone reads pages as XML, which HTML need not be but these are,
// and looks for anything that would be fetched.
func TestPageStandsAlone(t *testing.T) {
	for name, r := range map[string]*preview.Report{
		"usual": report(10, 512), "one step": report(1, 1), "no step": {Job: "empty", End: 0}, "many sources": report(300, 512),
	} {
		html := write(t, r)
		if ref := outside.FindString(html); ref != "" {
			t.Errorf("%s: the page refers to something outside: %s", name, ref)
		}
		if len(html) > 1<<20 {
			t.Errorf("%s: the page has %d bytes", name, len(html))
		}
		if strings.Contains(html, "NaN") || strings.Contains(html, "Inf") || strings.Contains(html, "ZgotmplZ") {
			t.Errorf("%s: a number or a style is none", name)
		}
		d := xml.NewDecoder(strings.NewReader(html))
		d.Strict, d.AutoClose, d.Entity = false, []string{"meta"}, xml.HTMLEntity
		for depth := 0; ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			switch token.(type) {
			case xml.StartElement:
				depth++
			case xml.EndElement:
				if depth--; depth < 0 {
					t.Fatalf("%s: an element ends that did not begin", name)
				}
			}
		}
	}
}

func ExampleWrite() {
	var b bytes.Buffer
	err := page.Write(&b, &preview.Report{Job: "demo", End: -1})
	fmt.Println(strings.Contains(b.String(), "<title>demo: preflight</title>"), err)
	// Output: true <nil>
}
