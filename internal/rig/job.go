package rig

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// Random returns the numbers of one decision maker of a run, which do not depend on what
// others draw.
func Random(seed uint64, name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name)) // it never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

const chat = `
  - name: chat
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    transforms: [{text: "{lang}: {text}"}, {filter: "lang == 'en' or len(text) > 100"}, {tokenize: bytes}, {append_eod: {}}]
    shuffle: {block: 3}`

const books = `
  - name: books
    files: text/*.txt
    chunk_bytes: 4000
    long: split
    shuffle: {block: 2}`

const capped = `
  - name: capped
    files: jsonl/*.jsonl
    chunk_bytes: 2000
    limit: 25
    long: {rule: truncate, max: 100}`

// Recipe is a job to run. Steps is 0 if it runs to the end of its data.
type Recipe struct {
	Name    string
	Spec    string
	Steps   int64
	Changes string // made before the start, one a line
}

// Recipes are the jobs of the kill matrix. All have four ranks, of which two constructors
// serve two each, and run for 40 to 60 steps.
var Recipes = []Recipe{
	{"mix", "sources:" + chat + books + capped + `
mix:
  stages:
    - {from: 0, weights: {chat: 0.5, books: 0.4, capped: 0.1}}
    - {from: 10, ramp: linear, over: 8, weights: {chat: 0.2, books: 0.8}}
batch: {sequence_length: 256, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
`, 50, `{"step":9,"weights":{"chat":0.3,"books":0.7}}
{"step":15,"ban":{"source":"books","file":"02.txt","row":0}}
{"step":22,"schedule":true}
{"step":31,"pause":"books"}
{"step":36,"resume":"books"}
`},
	{"epochs", "sources:" + chat + books + `
mix: {weights: {chat: 0.7, books: 0.3}, epochs: 2, exhausted: renormalize}
batch: {sequence_length: 256, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
`, 0, ""},
	{"balanced", "sources:" + chat + books + capped + `
mix: {weights: {chat: 0.6, books: 0.3, capped: 0.1}}
batch: {sequence_length: 256, sequences: 8, microbatch_size: 1}
topology: {dp: 2, pp: 2}
strategy:
  - distribute: dp
  - cost: quadratic
  - balance: auto
`, 45, `{"step":12,"skip":1}
{"step":25,"weights":{"chat":0.5,"capped":0.5}}
`},
}

// Files gives the files of the sources of Recipes to put, the same in every run.
func Files(put func(name, text string) error) error {
	rng := Random(7, "files")
	for f := range 3 {
		var b strings.Builder
		for i := range 60 {
			fmt.Fprintf(&b, `{"id":%d,"lang":%q,"text":%q}`+"\n", i, []string{"en", "de"}[rng.IntN(2)], words(rng, rng.IntN(60)+1))
		}
		if err := put(fmt.Sprintf("jsonl/part-%d.jsonl", f), b.String()); err != nil {
			return err
		}
	}
	for f := range 40 {
		if err := put(fmt.Sprintf("text/%02d.txt", f), words(rng, rng.IntN(120)+1)); err != nil {
			return err
		}
	}
	return nil
}

// Write makes the sources of Recipes in a folder.
func Write(dir string) error {
	return Files(func(name, text string) error { return write(filepath.Join(dir, name), text) })
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

func write(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// Sample is the place of a document in its source's order.
type Sample struct {
	Source string
	Block  uint64
	Index  uint32
}

// Answer is a job, and what the reference reader says of it. It is read-only once made.
type Answer struct {
	Recipe  *Recipe
	Job     *jobspec.Job
	Spec    string              // file
	Changes string              // file; "" if there are none
	Digests [][32]byte          // after every step, the first of them before any
	Samples []map[Sample]uint64 // of each step, how often each is in it: once, but for the pieces of one that is split
	Token   []byte              // of the position after the last step; nil until a run without harm gave it
}

// Steps is the number of steps of the run.
func (a *Answer) Steps() int64 { return int64(len(a.Digests)) - 1 }

// Solve writes the files of a recipe beside the sources in dir and has the reference
// reader compute it. prefetch is the spec's.
func Solve(ctx context.Context, dir string, r *Recipe, prefetch int) (*Answer, error) {
	a := &Answer{Recipe: r, Spec: filepath.Join(dir, r.Name+".yaml")}
	spec := fmt.Sprintf("name: %s\nseed: 42\n%sresources: {prefetch: %d}\n", r.Name, r.Spec, prefetch)
	if err := write(a.Spec, spec); err != nil {
		return nil, err
	}
	if r.Changes != "" {
		a.Changes = filepath.Join(dir, r.Name+".changes")
		if err := write(a.Changes, r.Changes); err != nil {
			return nil, err
		}
	}
	var err error
	if a.Job, err = jobspec.Load(a.Spec); err != nil {
		return nil, err
	}
	changes, err := change.Read(strings.NewReader(r.Changes), a.Changes)
	if err != nil {
		return nil, err
	}
	return a, a.read(ctx, changes)
}

// read has the reference reader compute the job.
func (a *Answer) read(ctx context.Context, changes []change.Change) error {
	_, root, err := reference.Read(ctx, store.Local{}, a.Job, changes, 0, nil)
	if err != nil {
		return err
	}
	limit := a.Recipe.Steps
	if limit == 0 {
		limit = -1
	}
	a.Digests = append(a.Digests, root)
	_, _, err = reference.Read(ctx, store.Local{}, a.Job, changes, limit, func(s *reference.Step) error {
		a.Digests = append(a.Digests, s.Digest)
		samples := map[Sample]uint64{}
		for _, row := range s.Places {
			for _, p := range row {
				samples[Sample{p.Source, uint64(p.Seq), uint32(p.Index)}]++
			}
		}
		a.Samples = append(a.Samples, samples)
		return nil
	})
	return err
}
