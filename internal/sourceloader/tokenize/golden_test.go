package tokenize

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/testdata"
)

// o200kEnv names the rank file of o200k_base, which is not in the data folder.
const o200kEnv = "MILLRACE_O200K"

var loaded sync.Map // name → *Encoding: tests share what they load

// load returns an encoding, or skips the test and says which file it lacks.
func load(t testing.TB, name string) *Encoding {
	t.Helper()
	if e, ok := loaded.Load(name); ok {
		return e.(*Encoding)
	}
	path := ""
	if name == "o200k_base" {
		path = os.Getenv(o200kEnv)
	}
	switch {
	case strings.HasSuffix(name, ".json"):
		path = filepath.Join(testdata.Dir(t), "tokenizers", "hf-json", name)
	case path == "":
		path = filepath.Join(testdata.Dir(t), "tokenizers", "tiktoken", name+".tiktoken")
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("%s is not here: put it there (o200k_base: or set %s to the file) to run this test", path, o200kEnv)
	}
	read := func() (*Encoding, error) { return Load(name, path, "") }
	if strings.HasSuffix(name, ".json") {
		read = func() (*Encoding, error) { return LoadFile(path, "", true) }
	}
	e, err := read()
	if err != nil {
		t.Fatal(err)
	}
	loaded.Store(name, e)
	return e
}

// checkIDs encodes text and decodes it again.
func checkIDs(t *testing.T, e *Encoding, text string, want []int32) {
	t.Helper()
	got := e.NewEncoder().Append(nil, []byte(text))
	if !slices.Equal(got, want) {
		t.Errorf("%s %.200q:\n got %v\nwant %v", e.Name(), text, got, want)
	}
	back, err := e.Decode(got)
	if err != nil || string(back) != text {
		t.Errorf("%s %.200q decodes to %.200q, %v", e.Name(), text, back, err)
	}
}

// goldenRow is a line of testdata/golden.jsonl, made by tiktoken 0.14.
type goldenRow struct {
	Encoding string
	Text     string
	IDs      []int32
}

func TestReferenceRows(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("testdata", "golden.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string][]goldenRow)
	for line := range bytes.Lines(data) {
		var row goldenRow
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		rows[row.Encoding] = append(rows[row.Encoding], row)
	}
	for _, name := range Names()[1:] {
		t.Run(name, func(t *testing.T) {
			if len(rows[name]) < 50 {
				t.Fatalf("only %d rows", len(rows[name]))
			}
			e := load(t, name)
			for _, row := range rows[name] {
				checkIDs(t, e, row.Text, row.IDs)
			}
		})
	}
}

// TestSharpTokenPlans checks the strings known with their ids from SharpToken.
func TestSharpTokenPlans(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(testdata.Dir(t), "tokenizers", "golden", "tiktoken-testplans.txt"))
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for plan := range strings.SplitSeq(string(data), "EncodingName: ") {
		name, rest, found := strings.Cut(plan, "\nSample: ")
		if !found {
			continue
		}
		text, list, _ := strings.Cut(rest, "\nEncoded: ")
		var ids []int32
		if err := json.Unmarshal([]byte(list), &ids); err != nil {
			t.Fatalf("%s %q: %v", name, text, err)
		}
		checkPlan(t, name, text, ids)
		checked++
	}
	if checked != 281 {
		t.Errorf("checked %d plans, want 281", checked)
	}
}

// checkPlan checks a plan. The plans were made with special tokens on, so that
// only the text between them is encoded here.
func checkPlan(t *testing.T, name, text string, want []int32) {
	t.Helper()
	special := make(map[string]int32)
	if name == "p50k_edit" { // the ranks of p50k_base and three more special tokens
		name = "p50k_base"
		special = map[string]int32{"<|fim_prefix|>": 50281, "<|fim_middle|>": 50282, "<|fim_suffix|>": 50283}
	}
	e := load(t, name)
	for id, s := range e.special {
		special[s] = id
	}
	enc := e.NewEncoder()
	var got []int32
	for rest := text; rest != ""; {
		at, token := len(rest), ""
		for s := range special {
			if i := strings.Index(rest, s); i >= 0 && i < at {
				at, token = i, s
			}
		}
		got = enc.Append(got, []byte(rest[:at]))
		if token != "" {
			got = append(got, special[token])
		}
		rest = rest[at+len(token):]
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s %.200q:\n got %v\nwant %v", name, text, got, want)
	}
}

