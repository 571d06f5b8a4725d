package service_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// writeTalks writes conversations, some of them without roles, and a template for them.
func writeTalks(t testing.TB, dir string, rng *rand.Rand) {
	t.Helper()
	write(t, filepath.Join(dir, "chat.jinja"), `{% for m in messages %}
<|x|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim }}<|eot_id|>{% endgeneration %}{% else %}{{ m.content }}<|eot_id|>{% endif %}
{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}`)
	for f := range 2 {
		var b strings.Builder
		for i := range 60 {
			var messages []string
			for k := range 1 + rng.IntN(8) {
				loss := []string{"", "", `,"loss":false`}[rng.IntN(3)]
				messages = append(messages, fmt.Sprintf(`{"role":%q,"content":%q%s}`, []string{"user", "assistant"}[k%2], words(rng, 1+rng.IntN(12)), loss))
			}
			if i%20 == 7 {
				messages = []string{`{"from":"human","value":"x"}`}
			}
			fmt.Fprintf(&b, `{"messages":[%s],"tools":[{"name":"f","number":%d}]}`+"\n", strings.Join(messages, ","), rng.IntN(9))
		}
		write(t, filepath.Join(dir, fmt.Sprintf("%d.jsonl", f)), b.String())
	}
}

// writeMasked writes token ids with a loss mask: numbers in one file, booleans in the other.
func writeMasked(t testing.TB, dir string, rng *rand.Rand) {
	t.Helper()
	for f, words := range [][2]string{{"0", "1"}, {"false", "true"}} {
		var b strings.Builder
		for i := range 80 {
			var ids, loss []string
			carries := rng.IntN(2)
			for range rng.IntN(400) {
				if rng.IntN(9) == 0 {
					carries = 1 - carries
				}
				ids, loss = append(ids, fmt.Sprint(rng.IntN(1000))), append(loss, words[carries])
			}
			mask := "[" + strings.Join(loss, ",") + "]"
			if i%10 == 0 {
				mask = "null"
			}
			fmt.Fprintf(&b, `{"id":%d,"ids":[%s],"loss":%s}`+"\n", i, strings.Join(ids, ","), mask)
		}
		write(t, filepath.Join(dir, fmt.Sprintf("%d.jsonl", f)), b.String())
	}
}

// writeTokenizers writes small files of models into dir.
func writeTokenizers(t testing.TB, dir string) {
	t.Helper()
	data, err := os.ReadFile("../sourceloader/tokenize/testdata/files.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var model struct {
			Name string
			File json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &model); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, model.Name+".json"), string(model.File))
	}
	writePieces(t, filepath.Join(dir, "pieces.model"))
}

// writePieces writes a small SentencePiece model.
func writePieces(t testing.TB, path string) {
	t.Helper()
	data, err := os.ReadFile("../sourceloader/tokenize/testdata/pieces-files.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var file struct{ Model []byte }
		if err := json.Unmarshal([]byte(line), &file); err != nil {
			t.Fatal(err)
		}
		if file.Model != nil {
			write(t, path, string(file.Model))
			return
		}
	}
	t.Fatal("there is no model")
}

func words(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		for range rng.IntN(8) + 1 {
			b.WriteByte(byte('a' + rng.IntN(26)))
		}
		b.WriteByte(' ')
	}
	return b.String()
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Sources that the jobs below are made of.
const (
	chat = `
  - name: chat
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms:
      - text: "{lang}: {text}"
      - filter: "lang == 'en' or len(text) > 100"
      - tokenize: bytes
      - append_eod: {}
    shuffle: {block: 3}`
	models = `
  - name: llama
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms: [{text: "{lang}: <|x|>{text}"}, {tokenize: {file: tokenizers/llama3.json, special: allow}}, {append_eod: 281}]
  - name: mistral
    files: jsonl/part-0.jsonl
    chunk_bytes: 2000
    transforms: [{text: "{text}"}, {tokenize: {file: tokenizers/mistral.json, post_processor: skip}}, {append_eod: 2}]
  - name: pieces
    files: jsonl/part-1.jsonl
    chunk_bytes: 2000
    transforms: [{tokenize: {file: tokenizers/pieces.model}}, {append_eod: 2}]`
	books = `
  - name: books
    files: text/*.txt
    chunk_bytes: 4000
    long: split
    shuffle: {block: 2}`
	capped = `
  - name: capped
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    limit: 25
    long: {rule: truncate, max: 100}`
)

// special has texts with a special token, and with a field that no record has.
const special = "\n" + `  - name: special
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms:
      - text: "{lang}<|endoftext|>{title?}{text} <|fim{lang}|>"
      - filter: "lang == 'en' or len(text) > 200"
      - tokenize: {encoding: bytes, special: refuse, allow: <|endoftext|>}
      - append_eod: {}`

