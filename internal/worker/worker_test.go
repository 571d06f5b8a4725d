package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// python returns an interpreter with NumPy, or skips the test.
var python = sync.OnceValue(func() string {
	for _, name := range []string{os.Getenv("MILLRACE_PYTHON"), "../../.venv/bin/python", "python3"} {
		if name == "" {
			continue
		}
		if strings.Contains(name, "/") {
			name, _ = filepath.Abs(name)
		}
		if exec.Command(name, "-c", "import numpy").Run() == nil {
			return name
		}
	}
	return ""
})

func options(t testing.TB) Options {
	t.Helper()
	if python() == "" {
		t.Skip("no Python with NumPy: run make .venv/tested, or set MILLRACE_PYTHON")
	}
	client, _ := filepath.Abs("../../client/python/src")
	steps, _ := filepath.Abs("testdata")
	return Options{Python: python(), Path: []string{client, steps}, Workers: 2, Functions: []string{"steps:upper"}}
}

// TestMain checks at the end that nothing is left: no goroutine, file or process.
func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		shared.Close()
	}
	for end := time.Now().Add(20 * time.Second); code == 0 && os.Getenv("MILLRACE_TEST_LOADER") == ""; time.Sleep(10 * time.Millisecond) {
		left := left()
		if left == "" {
			break
		}
		if time.Now().After(end) {
			stacks := make([]byte, 1<<16)
			fmt.Printf("%s\n%s\n", left, stacks[:runtime.Stack(stacks, true)])
			code = 1
		}
	}
	os.Exit(code)
}

// left is what the tests left behind.
func left() string {
	if n := runtime.NumGoroutine(); n > 2 { // this one, and the one of signals
		return fmt.Sprintf("%d goroutines are left", n)
	}
	if files := openFiles(); files > 12 { // standard ones, the poller's, those of go test
		return fmt.Sprintf("%d files are left", files)
	}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if len(children) > 0 {
		return fmt.Sprintf("processes %s are left", children)
	}
	return ""
}

var shared *Environment

// quiet returns an environment for tests that end no process.
func quiet(t testing.TB) *Environment {
	t.Helper()
	if shared == nil {
		var err error
		if shared, err = Open(context.Background(), options(t)); err != nil {
			t.Fatal(err)
		}
	}
	return shared
}

