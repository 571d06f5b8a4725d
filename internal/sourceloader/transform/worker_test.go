package transform

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

var tokenizeBytes jobspec.Transform = &jobspec.Tokenize{}

func text(template string) jobspec.Transform { return jobspec.Text(template) }
func where(expr string) jobspec.Transform    { return jobspec.Filter(expr) }
func ids(column string) jobspec.Transform    { return jobspec.Tokens(column) }
func eod(id int32) jobspec.Transform {
	return &jobspec.AppendEOD{ID: id}
}

func stringOf(s string) format.Value { return format.Value{Kind: format.String, Bytes: []byte(s)} }
func bytesOf(s string) format.Value  { return format.Value{Kind: format.Bytes, Bytes: []byte(s)} }
func intOf(i int64) format.Value     { return format.Value{Kind: format.Int, Int: i} }
func floatOf(f float64) format.Value { return format.Value{Kind: format.Float, Float: f} }
func boolOf(i int64) format.Value    { return format.Value{Kind: format.Bool, Int: i} }
func tokensOf(id ...int32) format.Value {
	return format.Value{Kind: format.Tokens, Tokens: id}
}
func listOf(v ...format.Value) format.Value { return format.Value{Kind: format.List, List: v} }

// columns are the values of a record by name; one that is absent is null.
type columns map[string]format.Value

// recordFor builds the record that a reader gives for the chain's columns.
func recordFor(c *Chain, row int64, values columns) *format.Record {
	rec := &format.Record{Row: row}
	for _, path := range c.Columns() {
		rec.Values = append(rec.Values, values[path])
	}
	return rec
}

// collect applies w to rec and returns copies of the samples.
func collect(w *Worker, rec *format.Record) ([]Sample, Outcome, error) {
	var samples []Sample
	outcome, err := w.Apply(context.Background(), rec, func(s *Sample) error {
		kept := *s
		kept.Tokens, kept.Masked = slices.Clone(s.Tokens), slices.Clone(s.Masked)
		if s.Extras != nil {
			kept.Extras = make([][]byte, len(s.Extras))
			for i, e := range s.Extras {
				kept.Extras[i] = slices.Clone(e)
			}
		}
		samples = append(samples, kept)
		return nil
	})
	return samples, outcome, err
}

func mustCompile(t testing.TB, src jobspec.Source, sequenceLength int) *Chain {
	t.Helper()
	c, err := Compile(src, sequenceLength, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// textOf reads byte tokens back.
func textOf(tokens []int32) string {
	var b strings.Builder
	for _, id := range tokens {
		if id == 256 {
			b.WriteString("<EOD>")
		} else {
			b.WriteByte(byte(id))
		}
	}
	return b.String()
}

var row = columns{
	"text":             stringOf("body"),
	"title":            stringOf("Hä"),
	"raw":              bytesOf("r\u00e4w"),
	"bad":              bytesOf("a\xffb"),
	"n":                intOf(-7),
	"yes":              boolOf(1),
	"no":               boolOf(0),
	"one":              floatOf(1),
	"list[].x":         listOf(stringOf("a"), format.Value{}, intOf(3), listOf(stringOf("b"), stringOf("c"))),
	"none[]":           listOf(),
	"badlist":          listOf(stringOf("a"), tokensOf(1)),
	"ids":              tokensOf(3, 1, 2),
	"no ids":           tokensOf(),
	"ints":             listOf(intOf(0), intOf(math.MaxInt32)),
	"negative":         tokensOf(1, -1),
	"large":            listOf(intOf(1), intOf(math.MaxInt32+1)),
	"minus":            listOf(intOf(-1)),
	"floats":           listOf(floatOf(1)),
	"with space.and-x": stringOf("odd"),
	"empty":            stringOf(""),
	"nothing":          {Kind: format.String},
}

func TestText(t *testing.T) {
	for template, want := range map[string]string{
		"{text}":                   "body",
		"{title}\n\n{text}":        "Hä\n\nbody",
		"{{{title}}}{{}}":          "{Hä}{}",
		"<{raw}>":                  "<räw>",
		"{raw}":                    "räw",
		"{n} {yes} {no} {one}":     "-7 true false 1",
		"{n}":                      "-7",
		"[{absent}]":               "[]",
		"{list[].x}":               "a\n\n3\nb\nc",
		"{none[]}.":                ".",
		"{no ids}.":                ".",
		"{with space.and-x}":       "odd",
		"x{title}":                 "xHä",
		"{title}{title}{title}end": "HäHäHäend",
	} {
		c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{text(template), tokenizeBytes}}, 100)
		samples, outcome, err := collect(c.Worker(), recordFor(c, 5, row))
		if err != nil || outcome != Kept || len(samples) != 1 || textOf(samples[0].Tokens) != want || samples[0].Row != 5 {
			t.Errorf("%q gives %v, %v, %v; want %q", template, samples, outcome, err, want)
		}
	}
}

