package sourceloader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/compile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// callee is a function in this process: what a text becomes. With odds it is lost or slow.
type callee struct {
	become func(text string) ([]string, error)
	out    bool // it gives texts; else it keeps records
	mu     *sync.Mutex
	rng    *rand.Rand // nil: it is never lost
	lose   int        // of a hundred calls
}

func (c *callee) Call(_ context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	if c.rng != nil {
		c.mu.Lock()
		lost, pause := c.rng.IntN(100) < c.lose, time.Duration(c.rng.IntN(200))*time.Microsecond
		c.mu.Unlock()
		time.Sleep(pause)
		if lost {
			return nil, nil, fault.Lostf("the worker died")
		}
	}
	out, from := &format.Batch{}, []int32(nil)
	var rec format.Record
	for i := range in.Len() {
		in.Record(i, &rec)
		texts, err := c.become(string(rec.Values[0].Bytes))
		if err != nil {
			out.Add(&format.Record{Row: rec.Row, Err: err})
			from = append(from, int32(i))
		}
		for _, text := range texts {
			given := format.Record{Row: rec.Row}
			if c.out {
				given.Values = []format.Value{{Kind: format.String, Bytes: []byte(text)}}
			}
			out.Add(&given)
			from = append(from, int32(i))
		}
	}
	return out, from, nil
}

// ending is a callee that ends calls anywhere.
type ending struct{ *callee }

func (c ending) CallSome(ctx context.Context, in *format.Batch, first int, most int64) (*format.Batch, []int32, int, error) {
	end := in.Len()
	if most > 0 {
		c.mu.Lock()
		end = first + 1 + c.rng.IntN(end-first)
		c.mu.Unlock()
	}
	some := &format.Batch{}
	var rec format.Record
	for i := first; i < end; i++ {
		in.Record(i, &rec)
		some.Add(&rec)
	}
	plain := *c.callee
	if first > 0 {
		plain.rng = nil // else a task of many calls would never end
	}
	out, from, err := plain.Call(ctx, some)
	for i := range from {
		from[i] += int32(first)
	}
	return out, from, end, err
}

// functionsOf opens the tests' functions.
func functionsOf(rng *rand.Rand, lose int) transform.Functions {
	mu := &sync.Mutex{}
	text := []transform.Column{{Name: "text", Kind: format.String}}
	return func(_ uint64, src *jobspec.Source, step int) (*transform.Function, error) {
		name := src.Transforms[step].(*jobspec.Python).Function
		f := &transform.Function{Name: name, Kind: transform.MapFunction, In: text, Out: text}
		c := &callee{mu: mu, rng: rng, lose: lose, out: true}
		switch f.Caller = c; name {
		case "t:upper":
			c.become = func(s string) ([]string, error) {
				if strings.HasSuffix(s, "bad") {
					return nil, fault.Userf("ValueError: %q", s)
				}
				return []string{strings.ToUpper(s)}, nil
			}
		case "t:varies": // an exception with an address
			calls := new(atomic.Int64)
			c.become = func(s string) ([]string, error) {
				if n := calls.Add(1); strings.Contains(s, "bad") {
					return nil, fault.Userf("OSError: %s%d", strings.Repeat("x", int(n)%100), n)
				}
				return []string{s}, nil
			}
		case "t:words":
			f.Kind, c.become = transform.FlatMapFunction, func(s string) ([]string, error) { return strings.Fields(s), nil }
		case "t:long":
			f.Kind, f.Out, c.out = transform.FilterFunction, nil, false
			c.become = func(s string) ([]string, error) { return make([]string, min(len(s)/8, 1)), nil }
		case "t:many":
			f.Kind, c.become = transform.FlatMapFunction, func(s string) ([]string, error) {
				return slices.Repeat([]string{strings.Repeat(s, 5)}, 8), nil
			}
		default:
			return nil, fmt.Errorf("there is no function %s", name)
		}
		if rng != nil {
			f.Caller = ending{c}
		}
		return f, nil
	}
}