// talks has conversations of which answers carry loss, and some messages say so themselves.
const talks = "\n" + `  - name: talks
    files: talks/*.jsonl
    chunk_bytes: 2000
    transforms: [{chat: {template: talks/chat.jinja, tools: tools}}, {filter: "len(text) > 60"}, {tokenize: {file: tokenizers/llama3.json}}]
    bad_records: skip
    long: {rule: split, max: 200}`

// masked has tokens without loss, in samples that are split and carry kept values.
const masked = "\n" + `  - name: masked
    files: masked/*.jsonl
    chunk_bytes: 2000
    keep: [id]
    transforms: [{tokens: ids}, {loss_mask: loss}, {append_eod: 7}]
    long: {rule: split, max: 200}`

const mixed = "sources:" + chat + books + capped + `
mix:
  stages:
    - {from: 0, weights: {chat: 0.5, books: 0.4, capped: 0.1}}
    - {from: 10, ramp: linear, over: 8, weights: {chat: 0.2, books: 0.8}}
    - {from: 25, ramp: cosine, over: 6, weights: {chat: 0.6, books: 0.3, capped: 0.1}}
`

// recipe is a job to run: steps = 0 runs it to the end of its data.
type recipe struct {
	name, spec string
	steps      int64
	changes    string // made before the start, one a line
}

