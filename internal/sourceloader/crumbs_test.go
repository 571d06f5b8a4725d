package sourceloader

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// noted is a function that notes the bytes of each of its calls. The first calls are lost, every second one.
type noted struct {
	transform.Caller
	mu    sync.Mutex
	calls []int64
	lose  int // calls that are yet to be lost
}

func (n *noted) Call(ctx context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	n.mu.Lock()
	n.calls = append(n.calls, in.Bytes())
	lost := n.lose > 0 && len(n.calls)%2 == 0
	if lost {
		n.lose--
	}
	n.mu.Unlock()
	if lost {
		return nil, nil, fault.Lostf("the worker died")
	}
	return n.Caller.Call(ctx, in)
}

// TestCrumbs: what is left behind a function that leaves out 99 of 100 records goes through the next one in few
// calls, which are the same whatever the memory, the slots and the losses.
func TestCrumbs(t *testing.T) {
	const target = 16 << 10
	var files store.Memory
	for _, file := range []string{"a", "b"} {
		var b bytes.Buffer
		for i := range 8000 {
			kind := "common"
			if i%100 == 50 {
				kind = "rare"
			}
			fmt.Fprintf(&b, "{\"text\":\"%s %s%d\"}\n", kind, strings.Repeat("x", 80), i)
		}
		files.Put("d/"+file+".jsonl", b.Bytes())
	}
	job, findings := jobspec.Parse("j.yaml", fmt.Appendf(nil, `
name: j
sources:
  - name: s
    files: /d/*.jsonl
    transforms: [{python: {function: 't:rare', batch_bytes: %d}}, {python: {function: 't:second'}}, {tokenize: bytes}]
    chunk_bytes: 4000000
batch: {sequence_length: 256, sequences: 1}
`, target), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	var first []int64
	for i, s := range []struct {
		budget  int64
		workers int
		lose    int
	}{{64 << 20, 4, 0}, {2 << 20, 1, 0}, {2 << 20, 3, 3}} {
		second := &noted{lose: s.lose}
		crumbs := runCrumbs(t, job, &files, s.budget, s.workers, second)
		if second.lose > 0 {
			t.Errorf("setting %d: %d calls too few were lost", i, second.lose)
		}
		slices.Sort(second.calls)
		if s.lose > 0 { // those are in the list twice, and others of their tasks too
			first, second.calls = slices.Compact(first), slices.Compact(second.calls)
		}
		if first == nil {
			first = second.calls
		}
		if !slices.Equal(first, second.calls) {
			t.Errorf("setting %d: calls of %d bytes, and %d under the first setting", i, second.calls, first)
		}
		if calls := len(second.calls); 5*calls > crumbs {
			t.Errorf("setting %d: %d calls for what %d calls gave", i, calls, crumbs)
		}
		if most := slices.Max(second.calls); most > target {
			t.Errorf("setting %d: a call of %d bytes, the target is %d", i, most, target)
		}
	}
	t.Logf("calls of %d bytes", first)
}

// runCrumbs reads the first block, and says how often the function before the second was called.
func runCrumbs(t *testing.T, job *jobspec.Job, files *store.Memory, budget int64, workers int, second *noted) (crumbs int) {
	rare := &noted{Caller: &callee{become: func(s string) ([]string, error) {
		if strings.HasPrefix(s, "rare") {
			return []string{s}, nil
		}
		return nil, nil
	}}}
	second.Caller = &callee{become: func(s string) ([]string, error) { return []string{s}, nil }, out: true}
	text := []transform.Column{{Name: "text", Kind: format.String}}
	open := func(_ uint64, src *jobspec.Source, step int) (*transform.Function, error) {
		if src.Transforms[step].(*jobspec.Python).Function == "t:rare" {
			return &transform.Function{Name: "t:rare", Kind: transform.FilterFunction, In: text, Caller: rare}, nil
		}
		return &transform.Function{Name: "t:second", Kind: transform.MapFunction, In: text, Out: text, Caller: second}, nil
	}
	life, end := context.WithCancel(t.Context())
	defer end()
	l := &Loader{store: store.NewMetered(files), shared: transform.NewShared(1, open)}
	l.setJob(compile.LoaderJob(job))
	l.cache = newCache(life, budget, noDisk, l.load)
	var err error
	if l.executor, err = newExecutor(life, l.cache, workers); err != nil {
		t.Fatal(err)
	}
	src, err := l.source(life, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := src.Read(life, l.store, src.Chain.Worker(), 0, Bans{})
	if err != nil {
		t.Fatal(err)
	}
	if b.Len() != 160 || b.Filtered != 15840 {
		t.Errorf("%d samples, %d left out", b.Len(), b.Filtered)
	}
	end()
	<-l.executor.over
	return len(rare.calls)
}