// flowJob is a job of one source of random files.
func flowJob(t *testing.T, rng *rand.Rand, files *store.Memory, steps string, broken bool) *jobspec.Job {
	for i := range 1 + rng.IntN(5) {
		var b bytes.Buffer
		for k := range rng.IntN(150) {
			var words []string
			for range rng.IntN(9) {
				words = append(words, []string{"ab", "c", "elephant", "bad", "  "}[rng.IntN(5)])
			}
			switch text := strings.Join(words, " "); rng.IntN(30) {
			case 0:
				b.WriteString("{\n")
			case 1:
				fmt.Fprintf(&b, "{\"txt\":%q,\"k\":\"%d\"}\n", text, k)
			case 2:
				fmt.Fprintf(&b, "{\"text\":%q,\"n\":3}\n", text)
			default:
				fmt.Fprintf(&b, "{\"text\":%q,\"k\":\"%d\",\"n\":%d}\n", text, k, k%7)
			}
		}
		files.Put(fmt.Sprintf("d/%d.jsonl", i), b.Bytes())
	}
	policy := "skip"
	if broken {
		policy = "stop"
	}
	job, findings := jobspec.Parse("j.yaml", fmt.Appendf(nil, `
name: j
sources:
  - name: s
    files: /d/*.jsonl
    transforms: [%s]
    keep: [k]
    long: {rule: %s, max: 10}
    bad_records: %s
    chunk_bytes: %d
batch: {sequence_length: 16, sequences: 1}
`, steps, []string{"split", "drop", "truncate"}[rng.IntN(3)], policy, 300+rng.IntN(5000)), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	return job
}

// TestFlow: a block that was read through the engine, in batches that pass functions at the same time and are
// lost on the way, is the one that is read record by record: samples, counters, bad records, what is absent, sums.
func TestFlow(t *testing.T) {
	steps := []string{
		"{python: {function: 't:upper'}}, {tokenize: bytes}",
		"{filter: n != 3}, {text: '{k?}: {text}'}, {python: {function: 't:upper'}}, {tokenize: bytes}",
		"{python: {function: 't:long'}}, {python: {function: 't:upper'}}, {filter: len(text) != 20}, {tokenize: bytes}",
		"{python: {function: 't:words'}}, {filter: len(text) < 8}, {python: {function: 't:upper'}}, {text: '{text}{n?}'}, {tokenize: bytes}",
		"{python: {function: 't:words'}}, {python: {function: 't:long'}}, {tokenize: bytes}",
		"{text: '{text} {k?}'}, {python: {function: 't:upper'}}, {text: '{text}{n?}'}, {filter: len(text) > 3}, {normalize: nfc}, {python: {function: 't:words'}}, {replace: {pattern: E, with: e}}, {filter: k != '7'}, {text: '{text}{n}'}, {tokenize: bytes}",
		"{text: '{text}{n?}'}, {python: {function: 't:long'}}, {filter: n != 5}, {text: '{n} {text}'}, {tokenize: bytes}",
		"{python: {function: 't:many'}}, {python: {function: 't:words'}}, {tokenize: bytes}",
	}
	paged, spilled := 0, int64(0)
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var files store.Memory
		broken := seed%5 == 4
		job := flowJob(t, rng, &files, steps[rng.IntN(len(steps))], broken)
		plain := &Loader{store: store.NewMetered(&files), shared: transform.NewShared(1, functionsOf(nil, 0))}
		plain.setJob(compile.LoaderJob(job))
		want, err := plain.source(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		life, end := context.WithCancel(t.Context())
		l := &Loader{opts: Options{Log: slog.New(slog.DiscardHandler)}, store: store.NewMetered(&files), shared: transform.NewShared(1, functionsOf(rand.New(rand.NewPCG(seed, 6)), rng.IntN(20)))}
		l.setJob(compile.LoaderJob(job))
		l.cache = newCache(life, []int64{1 << 10, 100 << 10, 16 << 20}[rng.IntN(3)], noDisk, l.load)
		if seed%2 == 0 {
			l.cache.batchDisk = spill.Open(spill.Options{Dir: t.TempDir(), Limit: []int64{8 << 10, 1 << 30}[seed/2%2], Use: batchSpillUse})
		}
		if l.executor, err = newExecutor(life, l.cache, 1+rng.IntN(4)); err != nil {
			t.Fatal(err)
		}
		paged += checkFlow(t, seed, want, plain.store, l)
		if held, _, _ := l.cache.usage(); held < 0 {
			t.Errorf("seed %d: the cache counts %d bytes", seed, held)
		}
		end()
		<-l.executor.over
		u := l.executor.Usage()
		spilled += u.Written
		if u.Spilled != 0 {
			t.Errorf("seed %d: %d bytes are on the disk", seed, u.Spilled)
		}
	}
	if spilled == 0 {
		t.Error("nothing was put on the disk")
	}
	t.Logf("%d bytes were put on the disk", spilled)
	if paged < 3 {
		t.Errorf("%d blocks were read in pages", paged)
	}
}

// checkFlow compares all blocks of an epoch, several of which are read at a time. It says how many neither memory
// nor the disk had room for.
func checkFlow(t *testing.T, seed uint64, want *Source, st store.Store, l *Loader) (inPages int) {
	src, err := l.source(t.Context(), 0)
	if err != nil || src.flow == nil {
		t.Fatalf("seed %d: %v, in the engine: %t", seed, err, src != nil && src.flow != nil)
	}
	blocks := want.Order.Blocks()
	got, errs := make([]content, blocks), make([]error, blocks)
	var wg sync.WaitGroup
	for seq := range blocks {
		wg.Go(func() {
			w := &window{cache: l.cache, id: blockID{0, uint64(seq)}}
			w.begin()
			got[seq], errs[seq] = l.load(l.cache.base, w)
			w.count(0)
		})
	}
	wg.Wait()
	for seq := range blocks {
		b, err := want.Read(t.Context(), st, want.Chain.Worker(), seq, Bans{})
		if err != nil || errs[seq] != nil {
			if err == nil || errs[seq] == nil || unvaried(err.Error()) != unvaried(errs[seq].Error()) || fault.ClassOf(err) != fault.ClassOf(errs[seq]) {
				t.Errorf("seed %d, block %d: %v, want %v", seed, seq, errs[seq], err)
			}
			continue
		}
		if _, ok := got[seq].(*paged); ok {
			inPages++
		}
		sameFlow(t, seed, blockID{0, uint64(seq)}, b, got[seq])
	}
	return inPages
}

// sameFlow compares all that a block says, and all of its samples. How many bytes it takes depends on where it is.
func sameFlow(t *testing.T, seed uint64, id blockID, want *Block, got content) {
	report, _ := want.report(id)
	given, err := got.report(id)
	if err != nil {
		t.Fatal(err)
	}
	report.Bytes, given.Bytes = 0, 0
	for _, s := range slices.Concat(report.Skips, given.Skips) {
		s.Reason = unvaried(s.Reason)
	}
	if !proto.Equal(given, report) {
		t.Errorf("seed %d, block %d: %v, want %v", seed, id.seq, given, report)
	}
	ask := &pb.BlockSamples{}
	for i := range want.Len() {
		ask.Indices = append(ask.Indices, uint32(i))
	}
	var a, b samples.Set
	if err := errors.Join(want.choose(ask, &a), got.choose(ask, &b)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a.Tokens, b.Tokens) || !slices.Equal(a.Offsets, b.Offsets) || !reflect.DeepEqual(a.Kept, b.Kept) {
		t.Errorf("seed %d, block %d: other samples", seed, id.seq)
	}
}

// unvaried is an error's text without what t:varies says.
func unvaried(text string) string {
	text, _, _ = strings.Cut(text, "OSError: ")
	return text
}

// TestReasonsVary: what a function's exceptions say may differ at each call: the block is the same, with the same bad
// records, whatever of it was worked on again.
func TestReasonsVary(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 7))
		var files store.Memory
		job := flowJob(t, rng, &files, "{python: {function: 't:varies'}}, {python: {function: 't:upper'}}, {python: {function: 't:many'}}, {tokenize: bytes}", seed%5 == 4)
		plain := &Loader{store: store.NewMetered(&files), shared: transform.NewShared(1, functionsOf(nil, 0))}
		plain.setJob(compile.LoaderJob(job))
		want, err := plain.source(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		life, end := context.WithCancel(t.Context())
		l := &Loader{opts: Options{Log: slog.New(slog.DiscardHandler)}, store: store.NewMetered(&files), shared: transform.NewShared(1, functionsOf(rand.New(rand.NewPCG(seed, 8)), 15))}
		l.setJob(compile.LoaderJob(job))
		l.cache = newCache(life, []int64{1 << 10, 100 << 10, 16 << 20}[seed%3], noDisk, l.load)
		if l.executor, err = newExecutor(life, l.cache, 1+rng.IntN(4)); err != nil {
			t.Fatal(err)
		}
		checkFlow(t, seed, want, plain.store, l)
		end()
		<-l.executor.over
	}
}

