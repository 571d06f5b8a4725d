package preview_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// files are sources of several sizes, in memory.
func files() *store.Memory {
	st := &store.Memory{}
	write(func(name string, data []byte) { st.Put(name, data) })
	return st
}

// write makes the files of the sources, all from one seed.
func write(put func(name string, data []byte)) {
	rng := rand.New(rand.NewPCG(7, 7))
	for f := range 3 {
		var b strings.Builder
		for i := range 60 {
			fmt.Fprintf(&b, `{"id":%d,"lang":%q,"text":%q}`+"\n", i, []string{"en", "de"}[rng.IntN(2)], words(rng, rng.IntN(60)+1))
		}
		put(fmt.Sprintf("jsonl/part-%d.jsonl", f), []byte(b.String()))
	}
	for f := range 40 {
		put(fmt.Sprintf("text/%02d.txt", f), []byte(words(rng, rng.IntN(300))))
	}
	put("pictures.tar", album(rng))
	var b strings.Builder
	for range 2000 {
		fmt.Fprintf(&b, "%-*s\n", shortLine-1, fmt.Sprintf(`{"text":%q}`, words(rng, rng.IntN(20)+1)))
	}
	put("short.jsonl", []byte(b.String()))
}

// shortLine is how long each line of short.jsonl is.
const shortLine = 200

// album is a tar of pictures of several sizes, each with a caption.
func album(rng *rand.Rand) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, data []byte) {
		w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))})
		w.Write(data)
	}
	for i := range 60 {
		var picture bytes.Buffer
		if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 28*(1+rng.IntN(4)), 28*(1+rng.IntN(3))))); err != nil {
			panic(err) // memory takes all
		}
		add(fmt.Sprintf("%03d.png", i), picture.Bytes())
		add(fmt.Sprintf("%03d.txt", i), []byte(words(rng, rng.IntN(30)+1)))
	}
	w.Close()
	return b.Bytes()
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

const sources = `name: test
seed: 42
sources:
  - name: chat
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms:
      - text: "{lang}: {text}"
      - filter: "lang == 'en' or len(text) > 100"
      - tokenize: bytes
      - append_eod: {}
    shuffle: {block: 3}
  - name: books
    files: text/*.txt
    chunk_bytes: 4000
    shuffle: {block: 2}
  - name: capped
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    limit: 25
    long: {rule: truncate, max: 100}
`

const stages = `mix:
  stages:
    - {from: 0, weights: {chat: 0.5, books: 0.4, capped: 0.1}}
    - {from: 10, ramp: linear, over: 8, weights: {chat: 0.2, books: 0.8}}
`

// bans are of one record of short.jsonl in each group of some, from one of the first steps on.
func bans(oneIn int) string {
	var b strings.Builder
	for i := range 2000 / oneIn {
		fmt.Fprintf(&b, `{"step":%d,"ban":{"source":"short","file":"short.jsonl","row":%d}}`+"\n", i%4, i*oneIn*shortLine)
	}
	return b.String()
}

// recipe is a job to plan: steps = 0 plans it to the end of its data.
type recipe struct {
	name, spec string
	steps      int64
	changes    string // one a line
}

