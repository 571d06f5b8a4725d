package inference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// model is a server that never answers twice alike.
type model struct {
	*httptest.Server
	requests, rows atomic.Int64
	answer         func(w http.ResponseWriter, inputs []string) // nil: scores
}

func newModel(t testing.TB, answer func(w http.ResponseWriter, inputs []string)) *model {
	m := &model{answer: answer}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Inputs []string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		m.requests.Add(1)
		m.rows.Add(int64(len(body.Inputs)))
		if m.answer != nil {
			m.answer(w, body.Inputs)
			return
		}
		score(w, body.Inputs)
	}))
	t.Cleanup(m.Close)
	return m
}

// score answers with a random number for each input.
func score(w http.ResponseWriter, inputs []string) {
	var out []string
	for _, text := range inputs {
		out = append(out, fmt.Sprintf(`{"score": %v, "text": %q}`, rand.Float64(), text+"<&>"+fmt.Sprint(rand.Int64())))
	}
	fmt.Fprintf(w, `{"data": [%s]}`, strings.Join(out, ","))
}

func step(url, answers string, rows int) *jobspec.Call {
	return &jobspec.Call{
		URL: url, Request: `{"inputs": ["{text}"]}`, Rows: rows, Parallel: 4, Timeout: 10, Answers: answers, Version: "1",
		Give: []jobspec.CallColumn{{Column: "score", Type: "float", At: "data[].score"}, {Column: "text", Type: "text", At: "data[].text"}},
	}
}

var pagesOf = Pages{Files: 1, Rows: 256}