// TestFlowReleased: a block that is released while a function works on it ends at once, and leaves
// nothing behind.
func TestFlowReleased(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var files store.Memory
	files.Put("d/x.jsonl", bytes.Repeat([]byte("{\"text\":\"x\",\"n\":1}\n"), 2000))
	job := flowJob(t, rng, &files, "{python: {function: 't:upper'}}, {tokenize: bytes}", false)
	life, end := context.WithCancel(t.Context())
	begins := make(chan bool, 100)
	var away atomic.Pointer[string]
	open := func(seed uint64, src *jobspec.Source, step int) (*transform.Function, error) {
		f, err := functionsOf(nil, 0)(seed, src, step)
		f.Caller = waiting{begins, &away}
		return f, err
	}
	l := &Loader{store: store.NewMetered(&files), shared: transform.NewShared(1, open), ready: make(chan struct{})}
	close(l.ready)
	l.setJob(compile.LoaderJob(job))
	l.cache = newCache(life, 1<<20, noDisk, l.load)
	var err error
	if l.executor, err = newExecutor(life, l.cache, 2); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := l.cache.get(life, request{id: blockID{}})
		ended <- err
	}()
	<-begins
	l.opts.Environments = func() []Environment { return []Environment{{Name: "p", Workers: 3, LastDeath: "why", Problem: "none"}} }
	stages, workers := l.engineUsage(life)
	if len(stages) != 2 || stages[1].Stage != "python t:upper" || stages[1].Running == 0 || stages[0].HeldBytes == 0 || len(workers) != 1 || workers[0].Workers != 3 || workers[0].LastDeath != "why" || workers[0].Problem != "none" {
		t.Errorf("while a function works: %v, %v", stages, workers)
	}
	what, before := l.waits(&pb.FetchRequest{Blocks: []*pb.BlockSamples{{}}}, 0), l.progress()
	if want := `, where python t:upper has `; !strings.Contains(what, want) || !strings.Contains(what, ".jsonl, for ") { // of any file of the block
		t.Errorf("while a function works, an answer %q, want %q in it", what, want)
	}
	why := "asking http://scorer: refused, for 40 s"
	away.Store(&why)
	for _, what := range []string{l.waits(&pb.FetchRequest{Blocks: []*pb.BlockSamples{{}}}, 0), l.usage(life).Reading} {
		if !strings.Contains(what, ".jsonl, where python t:upper has ") || !strings.HasSuffix(what, " s; "+why) {
			t.Errorf("while a server does not answer: %q, want %q in it", what, why)
		}
	}
	l.executor.calls.mu.Lock()
	for c := range l.executor.calls.open { // ten seconds later
		c.since = c.since.Add(-10 * time.Second)
	}
	l.executor.calls.mu.Unlock()
	if l.progress() < before+10 {
		t.Error("a call of a function is a standstill")
	}
	go l.cache.forget(0) // fetches are not stopped by a release; the loader's end stops them
	end()
	if err := <-ended; !errors.Is(err, context.Canceled) && fault.ClassOf(err) != fault.Lost {
		t.Errorf("the reading ended with %v", err)
	}
	<-l.executor.over
	if u := l.executor.Usage(); u.Tasks != 0 {
		t.Errorf("%+v after the end", u)
	}
}

// waiting is a function that never returns by itself.
type waiting struct {
	begins chan bool
	away   *atomic.Pointer[string] // why, if it waits for a server
}

func (w waiting) Awaits() string {
	if why := w.away.Load(); why != nil {
		return *why
	}
	return ""
}

func (w waiting) Call(ctx context.Context, _ *format.Batch) (*format.Batch, []int32, error) {
	select {
	case w.begins <- true:
	default:
	}
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// TestTakes: a call takes a slot, or what its function needs, and never more than there are.
func TestTakes(t *testing.T) {
	for _, c := range []struct {
		pool transform.Pool
		want schedule.Amount
	}{
		{transform.Pool{Slots: 4}, schedule.Slot},
		{transform.Pool{Slots: 4, Takes: 2}, 2 * schedule.Slot},
		{transform.Pool{Slots: 4, Takes: 0.5}, schedule.Slot / 2},
		{transform.Pool{Slots: 4, Takes: 100}, 4 * schedule.Slot},
		{transform.Pool{Takes: 2}, schedule.Slot},
	} {
		if got := takes(c.pool); got != c.want {
			t.Errorf("%+v takes %d, want %d", c.pool, got, c.want)
		}
	}
}
