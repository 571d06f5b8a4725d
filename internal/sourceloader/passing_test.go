package sourceloader

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
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
