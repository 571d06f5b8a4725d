package service_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/change"
	"github.com/millrace-data/millrace/internal/planner/status"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/reference"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
)

// Changes by what they are about. Those of one group leave room for the others.
const (
	reweighted = `{"step":3,"weights":{"chat":0.1,"books":0.9}}
{"step":9,"schedule":true}
{"step":17,"weights":{"books":1,"capped":2,"chat":3}}
`
	paused = `{"step":2,"pause":"chat","reason":"bad data"}
{"step":6,"resume":"chat"}
{"step":11,"pause":"books"}
{"step":15,"resume":"books"}
`
	dropped = `{"step":5,"drop":"capped"}
{"step":18,"drop":"chat"}
`
	joined = `{"step":4,"add":{"source":{"name":"extra","files":"extra/*.jsonl","chunk_bytes":2000,"long":{"rule":"split","max":200}},"weight":0.3}}
{"step":13,"weights":{"extra":0.5,"chat":0.5}}
{"step":16,"add":{"source":{"name":"more","files":"extra/0.jsonl","limit":7,"shuffle":{"block":2},"long":{"rule":"truncate","max":100}},"weight":0.2}}
{"step":19,"pause":"extra"}
`
	resized = `{"step":5,"sequences":16}
{"step":8,"sequence_length":1024}
{"step":12,"sequence_length":256,"sequences":8}
`
	skipped = `{"step":3,"skip":3}
{"step":4,"skip":1}
{"step":4,"skip":2,"reason":"twice"}
{"step":14,"skip":5}
`
	banned = `{"step":2,"ban":{"source":"chat","file":"part-0.jsonl","row":0}}
{"step":9,"ban":{"source":"chat","file":"jsonl/part-1.jsonl","row":0}}
{"step":4,"ban":{"source":"books","file":"07.txt","row":0}}
{"step":4,"ban":{"source":"books","file":"08.txt","row":0}}
{"step":4,"ban":{"source":"books","file":"09.txt","row":0}}
{"step":12,"ban":{"source":"chat","file":"part-2.jsonl","row":0}}
{"step":1,"ban":{"source":"capped","file":"part-2.jsonl","row":0}}
`
	meshed = `{"step":4,"topology":{"dp":4}}
{"step":10,"topology":{"dp":1,"cp":1,"pp":2}}
{"step":15,"topology":{"dp":2,"tp":2}}
`
	cancelled = `{"step":9,"cancel":{"step":9,"schedule":true}}
{"step":4,"cancel":{"step":4,"skip":2,"reason":"twice"},"reason":"once is enough"}
{"step":12,"cancel":{"step":12,"sequence_length":256,"sequences":8}}
{"step":12,"cancel":{"step":12,"ban":{"source":"chat","file":"part-2.jsonl","row":0}}}
{"step":15,"cancel":{"step":15,"topology":{"dp":2,"tp":2}}}
{"step":18,"cancel":{"step":18,"drop":"chat"}}
{"step":18,"pause":"chat"}
{"step":18,"cancel":{"step":18,"pause":"chat"}}
{"step":18,"pause":"chat"}
`
	everything = reweighted + paused + dropped + joined + resized + skipped + banned + meshed
)

// changeable is a job of three sources whose samples have at most 200 tokens.
func changeable(mix, batch string) string {
	sources := "sources:" + strings.Replace(chat, "shuffle:", "long: {rule: split, max: 200}\n    shuffle:", 1) +
		strings.Replace(books, "long: split", "long: {rule: split, max: 200}", 1) + capped
	return sources + "\nmix:" + mix + `
  stages:
    - {from: 0, weights: {chat: 0.5, books: 0.4, capped: 0.1}}
    - {from: 3, ramp: linear, over: 6, weights: {chat: 0.3, books: 0.6, capped: 0.1}}
` + "batch: {sequence_length: 512, sequences: 8, " + batch + "}\n"
}

const twoByTwo = "topology: {dp: 2, cp: 2}\n"