func open(t testing.TB, s *jobspec.Call) *transform.Function {
	t.Helper()
	f, err := Open(s, pagesOf, nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// batch has rows from to to of a file, whose texts are equal in pairs.
func batch(from, to int64) *format.Batch {
	b := &format.Batch{}
	for row := from; row < to; row++ {
		b.Add(&format.Record{Row: row, Values: []format.Value{{Kind: format.String, Bytes: fmt.Appendf(nil, "text %d", row/2)}}})
	}
	return b
}

// answers are the records of a batch as texts.
func answers(t testing.TB, f *transform.Function, in *format.Batch) (all []string) {
	t.Helper()
	out, from, err := f.Caller.Call(format.WithFile(context.Background(), 3), in)
	if err != nil {
		t.Fatal(err)
	}
	if out.Len() != in.Len() || len(from) != in.Len() {
		t.Fatalf("%d records for %d", out.Len(), in.Len())
	}
	var rec format.Record
	for i := range out.Len() {
		if out.Record(i, &rec); rec.Err != nil {
			all = append(all, "bad: "+rec.Err.Error())
			continue
		}
		all = append(all, fmt.Sprintf("%v %s", rec.Values[0].Float, rec.Values[1].Bytes))
	}
	return all
}

// TestFirstAnswerCounts: whoever asks, however the records are cut and whenever it is, gets the answer that
// was given first, though the server gives another each time.
func TestFirstAnswerCounts(t *testing.T) {
	m, dir := newModel(t, nil), t.TempDir()
	const n = 3 * 256
	var work sync.WaitGroup
	got := make([][]string, 6)
	for i := range got {
		f := open(t, step(m.URL, dir, 1+i*5))
		work.Go(func() {
			for from, size := int64(0), int64(20+37*i); from < n; from += size {
				got[i] = append(got[i], answers(t, f, batch(from, min(from+size, n)))...)
			}
		})
	}
	work.Wait()
	m.Close() // what is known needs no server
	last := answers(t, open(t, step(m.URL, dir, 2)), batch(0, n))
	for i := range got {
		if !reflect.DeepEqual(got[i], last) {
			t.Errorf("reader %d got other answers", i)
		}
	}
	if last[0] != last[1] || last[0] == last[2] {
		t.Errorf("equal texts have different answers, or unequal ones the same: %q", last[:3])
	}
	if f := open(t, step(m.URL, dir, 2)); f.Digest != open(t, step("http://elsewhere:1", t.TempDir(), 9)).Digest {
		t.Error("the address of the server is part of the function's identity")
	}
	other := step(m.URL, dir, 2)
	other.Version = "2"
	if open(t, other).Digest == open(t, step(m.URL, dir, 2)).Digest {
		t.Error("another model has the same identity")
	}
}

// TestKept: what was answered before the server went away is not asked again.
func TestKept(t *testing.T) {
	var gone atomic.Bool
	m := newModel(t, func(w http.ResponseWriter, inputs []string) {
		if gone.Load() {
			http.Error(w, "no such model", http.StatusNotFound)
			return
		}
		gone.Store(strings.HasSuffix(inputs[0], "9"))
		score(w, inputs)
	})
	s := step(m.URL, t.TempDir(), 1)
	s.Parallel = 1
	f := open(t, s)
	_, _, err := f.Caller.Call(format.WithFile(t.Context(), 3), batch(0, 100))
	if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "no such model") {
		t.Errorf("a server without the model: %v", err)
	}
	gone.Store(false)
	m.rows.Store(0)
	m.answer = nil
	answers(t, f, batch(0, 100))
	if m.rows.Load() != 40 {
		t.Errorf("%d of 50 texts were asked again, 10 were answered before", m.rows.Load())
	}
}

// TestRefused: of records that the server refuses each is a bad one, and no other is; that is an answer, too.
func TestRefused(t *testing.T) {
	m := newModel(t, func(w http.ResponseWriter, inputs []string) {
		for _, text := range inputs {
			if strings.HasSuffix(text, "7") {
				http.Error(w, "this text is too long", http.StatusUnprocessableEntity)
				return
			}
		}
		score(w, inputs)
	})
	dir := t.TempDir()
	got := answers(t, open(t, step(m.URL, dir, 16)), batch(0, 64))
	for i, a := range got {
		want := strings.HasSuffix(fmt.Sprint(i/2), "7")
		if bad := strings.HasPrefix(a, "bad: the model server refuses it") && strings.Contains(a, "too long"); bad != want {
			t.Errorf("record %d: %s", i, a)
		}
	}
	m.Close()
	if again := answers(t, open(t, step(m.URL, dir, 3)), batch(0, 64)); !reflect.DeepEqual(got, again) {
		t.Error("what was refused is asked again")
	}
}

// TestBusy: a server that is busy or away is asked again.
func TestBusy(t *testing.T) {
	var n atomic.Int64
	m := newModel(t, func(w http.ResponseWriter, inputs []string) {
		switch n.Add(1) {
		case 1:
			http.Error(w, "loading", http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Retry-After", "1")
			http.Error(w, "slower", http.StatusTooManyRequests)
		case 3:
			panic(http.ErrAbortHandler)
		default:
			score(w, inputs)
		}
	})
	if got := answers(t, open(t, step(m.URL, t.TempDir(), 10)), batch(0, 10)); len(got) != 10 || n.Load() < 4 {
		t.Errorf("%d answers after %d requests", len(got), n.Load())
	}
	stop, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := open(t, step(m.URL, t.TempDir(), 10)).Caller.Call(stop, batch(0, 10)); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is given up: %v", err)
	}
}

// TestWrong: each mistake has an error that says where it is, and what would be valid.
func TestWrong(t *testing.T) {
	said := func(text string) func(http.ResponseWriter, []string) {
		return func(w http.ResponseWriter, _ []string) { fmt.Fprint(w, text) }
	}
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, []string)
		change func(s *jobspec.Call)
		rows   int64
		want   string
	}{
		{"not JSON", said("<html>"), nil, 3, `the answer is not JSON`},
		{"Latin-1", said("{\"data\": [{\"score\": 1, \"text\": \"caf\xe9\"}]}"), nil, 1, `row 0: byte 35 of the answer is not valid UTF-8, which JSON is in: have the server answer in UTF-8`},
		{"UTF-16", said("\xff\xfe{\x00"), nil, 1, "byte 0 of the answer is not valid UTF-8"},
		{"streamed", said("{\"data\": [{\"score\": 1, \"text\": \"The\"}]}\n{\"data\": []}\n"), nil, 1, `"stream": false`},
		{"an error behind", said(`{"data": [{"score": 1, "text": "a"}]} {"error": "out of memory"}`), nil, 1, "row 0: there is more behind the answer's JSON"},
		{"another field", said(`{"scores": [1]}`), nil, 1, `row 0: the answer has no field data; the answer begins with "{\"scores\"`},
		{"too few", said(`{"data": []}`), nil, 3, "the answer has at data a list of 0, and 1 records were sent"},
		{"no list", said(`{"data": {"score": 1}}`), nil, 1, "the answer has at data an object"},
		{"credentials", func(w http.ResponseWriter, _ []string) { http.Error(w, "who are you", http.StatusUnauthorized) }, nil, 1, "token_env names"},
		{"another address", func(w http.ResponseWriter, _ []string) { http.Error(w, "", http.StatusMethodNotAllowed) }, nil, 1, "url has to be"},
		{"no token", nil, func(s *jobspec.Call) { s.TokenEnv = "MILLRACE_TEST_NO_TOKEN" }, 1, "MILLRACE_TEST_NO_TOKEN is not set"},
		{"no address", nil, func(s *jobspec.Call) { s.URL = "scorer:8000" }, 0, "url: valid is http://"},
		{"a password", nil, func(s *jobspec.Call) { s.URL = "http://me:secret@scorer" }, 0, "url: valid is http://"},
		{"no column", nil, func(s *jobspec.Call) { s.Request = `{"inputs": ["text"]}` }, 0, "request: it names no column"},
		{"no list to repeat", nil, func(s *jobspec.Call) { s.Request = `{"inputs": "{text}"}` }, 0, "rows is 2"},
		{"two places", nil, func(s *jobspec.Call) { s.Request = `{"inputs": ["{text}"], "ids": ["{id}"]}` }, 0, "rows is 2"},
		{"two values", nil, func(s *jobspec.Call) { s.Request = `{"inputs": ["{text}"]} 1` }, 0, "more behind the end"},
		{"a store", nil, func(s *jobspec.Call) { s.Answers = "gs://bucket" }, 0, "answers: gs://bucket"},
		{"a type", nil, func(s *jobspec.Call) { s.Give[0].Type = "double" }, 0, `"double" is none of text, int, float and bool`},
		{"lists of lists", nil, func(s *jobspec.Call) { s.Give[0].At = "data[].scores[]" }, 0, "has 2 of []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := step(newModel(t, c.answer).URL, t.TempDir(), 2)
			if c.change != nil {
				c.change(s)
			}
			f, err := Open(s, pagesOf, nil)
			if err == nil {
				_, _, err = f.Caller.Call(t.Context(), batch(0, c.rows))
			}
			if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), c.want) || strings.Contains(fmt.Sprint(err), "secret") {
				t.Errorf("class %v: %v\nwant %s", fault.ClassOf(err), err, c.want)
			}
		})
	}
}

