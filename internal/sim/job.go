package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// dir is where the files of all jobs are, in a store in memory.
const dir = "/data"

// files makes the sources of all jobs, once.
var files = sync.OnceValue(func() *store.Memory {
	st, rng := &store.Memory{}, random(7, "files")
	for f := range 3 {
		var b strings.Builder
		for i := range 60 {
			fmt.Fprintf(&b, `{"id":%d,"lang":%q,"text":%q}`+"\n", i, []string{"en", "de"}[rng.IntN(2)], words(rng, rng.IntN(20)+1))
		}
		st.Put(fmt.Sprintf("%s/jsonl/part-%d.jsonl", dir, f), []byte(b.String()))
	}
	for f := range 40 {
		st.Put(fmt.Sprintf("%s/text/%02d.txt", dir, f), []byte(words(rng, rng.IntN(60)+1)))
	}
	return st
})

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

const chat = `
  - name: chat
    files: jsonl/*.jsonl
    chunk_bytes: 1000
    transforms: [{text: "{lang}: {text}"}, {filter: "lang == 'en' or len(text) > 60"}, {tokenize: bytes}, {append_eod: {}}]
    long: split
    shuffle: {block: 3}`

const books = `
  - name: books
    files: text/*.txt
    chunk_bytes: 1500
    long: split
    shuffle: {block: 2}`

const capped = `
  - name: capped
    files: jsonl/*.jsonl
    chunk_bytes: 1000
    limit: 25
    long: {rule: truncate, max: 100}`

const mixed = "sources:" + chat + books + capped + `
mix:
  stages:
    - {from: 0, weights: {chat: 0.5, books: 0.4, capped: 0.1}}
    - {from: 10, ramp: linear, over: 8, weights: {chat: 0.2, books: 0.8}}
`

// recipe is a job to run. All have eight ranks.
type recipe struct {
	name, spec string
	steps      int64  // 0: to the end of the data
	changes    string // made before the start, one a line
}

var recipes = []recipe{
	{"packed", mixed + `
batch: {sequence_length: 128, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2, pp: 2}
`, 40, ""},
	{"to the end of the data", "sources:" + chat + books + `
mix: {weights: {chat: 0.7, books: 0.3}, epochs: 2, exhausted: renormalize}
batch: {sequence_length: 128, sequences: 8, microbatch_size: 2}
topology: {dp: 4, cp: 2}
`, 0, ""},
	{"context split", mixed + `
batch: {sequence_length: 64, sequences: 16, context_split: 4}
topology: {dp: 2, cp: 2, pp: 2}
output: {format: megatron-thd}
strategy:
  - distribute: cp
  - cost: quadratic
  - balance: auto
`, 30, ""},
	{"banned records", mixed + `
batch: {sequence_length: 128, sequences: 8, microbatch_size: 1}
topology: {dp: 4, tp: 2}
`, 30, `{"step":7,"ban":{"source":"books","file":"02.txt","row":0}}
{"step":11,"ban":{"source":"chat","file":"part-0.jsonl","row":3}}
`},
}

// measured is the job of runs that are measured: steps of 256 tokens, so that messages are what a run has most of.
var measured = recipe{"measured", mixed + `
batch: {sequence_length: 128, sequences: 2, microbatch_size: 1}
topology: {dp: 2, cp: 2, pp: 2}
`, 0, ""}

// resources may change nothing; a run draws its own.
type resources struct{ loaderBuffer, constructorBuffer, prefetch, window int }

func (r *recipe) parse(res resources) (*jobspec.Job, error) {
	text := fmt.Sprintf("name: sim\nseed: 42\n%sresources: {loader_disk: 0, loader_buffer: %d, constructor_buffer: %d, prefetch: %d, window: %d}\n",
		r.spec, res.loaderBuffer, res.constructorBuffer, res.prefetch, res.window)
	job, findings := jobspec.Parse("job.yaml", []byte(text), dir)
	return job, findings.Err()
}

func (r *recipe) changesOf() ([]change.Change, error) {
	return change.Read(strings.NewReader(r.changes), r.name)
}

// answer is what the reference reader says of a recipe: the digest after every step, the
// first of them before any.
type answer struct{ digests [][32]byte }

func (a *answer) steps() int64 { return int64(len(a.digests)) - 1 }

// answers are computed once for each recipe and length. There are no channels in them, so that
// bubbles may share them.
var answers sync.Map // of name and steps, to func() (*answer, error)

// answer is what the reference reader says of a recipe.
func (r *recipe) answer() (*answer, error) {
	once, _ := answers.LoadOrStore(fmt.Sprint(r.name, r.steps), sync.OnceValues(func() (*answer, error) {
		digests, err := r.solve()
		return &answer{digests}, err
	}))
	return once.(func() (*answer, error))()
}

// long is the recipe with that many steps.
func (r recipe) long(steps int64) *recipe {
	r.steps = steps
	return &r
}

func (r *recipe) solve() (digests [][32]byte, err error) {
	job, err := r.parse(resources{1 << 20, 1 << 20, 2, 20})
	if err != nil {
		return nil, err
	}
	changes, err := r.changesOf()
	if err != nil {
		return nil, err
	}
	_, root, err := reference.Read(context.Background(), files(), job, nil, 0, nil)
	if err != nil {
		return nil, err
	}
	limit := r.steps
	if limit == 0 {
		limit = -1
	}
	digests = append(digests, root)
	_, _, err = reference.Read(context.Background(), files(), job, changes, limit, func(s *reference.Step) error {
		digests = append(digests, s.Digest)
		return nil
	})
	return digests, err
}