// changed are jobs with changes: each kind alone, all together, and all together
// in jobs that mix, pack and place otherwise.
var changed = []recipe{
	{"weights", changeable("", "microbatch_size: 2") + twoByTwo, 22, reweighted},
	{"pause and resume", changeable("", "microbatch_size: 2") + twoByTwo, 22, paused},
	{"drop", changeable("", "microbatch_size: 2") + twoByTwo, 22, dropped},
	{"add", changeable("", "microbatch_size: 2") + twoByTwo, 24, joined},
	{"resize", changeable("", "microbatch_size: 2") + twoByTwo, 22, resized},
	{"skip", changeable("", "microbatch_size: 2") + twoByTwo, 22, skipped},
	{"ban", changeable("", "microbatch_size: 2") + twoByTwo, 22, banned},
	{"topology", changeable("", "microbatch_size: 2") + twoByTwo, 22, meshed},
	{"everything", changeable("", "microbatch_size: 2") + twoByTwo, 26, everything},
	{"cancelled", changeable("", "microbatch_size: 2") + twoByTwo, 26, everything + cancelled},
	{"everything at once", changeable("", "microbatch_size: 2") + twoByTwo, 16, atOnce(everything, 6)},
	{"everything before the start", changeable("", "microbatch_size: 2") + twoByTwo, 16, atOnce(everything, 0)},
	{"by chance", changeable("\n  draw: random", "microbatch_size: 1") + twoByTwo, 26, everything},
	{"by samples", changeable("\n  unit: samples", "microbatch_size: 2") + twoByTwo, 26, everything},
	{"within steps", changeable("\n  grain: substep", "microbatch_size: 2") + twoByTwo, 26, everything},
	{"by epochs", changeable("\n  grain: epoch", "microbatch_size: 2") + twoByTwo, 26, reweighted + dropped + joined + skipped + banned},
	{"a sample a row", changeable("", "packing: false") + twoByTwo, 26, everything},
	{"until the end", changeable("\n  epochs: 2\n  exhausted: renormalize", "microbatch_size: 2") + twoByTwo, 0, paused + joined + resized + skipped + banned + meshed},
	{"stopped by a source", changeable("\n  epochs: 3", "microbatch_size: 2") + twoByTwo, 0, reweighted + skipped + banned},
	{"changes while outliers wait", changeable("", "outliers: {above: [150, 190], together: 6, wait: 4}") + twoByTwo, 26, everything},
	{"changes at once while outliers wait", changeable("\n  unit: samples", "outliers: {above: 120, wait: 9}") + twoByTwo, 16, atOnce(everything, 6)},
	{"changes while outliers wait by chance", changeable("\n  draw: random\n  epochs: 3", "packing: false, outliers: {above: [100, 180], together: 8}") + twoByTwo, 0, reweighted + skipped + banned},
	{"changes while outliers wait until the end", changeable("\n  epochs: 2\n  exhausted: renormalize\n  grain: substep", "outliers: {above: 150, together: 5}") + twoByTwo, 0, paused + joined + resized + skipped + banned + meshed},
	{"rows of like cost", changeable("", "microbatch_size: 1") + `strategy:
  - distribute: dp
  - cost: {model: quadratic, a: 1000, b: 1}
  - balance: {level: intra}
` + twoByTwo, 26, everything},
	{"groups of ranks", changeable("", "microbatch_size: 1") + `strategy:
  - distribute: {axis: dp, group_size: 2}
  - cost: {model: quadratic, a: 1000, b: 1}
  - balance: {level: interleaved}
` + twoByTwo, 26, strings.Replace(everything, `"dp":1,`, `"dp":2,`, 1)},
}

// atOnce has all changes made at one step. What stands in the way of others by
// then is left out.
func atOnce(changes string, step int) string {
	var b strings.Builder
	for line := range strings.Lines(changes) {
		c, err := change.Parse([]byte(line))
		if err != nil {
			panic(err)
		}
		if c.Drop == "chat" {
			continue
		}
		c.Step = int64(step)
		fmt.Fprintln(&b, c)
	}
	return b.String()
}

// writeMore adds the files of the sources that join to those of writeSources.
func writeMore(t testing.TB) string {
	t.Helper()
	dir := writeSources(t)
	rng := rand.New(rand.NewPCG(8, 8))
	for f := range 2 {
		var b strings.Builder
		for i := range 50 {
			fmt.Fprintf(&b, `{"id":%d,"text":%q}`+"\n", i, words(rng, rng.IntN(40)+1))
		}
		write(t, filepath.Join(dir, "extra", fmt.Sprintf("%d.jsonl", f)), b.String())
	}
	return dir
}

