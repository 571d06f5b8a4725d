package transform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// rows is a function in this process: what one record becomes.
type rows func(in []format.Value) ([][]format.Value, error)

func (f rows) Call(_ context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	out, from := &format.Batch{}, []int32(nil)
	var rec format.Record
	for i := range in.Len() {
		in.Record(i, &rec)
		given, err := f(rec.Values)
		if err != nil {
			given = [][]format.Value{nil}
		}
		for _, values := range given {
			out.Add(&format.Record{Row: rec.Row, Values: values, Err: err})
			from = append(from, int32(i))
		}
	}
	return out, from, nil
}

// answer is a call that returns the same whatever it is asked.
type answer struct {
	out  []format.Record
	from []int32
	err  error
}

func (a answer) Call(context.Context, *format.Batch) (*format.Batch, []int32, error) {
	out := &format.Batch{}
	for i := range a.out {
		out.Add(&a.out[i])
	}
	return out, a.from, a.err
}

func python(name string) jobspec.Transform {
	return &jobspec.Python{Function: name}
}

var (
	textColumn = Column{Name: "text", Kind: format.String}
	boom       = fault.Userf("ValueError: boom")
)

// functions of the tests.
var functions = map[string]Function{
	"upper": {Kind: MapFunction, In: []Column{textColumn}, Out: []Column{textColumn}, Caller: rows(func(in []format.Value) ([][]format.Value, error) {
		if bytes.Contains(in[0].Bytes, []byte("!")) {
			return nil, boom
		}
		return [][]format.Value{{stringOf(strings.ToUpper(string(in[0].Bytes)))}}, nil
	})},
	"score": {Kind: MapFunction, In: []Column{{Name: "n", Kind: format.Int, Null: true}}, Out: []Column{{Name: "score", Kind: format.Float}, {Name: "n", Kind: format.Int}},
		Caller: rows(func(in []format.Value) ([][]format.Value, error) {
			return [][]format.Value{{floatOf(float64(in[0].Int) / 2), intOf(in[0].Int + 1)}}, nil
		})},
	"short": {Kind: FilterFunction, In: []Column{textColumn}, Caller: rows(func(in []format.Value) ([][]format.Value, error) {
		if len(in[0].Bytes) > 12 {
			return nil, nil
		}
		return [][]format.Value{{}}, nil
	})},
	"words": {Kind: FlatMapFunction, In: []Column{textColumn}, Out: []Column{textColumn, {Name: "at", Kind: format.Int}}, Caller: rows(func(in []format.Value) (out [][]format.Value, err error) {
		for i, word := range bytes.Fields(in[0].Bytes) {
			if string(word) == "bad" {
				return append(out, []format.Value{intOf(1), intOf(1)}), nil // not a text
			}
			out = append(out, []format.Value{{Kind: format.String, Bytes: word}, intOf(int64(i))})
		}
		return out, nil
	})},
	"ids": {Kind: MapFunction, In: []Column{textColumn}, Out: []Column{{Name: "ids", Kind: format.List, Element: format.Int}}, Caller: rows(func(in []format.Value) ([][]format.Value, error) {
		list := format.Value{Kind: format.List}
		for _, b := range in[0].Bytes {
			list.List = append(list.List, intOf(int64(b)))
		}
		return [][]format.Value{{list}}, nil
	})},
}

// opened is the factory of the tests' functions.
func opened(_ uint64, src *jobspec.Source, step int) (*Function, error) {
	name := src.Transforms[step].(*jobspec.Python).Function
	f, ok := functions[name]
	if !ok {
		return nil, fault.Userf("there is no function %s", name)
	}
	f.Name, f.Digest = name, [32]byte{byte(len(name))}
	return &f, nil
}

