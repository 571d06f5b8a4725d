package service_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/functions"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

// pythons are the functions that tests of this process open.
var pythons = &functions.Set{Workers: 2}

// helped are those that worker pools help with, while a test has some.
var helped *functions.Set

// program is what the reference reader has beside the jobs of the tests.
var program = reference.Program{Strategies: names.Strategies, RowMethods: names.RowMethods, Functions: open}

// open opens functions in Python, and those of these tests, which need none: they stand
// in module "here".
var open = openWith(pythons)

func openWith(pythons *functions.Set) transform.Functions {
	return func(seed uint64, src *jobspec.Source, step int) (*transform.Function, error) {
		pythons := cmp.Or(helped, pythons)
		python, ok := src.Transforms[step].(*jobspec.Python)
		if !ok {
			return pythons.Open(seed, src, step)
		}
		name, here := strings.CutPrefix(python.Function, "here:")
		if !here {
			return pythons.Open(seed, src, step)
		}
		f, ok := local[name]
		if !ok {
			return nil, fault.Userf("there is no function %s", name)
		}
		f.Name = name
		return &f, nil
	}
}

// pythonsOf are functions with this many workers for each environment, the same for all tests.
func pythonsOf(workers int) *functions.Set {
	set, _ := byWorkers.LoadOrStore(workers, &functions.Set{Workers: workers})
	return set.(*functions.Set)
}

var byWorkers sync.Map // of *functions.Set

func closeFunctions() {
	pythons.Close()
	byWorkers.Range(func(_, set any) bool {
		set.(*functions.Set).Close()
		return true
	})
}

// perRow is a function that makes rows of each row.
type perRow func(in []format.Value) ([][]format.Value, error)

func (f perRow) Call(_ context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	out, from := &format.Batch{}, []int32(nil)
	var rec format.Record
	for i := range in.Len() {
		in.Record(i, &rec)
		made, err := f(rec.Values)
		if err != nil {
			made = [][]format.Value{nil}
		}
		for _, values := range made {
			out.Add(&format.Record{Row: rec.Row, Values: values, Err: err})
			from = append(from, int32(i))
		}
	}
	return out, from, nil
}

func textValue(b []byte) format.Value { return format.Value{Kind: format.String, Bytes: b} }

var textIn, lengthIn = transform.Column{Name: "text", Kind: format.String}, transform.Column{Name: "length", Kind: format.Int}

// local do what testdata/functions/cleaning.py does.
var local = map[string]transform.Function{
	"label": {Kind: transform.MapFunction, In: []transform.Column{textIn, {Name: "lang", Kind: format.String}}, Out: []transform.Column{textIn, lengthIn}, Caller: perRow(func(in []format.Value) ([][]format.Value, error) {
		if bytes.Contains(in[0].Bytes, []byte("zz")) {
			return nil, fault.Userf("ValueError: zz is no word")
		}
		return [][]format.Value{{textValue(bytes.Join([][]byte{bytes.ToUpper(in[1].Bytes), in[0].Bytes}, []byte(" "))), {Kind: format.Int, Int: int64(len(in[0].Bytes))}}}, nil
	})},
	"long_enough": {Kind: transform.FilterFunction, In: []transform.Column{lengthIn}, Caller: perRow(func(in []format.Value) ([][]format.Value, error) {
		if in[0].Int > 20 {
			return [][]format.Value{nil}, nil
		}
		return nil, nil
	})},
	"parts": {Kind: transform.FlatMapFunction, In: []transform.Column{textIn, {Name: "title", Kind: format.String, Null: true}}, Out: []transform.Column{textIn, {Name: "at", Kind: format.Int}}, Caller: perRow(func(in []format.Value) (out [][]format.Value, err error) {
		words := bytes.Fields(in[0].Bytes)
		for i := 0; i < len(words); i += 8 {
			out = append(out, []format.Value{textValue(bytes.Join(words[i:min(i+8, len(words))], []byte(" "))), {Kind: format.Int, Int: int64(i)}})
		}
		return out, nil
	})},
}