// TestChanges: a job with changes delivers what the reference says, whatever the
// number of roles and the buffers.
func TestChanges(t *testing.T) {
	dir := writeMore(t)
	settings := []setting{
		{loaders: 1, constructors: 1},
		{loaders: 2, constructors: 2, readAhead: -1, resources: resources{loaderBuffer: 1, constructorBuffer: 1, prefetch: 1, window: 1}},
		{loaders: 3, constructors: 2, resources: resources{prefetch: 8, window: 500}, log: true},
		{loaders: 2, constructors: 2, processes: true, resources: resources{prefetch: 4}},
		{loaders: 2, constructors: 1, resources: resources{loaderBuffer: 1, loaderDisk: noDisk}},
	}
	for i, r := range changed {
		if testing.Short() && i%4 > 0 {
			continue
		}
		for k, s := range settings {
			if long || k == i%3 || k == 1 && r.name == "ban" || s.processes && (r.name == "everything" || r.name == "cancelled") {
				check(t, dir, r, s)
			}
		}
	}
}

// TestChangesMatter: each group of changes makes another job, but for those that
// say where rows go.
func TestChangesMatter(t *testing.T) {
	dir := writeMore(t)
	for _, r := range changed {
		without := r
		without.name, without.changes = r.name+", unchanged", ""
		with, plain := solve(t, dir, r), solve(t, dir, without)
		last := min(with.steps(), plain.steps())
		if same := with.digests[last] == plain.digests[last]; same != (r.changes == meshed) {
			t.Errorf("%s: the same batches with and without changes: %v", r.name, same)
		}
	}
}