func compiled(t testing.TB, keep []string, steps ...jobspec.Transform) *Chain {
	t.Helper()
	c, err := Compile(jobspec.Source{Name: "s", Transforms: steps, Keep: keep}, 8, NewShared(1, opened))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// batched puts records through the segments; limit says how many the next batch has at most.
func batched(t testing.TB, c *Chain, records []*format.Record, limit func() int, emit func(*Sample) error, bad func(*format.Record, error) error) {
	t.Helper()
	w := c.Worker()
	for len(records) > 0 {
		n := min(limit(), len(records))
		b := &format.Batch{}
		for _, rec := range records[:n] {
			if _, err := w.Begin(rec, b); err != nil {
				t.Fatal(err)
			}
		}
		records = records[n:]
		for k := 1; k < len(c.Segments())-1; k++ {
			var err error
			if b, _, err = w.Pass(t.Context(), k, b); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.End(b, emit, bad); err != nil {
			t.Fatal(err)
		}
	}
}

func line(s *Sample) string {
	return fmt.Sprintf("%d.%d %q %q", s.Row, s.Piece, letters(s.Tokens), s.Extras)
}

func letters(tokens []int32) string {
	var b strings.Builder
	for _, id := range tokens {
		b.WriteByte(byte(id))
	}
	return b.String()
}

// chainsWithFunctions are steps with native runs of all lengths between functions.
var chainsWithFunctions = map[string][]jobspec.Transform{
	"map":             {python("upper"), tokenizeBytes},
	"maps after text": {text("{a}: {text}"), python("upper"), python("score"), where("score < 4.0 and n > 0"), tokenizeBytes},
	"flat_map":        {python("words"), where("at != 1"), python("upper"), text("{at}{text}"), tokenizeBytes},
	"twice":           {text("{text} {a} {text}"), python("words"), text("{text} x{at}"), python("words"), tokenizeBytes},
	"filter":          {text("{a}{text}"), where("n != 3"), python("short"), tokenizeBytes},
	"all":             {where("n != 4"), python("score"), text("{a} {text}"), python("words"), where("at < 3"), python("short"), python("ids"), ids("ids")},
}

func randomRecords(c *Chain, rng *rand.Rand) (list []*format.Record) {
	for row := range int64(40) {
		var b strings.Builder
		for range rng.IntN(6) {
			b.WriteString([]string{"one ", "two", " ", "!", "bad", "elephant "}[rng.IntN(6)])
		}
		values := columns{"text": stringOf(b.String()), "a": stringOf("A"), "n": intOf(rng.Int64N(9)), "jpg": bytesOf(fmt.Sprint(row))}
		rec := recordFor(c, 3*row, values)
		switch rng.IntN(8) {
		case 0:
			rec = &format.Record{Row: 3 * row, Err: fault.Userf("f: line %d: no JSON", row)}
		case 1:
			rec.Values[rng.IntN(len(rec.Values))] = format.Value{Absent: true}
		}
		list = append(list, rec)
	}
	return list
}

// TestSegments: however records are cut into batches, and whether they go through the
// functions one by one, they become the same samples and the same bad records.
func TestSegments(t *testing.T) {
	for name, steps := range chainsWithFunctions {
		c := compiled(t, []string{"jpg"}, steps...)
		samples, skips := 0, 0
		for seed := range uint64(20) {
			all := randomRecords(c, rand.New(rand.NewPCG(seed, 1)))
			var want []string
			w := c.Worker()
			for _, rec := range all {
				_, err := w.Apply(t.Context(), rec, func(s *Sample) error {
					want, samples = append(want, line(s)), samples+1
					return nil
				})
				if err != nil {
					column, _ := AbsentColumn(err)
					want, skips = append(want, fmt.Sprint(fault.ClassOf(err), column, " ", err)), skips+1
				}
			}
			for _, limit := range []int{1, 7, 100} {
				rng := rand.New(rand.NewPCG(seed, 2))
				var got []string
				batched(t, c, all, func() int { return rng.IntN(limit) + 1 }, func(s *Sample) error {
					got = append(got, line(s))
					return nil
				}, func(rec *format.Record, err error) error {
					column, _ := AbsentColumn(err)
					got = append(got, fmt.Sprint(fault.ClassOf(err), column, " ", err))
					if reader := strings.HasPrefix(err.Error(), "f: line"); reader != (rec.Err != nil) {
						t.Errorf("%s: record %d has the error %v of %v", name, rec.Row, rec.Err, err)
					}
					return nil
				})
				if !slices.Equal(got, want) {
					t.Fatalf("%s, seed %d, batches of up to %d:\n%s\nwant\n%s", name, seed, limit, strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		}
		if samples < 100 || skips < 50 {
			t.Errorf("%s: %d samples and %d bad records show little", name, samples, skips)
		}
	}
}

// TestFunctionsGive: what a record becomes, by hand.
func TestFunctionsGive(t *testing.T) {
	for _, test := range []struct {
		steps []jobspec.Transform
		want  string
	}{
		{chainsWithFunctions["map"], `0.0 "ONE TWO " ["x"]`},
		{[]jobspec.Transform{python("words"), text("{at}{text}"), tokenizeBytes}, `0.0 "0one" ["x"]; 0.1 "1two" ["x"]`},
		{[]jobspec.Transform{text("{a}-{text}"), python("score"), text("{text}{score}/{n}"), tokenizeBytes}, `0.0 "A-one tw" ["x"]; 0.1 "o 3/7" []`},
		{[]jobspec.Transform{python("words"), text("{text} 2345678"), tokenizeBytes}, `0.0 "one 2345" ["x"]; 0.1 "678" []; 0.2 "two 2345" ["x"]; 0.3 "678" []`},
		{[]jobspec.Transform{python("words"), where("at > 5"), tokenizeBytes}, ""},
		{[]jobspec.Transform{python("upper"), python("ids"), ids("ids")}, `0.0 "ONE TWO " ["x"]`},
		{[]jobspec.Transform{python("upper"), where("`text` == 'ONE TWO ' and text == `text`"), tokenizeBytes}, `0.0 "ONE TWO " ["x"]`},
	} {
		c := compiled(t, []string{"jpg"}, test.steps...)
		var got []string
		rec := recordFor(c, 0, columns{"text": stringOf("one two "), "a": stringOf("A"), "n": intOf(6), "jpg": bytesOf("x")})
		_, err := c.Worker().Apply(t.Context(), rec, func(s *Sample) error {
			got = append(got, line(s))
			return nil
		})
		if err != nil || strings.Join(got, "; ") != test.want {
			t.Errorf("%v: %s, %v; want %s", test.steps, strings.Join(got, "; "), err, test.want)
		}
	}
}

// TestCallErrors: what a call may not return, and what a record may not hold, is an error
// of its class, which names the step and, if one is to blame, the row.
func TestCallErrors(t *testing.T) {
	give := func(rows ...int64) (out []format.Record) {
		for _, row := range rows {
			out = append(out, format.Record{Row: row, Values: []format.Value{stringOf("x")}})
		}
		return out
	}
	in, out := []Column{textColumn}, []Column{textColumn}
	for name, test := range map[string]struct {
		f     Function
		class fault.Class
		skips bool
		want  string
	}{
		"raises":        {Function{Kind: MapFunction, In: in, Out: out, Caller: rows(func([]format.Value) ([][]format.Value, error) { return nil, boom })}, fault.User, true, "row 5: transforms[0].python f: ValueError: boom"},
		"not a text":    {Function{Kind: MapFunction, In: in, Out: out, Caller: rows(func([]format.Value) ([][]format.Value, error) { return [][]format.Value{{intOf(1)}}, nil })}, fault.User, true, `row 5: transforms[0].python f: column "text" that it gave: it is an integer, not a text`},
		"null":          {Function{Kind: MapFunction, In: in, Out: out, Caller: rows(func([]format.Value) ([][]format.Value, error) { return [][]format.Value{{{}}}, nil })}, fault.User, true, "it is null, not a text"},
		"takes no null": {Function{Kind: MapFunction, In: []Column{{Name: "none", Kind: format.String}}, Out: out, Caller: answer{}}, fault.User, true, `row 5: transforms[0].python f: column "none" is null, which the function does not take`},
		"takes more":    {Function{Kind: MapFunction, In: []Column{{Name: "b", Kind: format.String}}, Out: out, Caller: answer{}}, fault.User, true, `row 5: transforms[0].python f: the record has no field "b"`},
		"whole":         {Function{Kind: MapFunction, In: in, Out: out, Caller: answer{err: fault.Userf("no module f")}}, fault.User, false, "transforms[0].python f: no module f"},
		"lost":          {Function{Kind: MapFunction, In: in, Out: out, Caller: answer{err: fault.Lostf("the worker died")}}, fault.Lost, false, "transforms[0].python f: the worker died"},
		"too few":       {Function{Kind: MapFunction, In: in, Out: out, Caller: answer{}}, fault.Bug, false, "gave 0 records for 1, though it is a map"},
		"no origin":     {Function{Kind: FlatMapFunction, In: in, Out: out, Caller: answer{out: give(5, 5), from: []int32{0}}}, fault.Bug, false, "gave 2 records and the origins of 1"},
		"far origin":    {Function{Kind: FlatMapFunction, In: in, Out: out, Caller: answer{out: give(5), from: []int32{1}}}, fault.Bug, false, "gave record 0 of record 1, of 1"},
		"below 0":       {Function{Kind: FlatMapFunction, In: in, Out: out, Caller: answer{out: give(5), from: []int32{-1}}}, fault.Bug, false, "gave record 0 of record -1, of 1"},
		"kept twice":    {Function{Kind: FilterFunction, In: in, Caller: answer{out: give(5, 5), from: []int32{0, 0}}}, fault.Bug, false, "a filter, gave record 1 of record 0 after one of record 0"},
	} {
		shared := NewShared(0, func(uint64, *jobspec.Source, int) (*Function, error) {
			test.f.Name = "f"
			return &test.f, nil
		})
		src := jobspec.Source{Name: "s", Transforms: []jobspec.Transform{python("f"), tokenizeBytes}, BadRecords: jobspec.BadRecords{Policy: "skip"}}
		c, err := Compile(src, 8, shared)
		if err != nil {
			t.Fatal(name, err)
		}
		_, err = c.Worker().Apply(t.Context(), recordFor(c, 5, columns{"text": stringOf("t"), "b": {Absent: true}}), func(*Sample) error { t.Error(name, "gave a sample"); return nil })
		if err == nil || fault.ClassOf(err) != test.class || !strings.Contains(err.Error(), test.want) || Skips(&src, err) != test.skips {
			t.Errorf("%s: %v (class %v, skipped %t), want %v with %q", name, err, fault.ClassOf(err), Skips(&src, err), test.class, test.want)
		}
	}
	falls := answer{out: give(1, 2), from: []int32{1, 0}}
	f := Function{Name: "f", Kind: FlatMapFunction}
	if err := f.outputs(0, 2, 2, &format.Batch{}, falls.from); err == nil {
		t.Error("origins of more records than there are")
	}
	b, from, _ := falls.Call(t.Context(), nil)
	if err := f.outputs(0, 2, 2, b, from); err == nil || !strings.Contains(err.Error(), "gave record 1 of record 0 after one of record 1") {
		t.Errorf("origins that fall: %v", err)
	}
}

// TestFunctionsCompile: what is wrong with a chain that has functions.
func TestFunctionsCompile(t *testing.T) {
	type steps = []jobspec.Transform
	for name, test := range map[string]struct {
		steps  steps
		f      Function
		shared *Shared
		want   string
	}{
		"no workers":     {steps: steps{python("f"), tokenizeBytes}, shared: NewShared(0, nil), want: "transforms[0].python: a python step needs worker processes"},
		"nothing shared": {steps: steps{python("f"), tokenizeBytes}, want: "a python step needs worker processes"},
		"unknown":        {steps: steps{python("none"), tokenizeBytes}, shared: NewShared(0, opened), want: "there is no function none"},
		"after tokens":   {steps: steps{tokenizeBytes, python("upper")}, shared: NewShared(0, opened), want: "transforms[1].python: a python step comes before the tokens are made"},
		"no tokens":      {steps: steps{python("upper")}, shared: NewShared(0, opened), want: "no step makes tokens"},
		"inside":         {steps: steps{python("ids"), text("{ids[].x}"), tokenizeBytes}, shared: NewShared(0, opened), want: `column "ids[].x" is inside of "ids", which transforms[0].python (function ids) gives: only a step before that one can take it; or have the function give "ids[].x" itself`},
		"path":           {steps: steps{python("f"), tokenizeBytes}, f: Function{Kind: MapFunction, In: []Column{{Name: "a..b"}}, Out: []Column{textColumn}}, want: `column "a..b": `},
		"twice":          {steps: steps{python("f"), tokenizeBytes}, f: Function{Kind: MapFunction, Out: []Column{textColumn, textColumn}}, want: `gives column "text" twice`},
		"nothing":        {steps: steps{python("f"), tokenizeBytes}, f: Function{Kind: MapFunction}, want: "gives no column"},
		"giving filter":  {steps: steps{python("f"), tokenizeBytes}, f: Function{Kind: FilterFunction, Out: []Column{textColumn}}, want: "is a filter, and gives columns"},
		"odd kind":       {steps: steps{python("f"), tokenizeBytes}, f: Function{Kind: "fold"}, want: `is of kind "fold"`},
	} {
		if test.f.Kind != "" {
			test.shared = NewShared(0, func(uint64, *jobspec.Source, int) (*Function, error) { return &test.f, nil })
		}
		_, err := Compile(jobspec.Source{Name: "s", Transforms: test.steps}, 8, test.shared)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestFunctionDigest: the digest of what a chain is made of changes with each function's,
// and with their order.
func TestFunctionDigest(t *testing.T) {
	seen := map[[32]byte]int{}
	for i, steps := range [][]jobspec.Transform{{tokenizeBytes}, {python("upper"), tokenizeBytes}, {python("words"), python("short"), tokenizeBytes}, {python("short"), python("upper"), python("ids"), ids("ids")},
		{python("ids"), python("upper"), python("short"), tokenizeBytes}} {
		seen[compiled(t, nil, steps...).EncodingDigest()] = i
	}
	if len(seen) != 5 {
		t.Errorf("%d digests", len(seen))
	}
}

// TestCarried: columns that a function neither takes nor gives go past it, and only those
// that a later step needs.
func TestCarried(t *testing.T) {
	var asked []string
	functions := func(uint64, *jobspec.Source, int) (*Function, error) {
		return &Function{Name: "f", Kind: MapFunction, In: []Column{textColumn}, Out: []Column{textColumn}, Caller: rows(func(in []format.Value) ([][]format.Value, error) {
			asked = append(asked, fmt.Sprint(len(in)))
			return [][]format.Value{{in[0]}}, nil
		})}, nil
	}
	c, err := Compile(jobspec.Source{Transforms: []jobspec.Transform{where("n > 1"), python("f"), python("f"), text("{text}{a}"), tokenizeBytes}, Keep: []string{"jpg"}}, 8, NewShared(0, functions))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Columns(), []string{"n", "text", "a", "jpg"}; !slices.Equal(got, want) {
		t.Errorf("columns %q, want %q", got, want)
	}
	for i, want := range []bool{false, true, true, false} {
		if c.Requires(i) != want {
			t.Errorf("column %s is required: %t", c.Columns()[i], c.Requires(i))
		}
	}
	if users := c.Users(); !slices.Equal(users, []string{"transforms[0].filter", "transforms[1].python", "transforms[3].text", ""}) {
		t.Errorf("users %q", users)
	}
	var names []string
	for _, s := range c.Segments() {
		names = append(names, s.Name)
		for _, in := range s.In {
			names = append(names, in.Name)
		}
	}
	if got := strings.Join(names, " "); got != "filter n text a jpg python f text  text a jpg python f text text+tokenize text a jpg" {
		t.Error(got)
	}
	rec := recordFor(c, 0, columns{"n": intOf(2), "text": stringOf("t"), "a": stringOf("a"), "jpg": bytesOf("j")})
	if _, err := c.Worker().Apply(t.Context(), rec, func(*Sample) error { return nil }); err != nil || !slices.Equal(asked, []string{"1", "1"}) {
		t.Errorf("%v; the functions were given %q columns", err, asked)
	}
}

// TestEmitErrors: what whoever takes samples says ends a batch, and is never taken for a
// bad record.
func TestEmitErrors(t *testing.T) {
	stop := fault.Userf("stop")
	for _, steps := range [][]jobspec.Transform{chainsWithFunctions["map"], {python("words"), tokenizeBytes}} {
		c := compiled(t, nil, steps...)
		b := &format.Batch{}
		w := c.Worker()
		if _, err := w.Begin(recordFor(c, 0, columns{"text": stringOf("a b")}), b); err != nil {
			t.Fatal(err)
		}
		b, _, err := w.Pass(t.Context(), 1, b)
		if err == nil {
			_, err = w.End(b, func(*Sample) error { return stop }, func(*format.Record, error) error { t.Error("a bad record"); return nil })
		}
		if !errors.Is(err, stop) {
			t.Error(err)
		}
	}
}

func TestTally(t *testing.T) {
	c := compiled(t, nil, where("n != 1"), python("short"), where("n != 2"), python("words"), where("at != 0"), tokenizeBytes)
	b, total := &format.Batch{}, Tally{}
	w := c.Worker()
	for i, s := range []string{"a b", "a b", "a b", "longer than that", ""} {
		outcome, err := w.Begin(recordFor(c, int64(i), columns{"text": stringOf(s), "n": intOf(int64(i))}), b)
		if err != nil {
			t.Fatal(err)
		}
		total.add(outcome)
	}
	for k := 1; k < len(c.Segments())-1; k++ {
		next, tally, err := w.Pass(t.Context(), k, b)
		if err != nil {
			t.Fatal(err)
		}
		b, total.Filtered = next, total.Filtered+tally.Filtered
	}
	kept := 0
	tally, err := w.End(b, func(*Sample) error { kept++; return nil }, nil)
	total.Filtered += tally.Filtered
	// n = 1, n = 2, the long one, the one without words, and "a" of record 0.
	if err != nil || kept != 1 || !reflect.DeepEqual(total, Tally{Filtered: 5}) {
		t.Errorf("%d samples, %+v, %v", kept, total, err)
	}
}