func TestFloatText(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1", -2.5: "-2.5", 0.1: "0.1", 1e-6: "0.000001", 1e-7: "1e-07", 123456789: "123456789",
		1e20: "100000000000000000000", 1e21: "1e+21", math.Inf(1): "+Inf", math.Inf(-1): "-Inf", 1.0 / 3: "0.3333333333333333",
	} {
		if got := string(appendFloat(nil, f)); got != want {
			t.Errorf("%v is written %q, want %q", f, got, want)
		}
	}
	if got := string(appendFloat(nil, math.NaN())); got != "NaN" {
		t.Errorf("NaN is written %q", got)
	}
}

func TestSteps(t *testing.T) {
	for name, test := range map[string]struct {
		steps   []jobspec.Transform
		want    string
		outcome Outcome
	}{
		"default text":              {[]jobspec.Transform{tokenizeBytes}, "body", Kept},
		"text of text":              {[]jobspec.Transform{text("Q: {title}"), text("{text}\nA: {text}"), text("[{text}]"), text("{text}!"), tokenizeBytes}, "[Q: Hä\nA: Q: Hä]!", Kept},
		"filter sees column":        {[]jobspec.Transform{where("text == 'body'"), text("{title}"), tokenizeBytes}, "Hä", Kept},
		"filter sees current":       {[]jobspec.Transform{text("{title}"), where("text == 'Hä' and `text` == 'body'"), tokenizeBytes}, "Hä", Kept},
		"filter sees tokens":        {[]jobspec.Transform{tokenizeBytes, where("tokens() == 4"), eod(-1), where("256 in tokens and len(tokens) == 5")}, "body<EOD>", Kept},
		"filtered":                  {[]jobspec.Transform{where("n > 0"), tokenizeBytes}, "", Filtered},
		"filtered after":            {[]jobspec.Transform{tokenizeBytes, where("tokens() > 4")}, "", Filtered},
		"first filter decides":      {[]jobspec.Transform{where("n > 0"), where("n / 0 == 1"), tokenizeBytes}, "", Filtered},
		"null filter":               {[]jobspec.Transform{where("absent"), tokenizeBytes}, "", Filtered},
		"own eod":                   {[]jobspec.Transform{tokenizeBytes, eod(-1)}, "body<EOD>", Kept},
		"eod zero":                  {[]jobspec.Transform{tokenizeBytes, eod(0)}, "body\x00", Kept},
		"eod given":                 {[]jobspec.Transform{tokenizeBytes, eod('!')}, "body!", Kept},
		"tokens":                    {[]jobspec.Transform{ids("ids")}, "\x03\x01\x02", Kept},
		"tokens and eod":            {[]jobspec.Transform{ids("ids"), eod(4)}, "\x03\x01\x02\x04", Kept},
		"tokens filtered on a text": {[]jobspec.Transform{ids("ids"), where("text == 'body'")}, "\x03\x01\x02", Kept},
		"empty text":                {[]jobspec.Transform{text("{empty}"), tokenizeBytes}, "", Empty},
		"empty text with eod":       {[]jobspec.Transform{text("{absent}"), tokenizeBytes, eod(-1)}, "", Empty},
		"absent tokens":             {[]jobspec.Transform{ids("absent"), eod(1)}, "", Empty},
		"no tokens":                 {[]jobspec.Transform{ids("none[]")}, "", Empty},
	} {
		c := mustCompile(t, jobspec.Source{Transforms: test.steps}, 100)
		samples, outcome, err := collect(c.Worker(), recordFor(c, 1, row))
		got := ""
		for _, s := range samples {
			got += textOf(s.Tokens)
		}
		if err != nil || outcome != test.outcome || got != test.want || (len(samples) == 1) != (outcome == Kept) {
			t.Errorf("%s: %q, %v, %v; want %q, %v", name, got, outcome, err, test.want, test.outcome)
		}
	}
}

func TestIntsBecomeTokens(t *testing.T) {
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{ids("ints")}}, 100)
	samples, _, err := collect(c.Worker(), recordFor(c, 1, row))
	if err != nil || len(samples) != 1 || !slices.Equal(samples[0].Tokens, []int32{0, math.MaxInt32}) {
		t.Errorf("got %v, %v", samples, err)
	}
}