// TestBannedRecords: no row of a job has a banned record in it from its step on.
func TestBannedRecords(t *testing.T) {
	dir := writeMore(t)
	r := changed[6]
	changes := r.changesOf(t)
	seen := 0
	_, _, err := reference.ReadWith(t.Context(), store.Local{}, program, parse(t, dir, r.text(resources{})), changes, 60, func(s *reference.Step) error {
		for _, row := range s.Places {
			for _, p := range row {
				for _, c := range changes {
					if p.Source != c.Ban.Source || p.Row != c.Ban.Row || !strings.HasSuffix("/"+p.File, "/"+filepath.Base(c.Ban.File)) {
						continue
					}
					if seen++; s.Step >= c.Step {
						t.Errorf("step %d has %+v, which is banned from step %d on", s.Step, p, c.Step)
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no banned record was used before its ban: nothing is shown")
	}
}

// TestResumeAroundChanges goes on from tokens of the steps around each change: in
// one service, and in fresh ones that know nothing but the token.
func TestResumeAroundChanges(t *testing.T) {
	dir := writeMore(t)
	for _, r := range changed {
		if testing.Short() && r.name != "everything" && r.name != "ban" {
			continue
		}
		if !long && r.name != "everything" && r.name != "cancelled" && r.name != "add" && r.name != "ban" && r.name != "by chance" && r.name != "everything at once" {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			want, tokens := solve(t, dir, r), takeTokens(t, dir, r)
			if int64(len(tokens)) != want.steps()+1 {
				t.Fatalf("%d tokens of %d steps", len(tokens), want.steps())
			}
			t.Run("in a live service", func(t *testing.T) { resumeLive(t, dir, r, tokens) })
			fresh := r
			fresh.changes = ""
			for k := range tokens {
				if !long && k%4 > 0 || testing.Short() && k%12 > 0 {
					continue
				}
				s := setting{loaders: 1 + k%3, constructors: 1 + k%2, log: k%2 == 0, resources: resources{loaderBuffer: k % 2, prefetch: 1 + k%5, window: 1 + k}}
				s.serve(t, dir, fresh, func(ctx context.Context, address string) error {
					return goOn(ctx, address, parse(t, dir, fresh.text(s.resources)), want, tokens, int64(k), int64(len(tokens)))
				})
				if t.Failed() {
					t.Fatalf("from step %d", k)
				}
			}
		})
	}
}

// ask makes a change to a job that runs.
func ask(ctx context.Context, address, text string) (step uint64, err error) {
	conn, err := rpc.Dial(address, rpc.Security{})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	reply, err := pb.NewPlannerClient(conn).Change(ctx, &pb.ChangeRequest{Change: []byte(text)})
	return reply.GetStep(), rpc.FromStatus(err)
}

// TestLiveChanges makes changes while ranks run, at whatever moment they come.
// The journal of the service is all that the reference needs to come to the same
// batches, and all that another life of the log needs to go on.
func TestLiveChanges(t *testing.T) {
	dir := writeMore(t)
	rounds := 4
	switch {
	case long:
		rounds = 30
	case testing.Short():
		rounds = 2
	}
	for round := range rounds {
		r := changed[[]int{8, 12, 14}[round%3]]
		t.Run(fmt.Sprint(r.name, " ", round), func(t *testing.T) {
			r.changes = ""
			s := setting{loaders: 2, constructors: 2, log: true, resources: resources{prefetch: 1 + round*3%7}}
			opts := s.options(t, dir, r)
			rng := rand.New(rand.NewPCG(uint64(round), 3))
			first := liveRun(t, opts, 30, lived{}, shuffled(rng, everything), round%2 == 1)
			again := liveRun(t, opts, 35, first, nil, false) // the same log, another life
			digests := map[int64][32]byte{}
			for _, part := range []lived{first, again} {
				for step, digest := range part.digests {
					digests[step] = digest
				}
			}
			if len(digests) != 65 {
				t.Fatalf("%d steps", len(digests))
			}
			if len(again.changes) != len(first.changes) {
				t.Errorf("%d changes in the journal, %d in the log's next life", len(first.changes), len(again.changes))
			}
			_, _, err := reference.ReadWith(t.Context(), store.Local{}, program, opts.Job, again.changes, 65, func(s *reference.Step) error {
				if s.Digest != digests[s.Step] {
					return fmt.Errorf("step %d has digest %x, the reference %x", s.Step, digests[s.Step], s.Digest)
				}
				return nil
			})
			if err != nil {
				t.Errorf("with %v: %v", again.changes, err)
			}
		})
	}
}

// shuffled are changes in any order: some come late for their step.
func shuffled(rng *rand.Rand, changes string) (texts []string) {
	for line := range strings.Lines(changes) {
		texts = append(texts, line)
	}
	rng.Shuffle(len(texts), func(i, j int) { texts[i], texts[j] = texts[j], texts[i] })
	return texts
}

// lived is what a life of a service came to.
type lived struct {
	digests map[int64][32]byte
	changes []change.Change
	token   []byte
}

// liveRun runs a job for some steps while changes are asked for one after the
// other: three after each step or, with beside, as fast as they are answered. It goes on
// from where it was before; a change of that very step may have come after its token.
func liveRun(t *testing.T, opts service.Options, steps int64, before lived, texts []string, beside bool) lived {
	t.Helper()
	out := lived{digests: map[int64][32]byte{}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := service.Run(ctx, opts, func(ctx context.Context, address string) error {
		a := &asker{address: address, texts: texts}
		done := make(chan struct{})
		close(done)
		res, err := trainer.Run(ctx, trainer.Options{
			Address: address, Job: opts.Job, Token: before.token, Changes: before.changes, Steps: steps,
			OnStep: func(s trainer.Step) {
				out.digests[s.Step] = s.Digest
				switch {
				case !beside:
					a.ask(ctx, 3)
				case len(out.digests) == 1:
					done = make(chan struct{})
					go func() {
						defer close(done)
						a.ask(ctx, len(texts))
					}()
				}
			},
		})
		<-done
		if err := errors.Join(err, a.bug); err != nil {
			return err
		}
		out.token = res.Token
		out.changes, err = journalOf(ctx, address)
		if err == nil && len(texts) > 0 && (len(out.changes) != a.made || a.made < 10) {
			t.Errorf("%d changes were made, the journal has %d", a.made, len(out.changes))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// asker makes changes. One that is refused at its moment is left out.
type asker struct {
	address string
	texts   []string
	made    int
	bug     error
}

func (a *asker) ask(ctx context.Context, n int) {
	for ; n > 0 && len(a.texts) > 0; n-- {
		_, err := ask(ctx, a.address, a.texts[0])
		switch {
		case err == nil:
			a.made++
			if a.made%3 == 0 {
				a.cancel(ctx)
			}
		case fault.ClassOf(err) != fault.User:
			a.bug = err
		}
		a.texts = a.texts[1:]
	}
}

// statusOf asks a service for its status.
func statusOf(ctx context.Context, address string) (s status.Service, err error) {
	conn, err := rpc.Dial(address, rpc.Security{})
	if err != nil {
		return s, err
	}
	defer conn.Close()
	reply, err := pb.NewPlannerClient(conn).Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(reply.Json, &s)
}

// journalOf asks a service for all changes that were made.
func journalOf(ctx context.Context, address string) (changes []change.Change, err error) {
	status, err := statusOf(ctx, address)
	if err != nil {
		return nil, err
	}
	for _, text := range status.Changes {
		c, err := change.Parse([]byte(text))
		if err != nil {
			return nil, err
		}
		changes = append(changes, c)
	}
	change.Sort(changes)
	return changes, err
}