// TestTransformersVectors checks the vectors of transformers.js.
func TestTransformersVectors(t *testing.T) {
	for file, name := range map[string]string{"gpt2.json": "r50k_base", "cl100k_base.json": "cl100k_base"} {
		data, err := os.ReadFile(filepath.Join(testdata.Dir(t), "tokenizers", "golden", file))
		if err != nil {
			t.Fatal(err)
		}
		var golden struct{ Vectors []goldenRow }
		if err := json.Unmarshal(data, &golden); err != nil || len(golden.Vectors) == 0 {
			t.Fatalf("%s: %d vectors, %v", file, len(golden.Vectors), err)
		}
		for _, v := range golden.Vectors {
			checkIDs(t, load(t, name), v.Text, v.IDs)
		}
	}
}

// docRow is a line of doc-encodings.jsonl: the ids on which two other
// implementations agree for a text of the data folder.
type docRow struct {
	File   string
	Line   int
	Field  string
	Bytes  int
	R50K   *docIDs `json:"r50k_base"`
	CL100K *docIDs `json:"cl100k_base"`
	O200K  *docIDs `json:"o200k_base"`
	NeoX   *docIDs
	Titan  *docIDs `json:"torchtitan"`
}

type docIDs struct {
	N    int
	SHA  string `json:"sha256_u32le"`
	Head []int32
}

func TestDocuments(t *testing.T) {
	dir := testdata.Dir(t)
	data, err := os.ReadFile(filepath.Join(dir, "tokenizers", "golden", "doc-encodings.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string][]json.RawMessage)
	checked := make(map[string]int)
	for line := range bytes.Lines(data) {
		var row docRow
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		if texts[row.File] == nil {
			texts[row.File] = records(t, filepath.Join(dir, row.File))
		}
		text := textOf(t, texts[row.File][row.Line], row.Field)
		if len(text) != row.Bytes {
			t.Fatalf("%s:%d has %d bytes, want %d", row.File, row.Line, len(text), row.Bytes)
		}
		for name, want := range map[string]*docIDs{
			"r50k_base": row.R50K, "cl100k_base": row.CL100K, "o200k_base": row.O200K,
			"allenai_gpt-neox-olmo-dolma-v1_5.json": row.NeoX, "torchtitan-test-tokenizer.json": row.Titan} {
			if want == nil {
				continue
			}
			checkDocument(t, load(t, name), fmt.Sprintf("%s:%d", row.File, row.Line), text, want)
			checked[name]++
		}
	}
	delete(checked, "o200k_base")
	if want := map[string]int{"r50k_base": 875, "cl100k_base": 866, "allenai_gpt-neox-olmo-dolma-v1_5.json": 875, "torchtitan-test-tokenizer.json": 875}; !maps.Equal(checked, want) {
		t.Errorf("checked %v documents, want %v", checked, want)
	}
}

func checkDocument(t *testing.T, e *Encoding, place, text string, want *docIDs) {
	t.Helper()
	ids := e.NewEncoder().Append(nil, []byte(text))
	h := sha256.New()
	if err := binary.Write(h, binary.LittleEndian, ids); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); len(ids) != want.N || got != want.SHA {
		t.Errorf("%s %s: %d tokens from %v, SHA-256 %s; want %d from %v, %s",
			e.Name(), place, len(ids), ids[:min(8, len(ids))], got, want.N, want.Head, want.SHA)
	}
}

// records returns the elements of a JSON array or the lines of a JSONL file.
func records(t testing.TB, path string) []json.RawMessage {
	t.Helper()
	data := readAll(t, path)
	var array []json.RawMessage
	if json.Unmarshal(data, &array) == nil {
		return array
	}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	scanner.Buffer(nil, len(data)+1)
	for scanner.Scan() {
		array = append(array, slices.Clone(scanner.Bytes()))
	}
	return array
}

func readAll(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var r io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if r, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// textOf returns a string field of a record, or the record if it is a string.
func textOf(t testing.TB, record json.RawMessage, field string) string {
	t.Helper()
	var text string
	if field == "" {
		if err := json.Unmarshal(record, &text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(record, &fields); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(fields[field], &text); err != nil {
		t.Fatalf("field %s: %v", field, err)
	}
	return text
}
