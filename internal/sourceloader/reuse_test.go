package sourceloader

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// loaderOf is a loader with a job of one source: files of the given numbers of
// records, some of which are filtered out, empty, cut in pieces and damaged.
func loaderOf(t *testing.T, fields string, records ...int) *Loader {
	var files store.Memory
	for i, n := range records {
		var text strings.Builder
		for k := range n {
			fmt.Fprintf(&text, "{\"text\":%q,\"k\":\"%d\"}\n", strings.Repeat("x", k%23), k)
			if k%9 == 8 {
				text.WriteString("{\n")
			}
		}
		files.Put(fmt.Sprintf("d/%d.jsonl", i), []byte(text.String()))
	}
	job, findings := jobspec.Parse("j.yaml", []byte(`
name: j
sources:
  - name: s
    files: /d/*.jsonl
    transforms: [{filter: len(text) != 3}, {tokenize: bytes}]
    keep: [k]
    long: {rule: split, max: 10}
    bad_records: skip
`+fields+`
batch: {sequence_length: 16, sequences: 1}
`), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	l := &Loader{store: store.NewMetered(&files), shared: transform.NewShared(0, nil)}
	l.setJob(compile.LoaderJob(job))
	return l
}

// TestReuse: a block that is made of another one is what reading gives, whatever the
// epochs and the bans of both.
func TestReuse(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name, fields string
		records      []int
		reused       bool
	}{
		{"one file", "", []int{60}, true},
		{"small files, which are one chunk", "", []int{20, 1, 30}, true},
		{"without a shuffle", "    shuffle: false", []int{60}, true},
		{"no sample", "", []int{1}, false},
		{"several chunks", "    chunk_bytes: 200", []int{60}, false},
		{"many samples", "", []int{3500}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := loaderOf(t, c.fields, c.records...)
			src, err := l.source(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			last, places, err := src.ReadPlaced(t.Context(), l.store, src.Chain.Worker(), 0, Bans{})
			if err != nil {
				t.Fatal(err)
			}
			bans := func() (b Bans) {
				for id := range rng.IntN(min(len(places)+1, 4)) {
					x := places[rng.IntN(len(places))]
					b.Add(int(x.File), x.Row, uint32(id))
					b.known = uint32(id + 1)
				}
				return b
			}
			for range 6 {
				seq, banned := rng.Int64N(5), bans()
				want, err := src.Read(t.Context(), l.store, src.Chain.Worker(), seq, banned)
				if err != nil {
					t.Fatal(err)
				}
				got := src.reuse(last, seq, banned)
				if (got != nil) != c.reused {
					t.Fatalf("a block was made: %v, want %v", got != nil, c.reused)
				}
				if got != nil {
					if got.known != banned.known {
						t.Errorf("it knows of %d bans, want %d", got.known, banned.known)
					}
					same(t, rng, blockID{0, uint64(seq)}, want, got)
					last = got
				}
			}
		})
	}
}

// TestReuseWhileHeld: files are read once as long as anyone has a block, and no block
// stays for it.
func TestReuseWhileHeld(t *testing.T) {
	l := loaderOf(t, "", 60)
	l.cache = newCache(t.Context(), 1<<20, noDisk, l.load)
	read := func(seq uint64) (*Block, int64) {
		before := l.store.Meter().Bytes
		b, err := l.load(t.Context(), &window{cache: l.cache, id: blockID{0, seq}})
		if err != nil {
			t.Fatal(err)
		}
		return b.(*Block), l.store.Meter().Bytes - before
	}
	first, bytes := read(0)
	if bytes == 0 {
		t.Fatal("the first block was not read")
	}
	held := []*Block{first}
	for seq := range uint64(5) {
		b, bytes := read(seq)
		if held = append(held, b); bytes != 0 {
			t.Errorf("block %d: %d bytes were read, though the one before is held", seq, bytes)
		}
	}
	runtime.KeepAlive(held)
	runtime.GC()
	if _, bytes := read(5); bytes == 0 {
		t.Error("a block stayed in memory that nobody had")
	}
}