func TestRecordErrors(t *testing.T) {
	for want, src := range map[string]jobspec.Source{
		`transforms[1].text: column "bad": byte 1 (0xff) is not UTF-8`:                 {Transforms: []jobspec.Transform{where("true"), text("{bad}"), tokenizeBytes}},
		`transforms[0].text: column "badlist": token ids are not text`:                 {Transforms: []jobspec.Transform{text("a{badlist}"), tokenizeBytes}},
		`column "ids": token ids are not text; use a tokens step`:                      {Transforms: []jobspec.Transform{text("{ids}"), tokenizeBytes}},
		`transforms[0].tokens: column "negative": element 1 is -1`:                     {Transforms: []jobspec.Transform{ids("negative")}},
		`column "large": element 1 is 2147483648; token ids are 0 to 2147483647`:       {Transforms: []jobspec.Transform{ids("large")}},
		`column "minus": element 0 is -1`:                                              {Transforms: []jobspec.Transform{ids("minus")}},
		`column "floats": element 0 is not an integer`:                                 {Transforms: []jobspec.Transform{ids("floats")}},
		`column "title": no token ids`:                                                 {Transforms: []jobspec.Transform{ids("title")}},
		`transforms[0].filter: filter, column 3 ("/ 0 > 1"): division by zero`:         {Transforms: []jobspec.Transform{where("n / 0 > 1"), tokenizeBytes}},
		`transforms[0].filter: filter, column 7 ("> 1"): cannot compare string with i`: {Transforms: []jobspec.Transform{where("title > 1"), tokenizeBytes}},
		`keep: column "list[].x": a list cannot be kept`:                               {Transforms: []jobspec.Transform{tokenizeBytes}, Keep: []string{"list[].x"}},
		`keep: column "ids": a list cannot be kept`:                                    {Transforms: []jobspec.Transform{tokenizeBytes}, Keep: []string{"ids"}},
	} {
		src.Name = "web"
		c := mustCompile(t, src, 100)
		samples, _, err := collect(c.Worker(), recordFor(c, 42, row))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), `row 42: `) ||
			fault.ClassOf(err) != fault.User || len(samples) != 0 {
			t.Errorf("got %v (class %v) and %d samples, want a user error of row 42 with %s", err, fault.ClassOf(err), len(samples), want)
		}
	}
}

func TestApplyPassesErrorsOn(t *testing.T) {
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes}}, 2)
	w := c.Worker()
	bad := errors.New("bad record")
	if _, err := w.Apply(context.Background(), &format.Record{Err: bad}, nil); err != bad {
		t.Errorf("rec.Err comes back as %v", err)
	}
	stop, calls := errors.New("stop"), 0
	_, err := w.Apply(context.Background(), recordFor(c, 1, row), func(*Sample) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Errorf("emit's error comes back as %v after %d calls", err, calls)
	}
	if _, err := w.Apply(context.Background(), &format.Record{}, nil); err == nil || fault.ClassOf(err) != fault.Bug {
		t.Errorf("a record without the columns: %v", err)
	}
}

func TestKeep(t *testing.T) {
	kept := []string{"title", "absent", "n", "empty", "nothing", "bad", "one", "yes"}
	want := []string{"Hä", "", "-7", "", "", "a\xffb", "1", "true"}
	c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes}, Keep: kept}, 3)
	samples, _, err := collect(c.Worker(), recordFor(c, 1, row))
	if err != nil || len(samples) != 2 || samples[1].Extras != nil || len(samples[0].Extras) != len(want) {
		t.Fatalf("got %v, %v", samples, err)
	}
	for i, e := range samples[0].Extras {
		if string(e) != want[i] || (e == nil) != (kept[i] == "absent") {
			t.Errorf("column %s is kept as %q, want %q", kept[i], e, want[i])
		}
	}
}

func TestLongEdges(t *testing.T) {
	for _, test := range []struct {
		long    jobspec.Long
		text    string
		want    []string
		outcome Outcome
	}{
		{jobspec.Long{}, "abc", []string{"abc"}, Kept},
		{jobspec.Long{}, "abcd", []string{"abcd"}, Kept},
		{jobspec.Long{}, "abcde", []string{"abcd", "e"}, Kept},
		{jobspec.Long{Rule: "split"}, "abcdefgh", []string{"abcd", "efgh"}, Kept},
		{jobspec.Long{Rule: "split", Max: 3}, "abcdefgh", []string{"abc", "def", "gh"}, Kept},
		{jobspec.Long{Rule: "split", Max: 1}, "abc", []string{"a", "b", "c"}, Kept},
		{jobspec.Long{Rule: "truncate"}, "abcde", []string{"abcd"}, Kept},
		{jobspec.Long{Rule: "truncate", Max: 2}, "abcde", []string{"ab"}, Kept},
		{jobspec.Long{Rule: "truncate"}, "abc", []string{"abc"}, Kept},
		{jobspec.Long{Rule: "drop"}, "abcd", []string{"abcd"}, Kept},
		{jobspec.Long{Rule: "drop"}, "abcde", nil, TooLong},
		{jobspec.Long{Rule: "drop"}, "", nil, Empty},
	} {
		c := mustCompile(t, jobspec.Source{Transforms: []jobspec.Transform{tokenizeBytes}, Long: test.long}, 4)
		samples, outcome, err := collect(c.Worker(), recordFor(c, 1, columns{"text": stringOf(test.text)}))
		var got []string
		for i, s := range samples {
			got = append(got, textOf(s.Tokens))
			if s.Piece != int32(i) || s.Extras != nil {
				t.Errorf("%v of %q: piece %d is numbered %d with extras %v", test.long, test.text, i, s.Piece, s.Extras)
			}
		}
		if err != nil || outcome != test.outcome || !slices.Equal(got, test.want) {
			t.Errorf("%v of %q gives %q, %v, %v; want %q, %v", test.long, test.text, got, outcome, err, test.want, test.outcome)
		}
	}
}
