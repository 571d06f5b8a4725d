package sourceloader

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// TestGrowing: what functions give is cut while they give it. Records become forty times as large, in all sixteen times
// what the engine may hold, and it never holds more than that.
func TestGrowing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var files store.Memory
	job := flowJob(t, rng, &files, "{python: {function: 't:many'}}, {filter: len(text) > 0}, {python: {function: 't:upper'}}, {tokenize: bytes}", false)
	job.Sources[0].ChunkBytes = 1 << 20
	var b bytes.Buffer
	for range 400 {
		fmt.Fprintf(&b, "{\"text\":%q,\"k\":\"1\",\"n\":1}\n", strings.Repeat("x", 250))
	}
	for i := range 5 {
		files.Put(fmt.Sprintf("d/%d.jsonl", i), nil)
	}
	files.Put("d/0.jsonl", b.Bytes())
	life, end := context.WithCancel(t.Context())
	l := &Loader{store: store.NewMetered(&files), shared: transform.NewShared(1, functionsOf(rng, 0))}
	l.setJob(compile.LoaderJob(job))
	l.cache = newCache(life, 1<<20, noDisk, l.load)
	var err error
	if l.executor, err = newExecutor(life, l.cache, 3); err != nil {
		t.Fatal(err)
	}
	src, err := l.source(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	samples, records := 0, uint64(0)
	for seq := range src.Order.Blocks() {
		w := &window{cache: l.cache, id: blockID{0, uint64(seq)}, paged: true}
		r, err := src.scan(t.Context(), l.store, src.Chain.Worker(), w, func(*Block, int) { samples++ })
		if err != nil {
			t.Fatal(err)
		}
		records += r.block.Records
	}
	if samples < 400*8 || records != 400 {
		t.Errorf("%d samples of %d records", samples, records)
	}
	if u := l.executor.Usage(); u.Peak > l.executor.share {
		t.Errorf("the engine held %d bytes, and may hold %d", u.Peak, l.executor.share)
	}
	end()
	<-l.executor.over
}

// meeting is a function whose calls wait until as many are under way as its pool has slots.
type meeting struct {
	*callee
	slots   int
	mu      *sync.Mutex
	all     chan struct{}
	running *int
	most    *int
}

func (m meeting) Call(ctx context.Context, in *format.Batch) (*format.Batch, []int32, error) {
	m.mu.Lock()
	*m.running++
	if *m.most = max(*m.most, *m.running); *m.running == m.slots && *m.most == m.slots {
		select {
		case <-m.all:
		default:
			close(m.all)
		}
	}
	m.mu.Unlock()
	select {
	case <-m.all:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() {
		m.mu.Lock()
		*m.running--
		m.mu.Unlock()
	}()
	return m.callee.Call(ctx, in)
}

// TestPools: as many calls of a function run at a time as its pool has slots, whatever the loader's workers.
func TestPools(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var files store.Memory
	job := flowJob(t, rng, &files, "{python: {function: 't:upper', batch_bytes: 4096}}, {tokenize: bytes}", false)
	job.Sources[0].ChunkBytes = 1 << 20
	files.Put("d/0.jsonl", bytes.Repeat([]byte("{\"text\":\"x\",\"k\":\"a\",\"n\":1}\n"), 5000))
	m := meeting{slots: 7, mu: &sync.Mutex{}, all: make(chan struct{}), running: new(int), most: new(int)}
	open := func(seed uint64, src *jobspec.Source, step int) (*transform.Function, error) {
		f, err := functionsOf(nil, 0)(seed, src, step)
		m.callee = f.Caller.(*callee)
		f.Caller, f.Pool = m, transform.Pool{Name: "seven", Slots: m.slots}
		return f, err
	}
	life, end := context.WithCancel(t.Context())
	l := &Loader{store: store.NewMetered(&files), shared: transform.NewShared(1, open)}
	l.setJob(compile.LoaderJob(job))
	l.cache = newCache(life, 16<<20, noDisk, l.load)
	var err error
	if l.executor, err = newExecutor(life, l.cache, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := l.cache.get(life, request{id: blockID{}}); err != nil {
		t.Error(err)
	}
	if *m.most != m.slots {
		t.Errorf("%d calls at a time", *m.most)
	}
	end()
	<-l.executor.over
}