func (r recipe) changesOf(t testing.TB) []change.Change {
	changes, err := change.Read(strings.NewReader(r.changes), r.name)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

var recipes = []recipe{
	{"mixed", mixed + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 40, ""},
	{"stop at the end of an epoch", "sources:" + chat + books + `
mix: {weights: {chat: 0.7, books: 0.3}, epochs: 2}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, pp: 2}
`, 0, ""},
	{"renormalize to the end of all", "sources:" + chat + books + capped + `
mix: {weights: {chat: 0.7, books: 0.2, capped: 0.1}, epochs: 1, exhausted: renormalize}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
`, 0, ""},
	{"one sample a row", mixed + `
batch: {sequence_length: 512, sequences: 16, microbatch_size: 4, packing: false}
topology: {dp: 2, cp: 2}
`, 30, ""},
	{"weights of samples", strings.Replace(mixed, "mix:", "mix:\n  unit: samples", 1) + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 1}
topology: {dp: 4}
`, 30, ""},
	{"special tokens", "sources:" + special + books + `
mix: {weights: {special: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 1}
topology: {dp: 4}
`, 30, ""},
	{"loss masks", "sources:" + masked + books + `
mix: {weights: {masked: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 30, ""},
	{"conversations", "sources:" + talks + books + `
mix: {weights: {talks: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 30, ""},
	{"conversations in structs", "sources:" + nested + books + `
mix: {weights: {nested: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 30, ""},
	{"loss masks, flat", "sources:" + masked + books + `
mix: {weights: {masked: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
output: {format: hf}
`, 20, ""},
	{"loss masks beside", "sources:" + indexed + books + `
mix: {weights: {indexed: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 30, ""},
	{"images in the text", "sources:" + placed + books + `
mix: {weights: {placed: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 20, ""},
	{"files of their own", "sources:" + sounds + books + `
mix: {weights: {sounds: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 20, ""},
	{"pixels and waveforms", "sources:" + media + books + `
mix: {weights: {media: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 20, ""},
	{"tokenizer files", "sources:" + models + books + `
mix: {weights: {llama: 0.3, mistral: 0.3, pieces: 0.2, books: 0.2}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 1}
topology: {dp: 4}
`, 30, ""},
	{"first records", "sources:" + strings.Replace(strings.Replace(talks, "- name: talks", "- name: first", 1), "transforms: [", "transforms: [{limit: 31}, ", 1) + books + `
mix: {weights: {first: 0.7, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 20, ""},
	{"groups", "sources:" + grouped + books + `
mix: {weights: {grouped: 0.5, fives: 0.2, books: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 20, ""},
	{"hf, contiguous", mixed + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
output: {format: hf, cp_slicing: contiguous}
`, 30, ""},
	{"broadcast at tp", mixed + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, tp: 2}
output: {broadcast_at: tp}
`, 30, ""},
	{"every tp rank, virtual stages", mixed + `
batch: {sequence_length: 512, sequences: 16, microbatch_size: 1}
topology: {dp: 2, pp: 2, tp: 2, vpp: 2}
`, 30, ""},
	{"not sliced", mixed + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
output: {cp_slicing: none}
`, 30, ""},
	epochs,
	own, ownAtCP, ownRows, atCP, split, costly, filled,
	waiting,
	{"outliers wait", mixed + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2, outliers: {above: [256, 400], together: 6, wait: 5}}
topology: {dp: 2, cp: 2}
`, 40, ""},
	{"outliers wait under a strategy of one's own", strings.Replace(own.spec, "microbatch_size: 2", "microbatch_size: 2, outliers: {above: 256, together: 6, wait: 5}", 1), 12, ""},
}

// epochs takes several whole epochs of two small sources in every step: each is one
// chunk, and its blocks are made of each other while they are in memory.
var epochs = recipe{"several epochs in every step", "sources:" + chat + `
  - name: few
    files: text/0[0-3].txt
    long: {rule: truncate, max: 60}
  - name: lines
    files: jsonl/part-0.jsonl
    keep: [lang]
    limit: 7
mix: {weights: {chat: 0.3, few: 0.4, lines: 0.3}}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
`, 30, `{"step":7,"ban":{"source":"few","file":"02.txt","row":0}}
{"step":11,"ban":{"source":"lines","file":"part-0.jsonl","row":0}}
`}

// waiting is a job that ends with samples that wait.
var waiting = recipe{"outliers wait to the end of all", "sources:" + chat + books + capped + `
mix: {weights: {chat: 0.3, books: 0.6, capped: 0.1}, epochs: 2, exhausted: renormalize}
batch: {sequence_length: 512, sequences: 4, microbatch_size: 1, outliers: {above: 300, together: 4, wait: 12}}
topology: {dp: 2, cp: 2}
`, 0, ""}

// resources are what may change nothing. Zero values are the defaults.
type resources struct {
	loaderBuffer, constructorBuffer int
	prefetch, window                int
	loaderDisk                      int
	spill                           int // of the engine; 0: none
	pythonWorkers                   int // 0: two
}

// Values of loaderDisk that are not bytes.
const (
	noDisk     = -1 // turned off
	brokenDisk = -2 // as large as by default, in a folder that is not there
)

func (r resources) yaml() string {
	var b strings.Builder
	for _, f := range []struct {
		name  string
		value int
	}{
		{"loader_buffer", r.loaderBuffer}, {"constructor_buffer", r.constructorBuffer},
		{"prefetch", r.prefetch}, {"window", r.window}, {"spill", r.spill}, {"python_workers", r.pythonWorkers},
	} {
		if f.value > 0 {
			fmt.Fprintf(&b, "  %s: %d\n", f.name, f.value)
		}
	}
	if r.loaderDisk > 0 || r.loaderDisk == noDisk {
		fmt.Fprintf(&b, "  loader_disk: %d\n", max(r.loaderDisk, 0))
	}
	if b.Len() == 0 {
		return ""
	}
	return "resources:\n" + b.String()
}

func (r recipe) text(res resources) string {
	return "name: test\nseed: 42\n" + r.spec + res.yaml()
}

func parse(t testing.TB, dir, spec string) *jobspec.Job {
	t.Helper()
	job, findings := jobspec.Parse("job.yaml", []byte(spec), dir)
	if err := findings.Err(); err != nil {
		t.Fatalf("%v in\n%s", err, spec)
	}
	return job
}

// answer is what the reference reader says of a recipe: the digest after every
// step, the first of them before any.
type answer struct {
	digests [][32]byte
	ended   bool
	content [32]byte // of all rows, whatever the job is
	skips   int      // bad records that were left out
}

func (a answer) steps() int64 { return int64(len(a.digests)) - 1 }

var (
	answersMu sync.Mutex
	answers   = map[string]answer{}
)

// solve computes the answer of a recipe once.
func solve(t testing.TB, dir string, r recipe) answer {
	t.Helper()
	answersMu.Lock()
	defer answersMu.Unlock()
	if a, ok := answers[r.name]; ok {
		return a
	}
	limit := r.steps
	if limit == 0 {
		limit = -1
	}
	var a answer
	wait := false
	n, root, err := reference.ReadWith(t.Context(), store.Local{}, program, parse(t, dir, r.text(resources{})), nil, 0, nil)
	if err != nil || n != 0 {
		t.Fatal(n, err)
	}
	a.digests = append(a.digests, root)
	if _, _, err = reference.ReadWith(t.Context(), store.Local{}, program, parse(t, dir, r.text(resources{})), r.changesOf(t), limit, func(s *reference.Step) error {
		a.digests = append(a.digests, s.Digest)
		wait, a.skips = wait || s.Held > 0, a.skips+len(s.Skipped)
		for _, row := range s.Rows {
			of := batch.RowDigest(row)
			a.content = sha256.Sum256(append(a.content[:], of[:]...))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if wait != strings.Contains(r.spec, "outliers:") {
		t.Fatalf("%s: that samples wait for others is %v", r.name, wait)
	}
	a.ended = r.steps == 0
	if a.steps() < 10 {
		t.Fatalf("%s has %d steps: too few to show anything", r.name, a.steps())
	}
	answers[r.name] = a
	return a
}
