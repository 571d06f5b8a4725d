package sourceloader

import (
	"context"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

// lent borrows samples of a block, which it reads if it is not held.
func lent(t *testing.T, c *cache, id blockID, want *pb.BlockSamples) (set samples.Set, ok bool) {
	t.Helper()
	held, err := c.get(t.Context(), request{id: id})
	l := &loan{}
	if err == nil {
		err = c.give(held, want, &set, l)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.endWith(l)
	return set, set.Lent != nil
}

// TestLent: samples that are lent are those that are copied, and cannot be sent to another process.
func TestLent(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 7))
	c := newCache(t.Context(), 1<<30, noDisk, func(context.Context, *window) (content, error) { return randomBlock(rng, 40).sealed(), nil })
	seen := 0
	for seq := range uint64(100) {
		held, err := c.get(t.Context(), request{id: blockID{0, seq}})
		if err != nil {
			t.Fatal(err)
		}
		b, want := held.(*Block), &pb.BlockSamples{}
		for i := range b.Len() {
			if rng.IntN(3) > 0 {
				want.Indices = append(want.Indices, uint32(i))
			}
		}
		got, ok := lent(t, c, blockID{0, seq}, want)
		if !ok {
			continue // kept values are most of it
		}
		seen++
		var copied samples.Set
		if err := b.choose(want, &copied); err != nil {
			t.Fatal(err)
		}
		if got.Len() != copied.Len() || !reflect.DeepEqual([][][][]byte{got.Kept}, [][][][]byte{copied.Kept}) || !reflect.DeepEqual(got.Masked, copied.Masked) || !reflect.DeepEqual(got.Images, copied.Images) {
			t.Fatalf("block %d: %d samples, copied %d", seq, got.Len(), copied.Len())
		}
		for i := range got.Len() {
			if !reflect.DeepEqual(got.Sample(i), copied.Sample(i)) {
				t.Fatalf("block %d: sample %d is another", seq, i)
			}
		}
		if got.Len() > 0 {
			if _, err := samples.Encode([]samples.Set{got}); err == nil {
				t.Fatal("tokens in a loader's memory were encoded as if there were none")
			}
		}
		want.Indices = append(want.Indices, uint32(b.Len()))
		if err := c.give(b, want, &got, &loan{}); err == nil {
			t.Fatal("a sample was lent that is not there")
		}
	}
	if seen < 20 {
		t.Errorf("%d of 100 blocks were lent", seen)
	}
}

// TestLentStay: blocks that are lent stay in memory, and are a part of the budget at most; when nobody keeps what was
// lent, they may leave.
func TestLentStay(t *testing.T) {
	const tokens = 1000
	c := newCache(t.Context(), 40*4*tokens, diskOf(t, 1<<20), func(context.Context, *window) (content, error) {
		b := &Block{Order: []int32{0}, Lengths: []uint32{tokens}}
		b.spans = append(b.spans, b.tokens.add(make([]int32, tokens)))
		return b.sealed(), nil
	})
	all, far := &pb.BlockSamples{Indices: []uint32{0}}, uint64(1000) // what is far ahead leaves first
	sets := map[uint64]samples.Set{}
	for seq := far; seq < far+30; seq++ {
		if set, ok := lent(t, c, blockID{0, seq}, all); ok {
			sets[seq] = set
		}
	}
	if again, ok := lent(t, c, blockID{0, far}, all); !ok || &again.Lent[0][0] != &sets[far].Lent[0][0] {
		t.Error("a block that is lent is not lent again")
	}
	if n := len(sets); n < 5 || n > 10 {
		t.Errorf("%d blocks of 30 are lent, of a budget for 40, a quarter of which may be", n)
	}
	crowd := func(source uint32) (inMemory int) {
		for seq := range uint64(100) {
			if _, err := c.get(t.Context(), request{id: blockID{source, seq}}); err != nil {
				t.Fatal(err)
			}
		}
		if held, _, _ := c.usage(); held > c.budget {
			t.Errorf("%d bytes are held, %d are allowed", held, c.budget)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for seq := range sets {
			if e := c.entries[blockID{0, seq}]; e != nil && e.inMemory() {
				inMemory++
			}
		}
		return inMemory
	}
	if n := crowd(1); n != len(sets) {
		t.Errorf("of %d blocks that are lent %d are in memory", len(sets), n)
	}
	for seq := range sets {
		sets[seq] = samples.Set{}
	}
	for end := time.Now().Add(time.Minute); c.lent.Load() != 0; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(end) {
			t.Fatalf("%d bytes are lent to nobody", c.lent.Load())
		}
	}
	if n := crowd(2); n != 0 {
		t.Errorf("%d blocks stay that were lent once", n)
	}
}