// TestValues: a value of another type is the record's fault, of the server's kinds each is read.
func TestValues(t *testing.T) {
	m := newModel(t, func(w http.ResponseWriter, inputs []string) {
		values := []string{`1`, `-2.5e3`, `"x"`, `true`, `null`, `[1]`, `9007199254740993`}
		fmt.Fprintf(w, `{"data": [{"v": %s, "text": "a"}]}`, values[int(m0(inputs[0]))%len(values)])
	})
	for kind, want := range map[string]string{"text": "..x....", "int": "x.....x", "float": "xx....x", "bool": "...x..."} {
		s := step(m.URL, t.TempDir(), 1)
		s.Give = []jobspec.CallColumn{{Column: "v", Type: kind, At: "data[].v"}}
		out, _, err := open(t, s).Caller.Call(t.Context(), batch(0, 14))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		var rec format.Record
		for i := 0; i < 14; i += 2 {
			if out.Record(i, &rec); rec.Err == nil {
				got += "x"
			} else {
				got += "."
			}
		}
		if got != want {
			t.Errorf("%s: %s are read, want %s", kind, got, want)
		}
	}
}

// TestCharacters: a byte order mark before an answer is passed over, and half of a surrogate pair is read as in files.
func TestCharacters(t *testing.T) {
	m := newModel(t, func(w http.ResponseWriter, _ []string) {
		fmt.Fprint(w, "\ufeff", `{"data": [{"score": 1, "text": "a\ud83d \ud83d\ude00"}]}`)
	})
	if got := answers(t, open(t, step(m.URL, t.TempDir(), 1)), batch(0, 1)); got[0] != "1 a\ufffd 😀" {
		t.Errorf("the answer is %q", got)
	}
}

// m0 is the number in "text N".
func m0(text string) (n int64) {
	_, _ = fmt.Sscanf(text, "text %d", &n)
	return n
}