var recipes = []recipe{
	{"mixed", sources + stages + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 30, ""},
	{"end", sources + `
mix: {weights: {chat: 0.7, books: 0.2, capped: 0.1}, epochs: 2, exhausted: renormalize}
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2}
`, 0, ""},
	{"stop", sources + `
mix: {weights: {chat: 0.7, books: 0.3}, epochs: 1}
batch: {sequence_length: 512, sequences: 4}
topology: {dp: 4}
`, 0, ""},
	{"one sample a row", sources + stages + `
batch: {sequence_length: 512, sequences: 16, microbatch_size: 4, packing: false}
topology: {dp: 2}
`, 20, ""},
	{"samples, random", sources + `
mix: {unit: samples, draw: random, weights: {chat: 0.6, books: 0.4}}
batch: {sequence_length: 512, sequences: 8}
topology: {dp: 4}
`, 20, ""},
	{"balanced", sources + stages + `
batch: {sequence_length: 512, sequences: 16, microbatch_size: 2}
topology: {dp: 4, tp: 2}
strategy:
  - mix: {}
  - distribute: dp
  - cost: quadratic
  - balance: {method: auto, level: interleaved}
`, 20, ""},
	{"padded documents", sources + stages + `
batch: {sequence_length: 512, sequences: 8}
topology: {dp: 2, cp: 2}
output: {format: megatron-thd, document_multiple: 16}
`, 15, ""},
	{"images", sources + `  - name: pictures
    files: pictures.tar
    transforms: [{tokenize: bytes}, {image: {columns: png, token: 300, min_pixels: 784, max_pixels: 12544}}, {append_eod: {}}]
mix: {weights: {chat: 0.4, pictures: 0.6}}
batch: {sequence_length: 512, sequences: 8}
topology: {dp: 2, cp: 2}
output: {cp_slicing: none}
strategy: [distribute: dp, cost: quadratic, balance: auto, graph: image, distribute: world, cost: patches, balance: auto]
`, 20, ""},
	{"changes", sources + stages + `
batch: {sequence_length: 512, sequences: 8}
topology: {dp: 2}
`, 30, `
{"step":2,"ban":{"source":"chat","file":"part-1.jsonl","row":0}}
{"step":3,"weights":{"chat":0.9,"books":0.1}}
{"step":5,"skip":2}
{"step":5,"pause":"books"}
{"step":8,"resume":"books"}
{"step":9,"sequences":12}
{"step":12,"add":{"source":{"name":"late","files":"text/1*.txt"},"weight":0.3}}
{"step":14,"topology":{"dp":4}}
{"step":16,"weights":{"late":0.5,"chat":0.5}}
{"step":20,"schedule":true}
{"step":21,"skip":1}
{"step":21,"skip":1}
{"step":22,"ban":{"source":"books","file":"07.txt","row":0}}
`},
}

// bannedRecipes have bans between the samples that a step gives back.
var bannedRecipes = []recipe{
	{"a seventh banned", manyShort, 20, bans(7)},
	{"half banned", manyShort, 20, bans(2)},
}

// manyShort is a job whose rows have hundreds of samples, so that some of each step wait for the next one or go back to their source.
const manyShort = `name: test
seed: 42
sources: [{name: short, files: short.jsonl, chunk_bytes: 20000}, {name: books, files: text/*.txt}]
mix: {weights: {short: 0.9, books: 0.1}}
batch: {sequence_length: 8192, sequences: 4}
topology: {dp: 2}
`

func (r recipe) job(t testing.TB) *jobspec.Job {
	t.Helper()
	job, findings := jobspec.Parse("job.yaml", []byte(r.spec), "")
	if err := findings.Err(); err != nil {
		t.Fatalf("%v in\n%s", err, r.spec)
	}
	return job
}

func (r recipe) made(t testing.TB) []change.Change {
	t.Helper()
	changes, err := change.Read(strings.NewReader(r.changes), r.name)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func (r recipe) limit() int64 {
	if r.steps == 0 {
		return -1
	}
	return r.steps
}

func (r recipe) open(t testing.TB, st store.Store, change func(*preview.Options)) *preview.Job {
	t.Helper()
	opts := preview.Options{Job: r.job(t), Store: st, Changes: r.made(t)}
	if change != nil {
		change(&opts)
	}
	j, err := preview.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// solve is what the reference reader says of a recipe.
func (r recipe) solve(t testing.TB, st store.Store) (steps []*reference.Step) {
	t.Helper()
	_, _, err := reference.Read(t.Context(), st, r.job(t), r.made(t), r.limit(), func(s *reference.Step) error {
		steps = append(steps, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) < 8 {
		t.Fatalf("%s has %d steps: too few to show anything", r.name, len(steps))
	}
	return steps
}