// functionsJob is a job with a function of each kind, one of which fails on some records, and
// with native steps before, between and after them.
func functionsJob(name, module, python, path string) recipe {
	step := func(function, more string) string {
		return fmt.Sprintf(`{python: {function: "%s:%s", interpreter: %q, path: %q%s}}`, module, function, python, path, more)
	}
	return recipe{name, "sources:" + books + `
  - name: cleaned
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms: [{filter: "len(text) > 10"}, ` + step("label", ", timeout: 50, memory: 1GiB, check: twice") + `, ` + step("long_enough", ", network: true") + `, {text: "{lang}: {text}"}, ` + step("parts", "") + `, {filter: "at < 40"}, {text: "{at} {text}\u00e9"}, {normalize: nfd}, {replace: {pattern: "([a-d])+", with: "<$${1}>"}}, tokenize: bytes, append_eod: {}]
    keep: [id]
    bad_records: {policy: skip, limit: 1000}
    shuffle: {block: 3}
mix: {weights: {books: 0.3, cleaned: 0.7}}
batch: {sequence_length: 128, sequences: 8, microbatch_size: 2}
topology: {dp: 2}
`, 20, ""}
}

// functionSettings are ways to run such a job.
var functionSettings = [][]int{
	{1, 1, 0, 1, 0, 0, 0, 2, 20, 0, 0},
	{3, 2, 0, 2, -1, 1, 1, 1, 1, noDisk, 0, 1, 1, 1, 0, 1e6, 3},
	{2, 2, 0, 2, 0, 20e3, 40e3, 8, 500, 4e3, hotShadow, 0, 0, 0, 1, 4e3},
	{2, 1, 1, 2, 0, 20e3, 0, 2, 20, 0, 0, 0, 0, 0, 0, 1e6, 1}, // processes
}

// TestFunctions: a job with functions is the reference's at every step, however it is run.
func TestFunctions(t *testing.T) {
	dir := writeSources(t)
	r := functionsJob("functions", "here", "none", ".")
	for _, values := range functionSettings[:3] {
		check(t, dir, r, settingOf(values))
	}
	if a := solve(t, dir, r); a.skips == 0 {
		t.Error("no record was bad")
	}
}

// TestPythonFunctions does so with functions in Python; what they give is what those of Go
// give that do the same.
func TestPythonFunctions(t *testing.T) {
	python, _ := testdata.Python(t)
	dir := writeSources(t)
	r := pythonPath(t, func(path string) recipe { return functionsJob("python functions", "cleaning", python, path) })
	for _, values := range functionSettings {
		check(t, dir, r, settingOf(values))
	}
	inGo, inPython := solve(t, dir, functionsJob("functions", "here", "none", ".")), solve(t, dir, r)
	if inGo.skips == 0 || inGo.skips != inPython.skips || inGo.content != inPython.content {
		t.Errorf("functions in Go and in Python give other rows, or leave %d and %d records out", inGo.skips, inPython.skips)
	}
}

// TestPythonChance: what a function draws by chance is the same in every reading.
func TestPythonChance(t *testing.T) {
	python, _ := testdata.Python(t)
	r := pythonPath(t, func(path string) recipe {
		return recipe{"python chance", fmt.Sprintf(`sources:
  - name: shuffled
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms: [{python: {function: "cleaning:shuffled", interpreter: %q, path: %q}}, tokenize: bytes]
batch: {sequence_length: 128, sequences: 8}
`, python, path), 12, ""}
	})
	check(t, writeSources(t), r, settingOf([]int{3, 1, 0, 2, 0, 20e3, 0, 2, 20, 0, 0, 0, 0, 0}))
}

// pythonPath returns a job whose modules are those of the tests, with the client in their path.
func pythonPath(t testing.TB, job func(path string) recipe) recipe {
	t.Helper()
	_, client := testdata.Python(t)
	path, err := filepath.Abs("testdata/functions")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", client)
	return job(path)
}