// open opens an environment that ends with the test.
func open(t testing.TB, opt Options) *Environment {
	t.Helper()
	e, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

func function(t testing.TB, e *Environment, name string) *Function {
	t.Helper()
	f, err := e.Function(t.Context(), Use{Name: "steps:" + name, Seed: 7, Source: "web", Step: "transforms[1]"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func str(s string) format.Value { return format.Value{Kind: format.String, Bytes: []byte(s)} }

// texts makes a batch of one column; row i has number 10 i.
func texts(lines ...string) *format.Batch {
	var records []format.Record
	for i, line := range lines {
		records = append(records, format.Record{Row: int64(10 * i), Values: []format.Value{str(line)}})
	}
	return batch(records...)
}

func batch(records ...format.Record) *format.Batch {
	b, _, err := format.NewBatchReader(&list{records}).ReadBatch(1 << 40)
	if err != nil {
		panic(err)
	}
	return b
}

// said returns a batch as text: values, or errors of bad records.
func said(b *format.Batch, from []int32) (lines []string) {
	var rec format.Record
	for i := range b.Len() {
		b.Record(i, &rec)
		line := fmt.Sprintf("%d:%d", from[i], rec.Row)
		if rec.Err != nil {
			line += " " + fault.ClassOf(rec.Err).String() + " " + rec.Err.Error()
		}
		for _, v := range rec.Values {
			line += " " + show(v)
		}
		lines = append(lines, line)
	}
	return lines
}

func show(v format.Value) string {
	switch v.Kind {
	case format.String, format.Bytes:
		return fmt.Sprintf("%q", v.Bytes)
	case format.Float:
		return fmt.Sprint(v.Float)
	case format.Tokens:
		return fmt.Sprint(v.Tokens)
	case format.List:
		var parts []string
		for _, e := range v.List {
			parts = append(parts, show(e))
		}
		return "(" + strings.Join(parts, " ") + ")"
	case format.Null:
		return "null"
	}
	return fmt.Sprint(v.Int)
}

func called(t testing.TB, f *Function, in *format.Batch) []string {
	t.Helper()
	out, from, err := f.Call(format.WithFile(t.Context(), 1), in)
	if err != nil {
		t.Fatal(err)
	}
	return said(out, from)
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		// A want that ends with ... is how the line begins.
		if prefix, cut := strings.CutSuffix(w, "..."); g != w && !(cut && strings.HasPrefix(g, prefix)) {
			t.Errorf("row %d is\n\t%s\nwant\n\t%s", i, g, w)
		}
	}
}

func TestKinds(t *testing.T) {
	e := quiet(t)
	in := texts("one two", "ab", "", "thrée 三")
	expect(t, called(t, function(t, e, "upper"), in), `0:0 "ONE TWO"`, `1:10 "AB"`, `2:20 ""`, `3:30 "THRÉE 三"`)
	expect(t, called(t, function(t, e, "long"), in), `0:0`, `3:30`)
	expect(t, called(t, function(t, e, "words"), in), `0:0 "one"`, `0:0 "two"`, `1:10 "ab"`, `3:30 "thrée"`, `3:30 "三"`)
	expect(t, called(t, function(t, e, "sizes"), in), `0:0 "one two" 7`, `1:10 "ab" 2`, `2:20 "" 0`, `3:30 "thrée 三" 7`)
	expect(t, called(t, function(t, e, "Doubles"), in), `0:0 "one twoone two"`, `1:10 "abab"`, `2:20 ""`, `3:30 "thrée 三thrée 三"`)
	expect(t, called(t, function(t, e, "drawn"), in), called(t, function(t, e, "drawn"), in)...)
	out, from, err := function(t, e, "upper").Call(t.Context(), &format.Batch{})
	if err != nil || out.Len() != 0 || len(from) != 0 {
		t.Errorf("an empty batch gives %d rows, %v", out.Len(), err)
	}
}

// TestChance: what is drawn is a function of the row, not of its batch.
func TestChance(t *testing.T) {
	e := quiet(t)
	f := function(t, e, "drawn")
	whole := called(t, f, texts("a", "b", "c"))
	alone := called(t, f, batch(format.Record{Row: 20, Values: []format.Value{str("c")}}))
	if whole[2][4:] != alone[0][4:] || whole[0][5:] == whole[1][5:] {
		t.Errorf("in a batch %q, alone %q", whole, alone)
	}
	other, _, err := f.Call(format.WithFile(t.Context(), 2), texts("a", "b", "c"))
	if err != nil || reflect.DeepEqual(said(other, []int32{0, 1, 2}), whole) {
		t.Errorf("another file draws the same (%v)", err)
	}
	if _, _, err := f.Call(t.Context(), texts("a")); err == nil || fault.ClassOf(err) != fault.Bug {
		t.Errorf("without a file: %v", err)
	}
	// Computed by hand with hashlib and NumPy, from the layout in docs/bytes.md.
	if alone[0] != golden {
		t.Errorf("it drew %s, want %s", alone[0], golden)
	}
}

const golden = `0:20 "c 305823934"`

// TestValues: all types come back as they went, and convert where nothing is lost.
func TestValues(t *testing.T) {
	e := quiet(t)
	null := format.Value{}
	integer := func(n int64) format.Value { return format.Value{Kind: format.Int, Int: n} }
	list := func(v ...format.Value) format.Value { return format.Value{Kind: format.List, List: v} }
	real := func(x float64) format.Value { return format.Value{Kind: format.Float, Float: x} }
	yes := format.Value{Kind: format.Bool, Int: 1}
	ids := func(n ...int32) format.Value { return format.Value{Kind: format.Tokens, Tokens: n} }
	raw := format.Value{Kind: format.Bytes, Bytes: []byte{0, 255}}
	row := func(n int64, v ...format.Value) format.Record { return format.Record{Row: n, Values: v} }
	in := batch(
		row(1, str("a"), raw, integer(-5), real(0.5), yes, ids(1, -2), list(str("x"), str("é")), list(list(integer(1), null), list())),
		row(2, null, str("b"), null, integer(3), format.Value{Kind: format.Bool}, list(integer(7)), list(), list(ids(4, 5))),
		row(3, format.Value{Kind: format.Bytes, Bytes: []byte("é")}, raw, integer(1<<62), real(-1e300), yes, ids(), list(str("")), list()),
		format.Record{Row: 4, Err: fault.Userf("a bad line")},
		row(5, str("a"), null, integer(1), real(1), yes, ids(), list(), list()),
		row(8, str("a"), raw, integer(1), real(1), yes, list(), ids(), list(ids(), list(), ids(6))),
		row(6, raw, raw, integer(1), real(1), yes, ids(), list(integer(1)), list()),
		row(7, str("a"), raw, real(1), real(1), yes, list(integer(1<<40)), list(), list()),
		row(9, str("a"), raw, integer(1), real(1), yes, ids(), ids(1), list()),
	)
	expect(t, called(t, function(t, e, "same"), in),
		`0:1 "a" "\x00\xff" -5 0.5 1 [1 -2] ("x" "é") ((1 null) ())`,
		`1:2 null "b" null 3 0 [7] () ((4 5))`,
		`2:3 "é" "\x00\xff" 4611686018427387904 -1e+300 1 [] ("") ()`,
		`3:4 user a bad line`,
		`4:5 user column "raw" is null, and the function wants bytes: annotate it Optional, or filter such records`,
		`5:8 "a" "\x00\xff" 1 1 1 [] () (() () (6))`,
		`6:6 user column "text" is bytes that are not UTF-8, and the function wants string?`,
		`7:7 user column "n" is float, and the function wants int?`,
		`8:9 user column "parts" is tokens, and the function wants list<string>`,
	)
}

func TestRowErrors(t *testing.T) {
	e := quiet(t)
	in := texts("one", "bad", "two", "bad two")
	expect(t, called(t, function(t, e, "fails"), in),
		`0:0 "one"`,
		`1:10 user ValueError: bad is not good (steps.py:...`,
		`2:20 "two"`,
		`3:30 user ValueError: bad two is not good (steps.py:...`)
	expect(t, called(t, function(t, e, "fails_batch"), in),
		`0:0 "one"`, `1:10 user ValueError: one is not good...`, `2:20 "two"`, `3:30 user...`)
	expect(t, called(t, function(t, e, "wrong"), in),
		`0:0 3`, `1:10 user what it gives as n is str, not int`, `2:20 3`, `3:30 user...`)
	expect(t, called(t, function(t, e, "dies"), texts("sysexit", "a")),
		`0:0 user SystemExit: no more (steps.py:...`, `1:10 "a"`)
}

// TestLackingPackage: an interpreter without what the fork server needs is the user's to change.
func TestLackingPackage(t *testing.T) {
	opt := options(t)
	bare := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(bare, []byte("#!/bin/sh\nexec "+opt.Python+" -S -E \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	opt.Python = bare
	if _, err := Open(t.Context(), opt); err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "has no package millrace: install it there ("+bare+" -m pip install") {
		t.Errorf("got %v", err)
	}
}

// TestFunctionErrors: what is wrong with a function is an error that names it.
func TestFunctionErrors(t *testing.T) {
	opt := options(t)
	e := quiet(t)
	for name, want := range map[string]string{
		"steps:none": `module "steps" has no attribute "none"; it has`, "steps:uper": `did you mean "upper"?`, "imports:f": `module "imports" imports "no_such_package", which `, "stepz:upper": `there is no module "stepz" in`, "none:f": "path of the step is the folder that holds it", "steps:plain": "decorate it with @millrace.transform", "steps": `give "module:function"`,
	} {
		if _, err := e.Function(t.Context(), Use{Name: name}); err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	for name, want := range map[string]string{
		"fewer": "steps:fewer: rows 0 to 10: column text has 1 values for 2 rows", "BadSetup": "steps:BadSetup: its setup failed: RuntimeError: no model",
		"DeadlySetup": "steps:DeadlySetup: its setup: its worker ended with exit status 4",
	} {
		_, _, err := function(t, e, name).Call(t.Context(), texts("a", "b"))
		if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v (%v), want %s", name, err, fault.ClassOf(err), want)
		}
	}
	number := batch(format.Record{Values: []format.Value{{Kind: format.Int, Int: 1}}})
	if _, _, err := function(t, e, "keeps").Call(t.Context(), number); err == nil || !strings.Contains(err.Error(), "it keeps a column after its call") {
		t.Errorf("a column that is kept: %v", err)
	}
	opt.Python = "/no/python"
	if _, err := Open(t.Context(), opt); err == nil || fault.ClassOf(err) != fault.User {
		t.Errorf("no interpreter: %v", err)
	}
	opt = options(t)
	opt.Functions = []string{"steps:none"}
	if _, err := Open(t.Context(), opt); err == nil || fault.ClassOf(err) != fault.User {
		t.Errorf("no function: %v", err)
	}
}

// TestTwice: a function whose result depends on the past is found.
func TestTwice(t *testing.T) {
	e := quiet(t)
	for name, want := range map[string]string{
		"counts": `something else when it runs again: column "text" of row`, "every_other": "something else when it runs again: ", "upper": "",
	} {
		f, err := e.Function(t.Context(), Use{Name: "steps:" + name, Twice: true})
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n < 14; n++ {
			_, _, err = f.Call(t.Context(), texts(strings.Split("abcdefghijklm"[:n], "")...))
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || fault.ClassOf(err) != fault.User) {
				t.Errorf("%s of %d rows: %v, want %q", name, n, err, want)
			}
		}
	}
}

func TestOutput(t *testing.T) {
	var log bytes.Buffer
	opt := options(t)
	opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	e, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, called(t, function(t, e, "dies"), texts("print")), `0:0 "print"`)
	e.Close()
	lines := strings.Count(log.String(), "python prints\"")
	if !strings.Contains(log.String(), "source=web step=transforms[1] function=steps:dies line=\"line 1 xxx") || !strings.Contains(log.String(), "lines_left_out") || lines < 10 || lines > 1000 {
		t.Errorf("%d lines: %.2000s", lines, log.String())
	}
}

func TestDescribe(t *testing.T) {
	e := quiet(t)
	d, err := e.Describe(t.Context(), "steps:same")
	if err != nil || d.Kind != "map" || len(d.In) != 8 || d.In[7].Type.String() != "list<list<int?>>" || d.Out[5].Type.String() != "tokens" || d.Python == "" || d.Digest == (Digest{}) {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := e.Describe(t.Context(), "steps:long"); err != nil || len(d.Out) != 0 || d.Kind != "filter" {
		t.Errorf("%+v, %v", d, err)
	}
}

// list is a reader of records in memory.
type list struct{ records []format.Record }

func (l *list) Next() (*format.Record, error) {
	if len(l.records) == 0 {
		return nil, context.Canceled
	}
	rec := l.records[0]
	l.records = l.records[1:]
	return &rec, nil
}

func (l *list) Held() int64  { return 0 }
func (l *list) Close() error { return nil }

// TestSome: calls that end when enough came out give together what one call gives.
func TestSome(t *testing.T) {
	for _, name := range []string{"words", "upper", "sizes", "fails", "long"} {
		f := function(t, quiet(t), name)
		var lines []string
		for i := range 300 {
			lines = append(lines, strings.Repeat(fmt.Sprintf("word%d ", i), i%7))
			if i%50 == 0 {
				lines = append(lines, "bad")
			}
		}
		in := texts(lines...)
		want := called(t, f, in)
		var got []string
		calls := 0
		for first := 0; first < in.Len(); calls++ {
			out, from, end, err := f.CallSome(format.WithFile(t.Context(), 1), in, first, 500)
			if err != nil || end <= first {
				t.Fatalf("%s: from %d to %d, %v", name, first, end, err)
			}
			if size := out.Bytes(); size > 5000 {
				t.Errorf("%s: a call gives %d bytes", name, size)
			}
			got, first = append(got, said(out, from)...), end
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s gives other rows in %d calls", name, calls)
		}
		if calls < 5 && name != "long" {
			t.Errorf("%s took %d calls", name, calls)
		}
	}
}