// TestForms: what a request is made of.
func TestForms(t *testing.T) {
	values := []format.Value{
		{Kind: format.String, Bytes: []byte(`a "b" <c>`)}, {Kind: format.Int, Int: 7}, {Kind: format.Null},
		{Kind: format.List, List: []format.Value{{Kind: format.Bool, Int: 1}, {Kind: format.Float, Float: 0.5}}}, {Kind: format.Tokens, Tokens: []int32{1, 2}}, {Kind: format.Tokens},
	}
	for _, c := range []struct {
		form string
		rows int
		want string
	}{
		{`{"prompt": "say {a} {b}!", "n": 1, "m": 12345678901234567890}`, 1, `{"m":12345678901234567890,"n":1,"prompt":"say a \"b\" <c> 7!"}`},
		{`{"x": "{a}", "y": "{b}", "z": "{c?}", "l": "{d}", "t": "{e}"}`, 1, ""},
		{`{"rows": [{"x": "{a}", "y": "{b}", "z": "{c?}", "l": "{d}", "t": "{e}", "k": [1, null]}], "model": "m"}`, 3,
			`{"model":"m","rows":[{"k":[1,null],"l":[true,0.5],"t":[1,2],"x":"a \"b\" <c>","y":7,"z":null},{"k":[1,null],"l":[true,0.5],"t":[1,2],"x":"a \"b\" <c>","y":7,"z":null}]}`},
		{`{"none": "{f}"}`, 1, `{"none":[]}`},
		{`{"a": {"b": [["{a}"]]}}`, 2, `{"a":{"b":[["a \"b\" <c>"],["a \"b\" <c>"]]}}`},
	} {
		r, err := parseRequest(c.form, c.rows)
		if err != nil {
			t.Errorf("%s: %v", c.form, err)
			continue
		}
		var row []format.Value
		for _, column := range r.columns {
			row = append(row, values[column.path[0]-'a'])
		}
		all, err := r.values(row)
		if err != nil {
			t.Fatal(err)
		}
		say, err := r.row(all)
		if err != nil {
			t.Fatal(err)
		}
		body, err := r.body([]any{say, say}[:min(c.rows, 2)])
		if err != nil || c.want != "" && string(body) != c.want {
			t.Errorf("%s: %s, %v\nwant %s", c.form, body, err, c.want)
		}
	}
}

// TestDamage: of an entry whose bytes are changed, one by one, each is refused or says the same.
func TestDamage(t *testing.T) {
	m, dir := newModel(t, nil), t.TempDir()
	want := answers(t, open(t, step(m.URL, dir, 4)), batch(0, 6))
	m.Close()
	files, err := filepath.Glob(dir + "/*/*/*/*.json")
	if err != nil || len(files) != 1 {
		t.Fatalf("entries %q, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for i := range data {
		broken := append([]byte(nil), data...)
		broken[i] ^= 1 << (i % 8)
		got, err := decodeEntry(broken)
		if err != nil {
			refused++
			continue
		}
		if whole, err := decodeEntry(data); err != nil || !reflect.DeepEqual(got, whole) {
			t.Errorf("byte %d changed: %s", i, broken)
		}
	}
	if refused < len(data)-2 {
		t.Errorf("%d of %d changes are refused", refused, len(data))
	}
	if err := os.WriteFile(files[0], data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(t, step(m.URL, dir, 4)).Caller.Call(format.WithFile(t.Context(), 3), batch(0, 6)); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "is damaged") {
		t.Errorf("half of an entry: %v", err)
	}
	if err := os.WriteFile(files[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := answers(t, open(t, step(m.URL, dir, 4)), batch(0, 6)); !reflect.DeepEqual(got, want) {
		t.Error("the whole entry says something else")
	}
}

// TestMissingEntry: an entry that is gone is not taken for one that never was, unless it is the last of its page.
func TestMissingEntry(t *testing.T) {
	store, ctx := &object.Memory{}, t.Context()
	l := &Ledger{open: func() (object.Store, error) { return store, nil }, prefix: "p", pages: pagesOf}
	for i := range 3 {
		p, err := l.page(l.pages.name(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.add(ctx, map[string]outcome{fmt.Sprint(i): {Bad: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(without string) (*page, error) {
		if err := store.Delete(ctx, without); err != nil {
			t.Fatal(err)
		}
		fresh := &Ledger{open: l.open, prefix: "p", pages: pagesOf}
		p, err := fresh.page(l.pages.name(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		return p, p.read(ctx)
	}
	if p, err := read("p/000000/000000000000/000003.json"); err != nil || len(p.known) != 2 {
		t.Errorf("without the last entry of a page %d of 2 answers are known: %v", len(p.known), err)
	}
	if _, err := read("p/000000/000000000000/000001.json"); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "000001.json of the ledger is missing") {
		t.Errorf("a missing entry: %v", err)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(`{"inputs": ["{text}"]}`, 2)
	f.Add(`[[["{a}{b?}"]], {"{{": 1}]`, 1)
	f.Fuzz(func(t *testing.T, text string, rows int) {
		r, err := parseRequest(text, max(rows, 1))
		if err != nil {
			return
		}
		say, err := r.row(make([]any, len(r.columns)))
		if err != nil {
			t.Fatal(err)
		}
		body, err := r.body([]any{say})
		if err != nil || !json.Valid(body) {
			t.Fatalf("%s makes %s, %v", text, body, err)
		}
	})
}
