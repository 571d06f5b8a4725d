package sourceloader

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
)

// noDisk keeps nothing.
var noDisk = spill.Open(spill.Options{})

// blockOf makes a block of about n bytes.
func blockOf(n int) *Block { return &Block{Order: make([]int32, n/8)} }

// TestCacheBudget: what is held stays within the budget, wherever the job is and
// wherever it goes back to, and what is needed next is kept.
func TestCacheBudget(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	c := newCache(t.Context(), 1000, noDisk, func(context.Context, *window) (content, error) { return blockOf(80 + rng.IntN(300)), nil })
	for range 3000 {
		id := blockID{uint32(rng.IntN(3)), uint64(rng.IntN(40))}
		if rng.IntN(20) == 0 {
			c.release(map[uint32]uint64{id.source: id.seq}) // forwards or, after a resume, backwards
		}
		if _, err := c.get(t.Context(), request{id: id}); err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, e := range c.entries {
			sum += e.content.Bytes()
		}
		if held, _, _ := c.usage(); held != sum || held > 1000 {
			t.Fatalf("%d bytes are held and %d counted, 1000 are allowed", sum, held)
		}
	}
	for id := range c.entries {
		c.release(map[uint32]uint64{id.source: 0})
	}
	for seq := range uint64(20) { // in order: the first stay, the last go
		if _, err := c.get(t.Context(), request{id: blockID{0, seq}}); err != nil {
			t.Fatal(err)
		}
	}
	if c.entries[blockID{0, 0}] == nil || c.entries[blockID{0, 19}] != nil {
		t.Error("the block that is needed first was let go of before the one that is needed last")
	}
}

// TestCacheKeepsWhatIsNeeded: how far ahead a block is counts from where its
// source is, not from its start.
func TestCacheKeepsWhatIsNeeded(t *testing.T) {
	c := newCache(t.Context(), 250, noDisk, func(context.Context, *window) (content, error) { return blockOf(80), nil })
	c.release(map[uint32]uint64{1: 1000})
	for _, id := range []blockID{{1, 1000}, {0, 2}, {0, 3}, {1, 1001}} {
		if _, err := c.get(t.Context(), request{id: id}); err != nil {
			t.Fatal(err)
		}
	}
	if c.entries[blockID{1, 1000}] == nil || c.entries[blockID{1, 1001}] == nil || c.entries[blockID{0, 3}] != nil {
		t.Error("a block was let go of that is needed before block 3 of source 0")
	}
}

// TestCacheJoins: who asks for a block that is being read waits for that read;
// a read that failed is tried again by the next.
func TestCacheJoins(t *testing.T) {
	var reads atomic.Int32
	gate := make(chan struct{})
	broken := errors.New("broken")
	c := newCache(t.Context(), 1<<20, noDisk, func(context.Context, *window) (content, error) {
		<-gate
		if reads.Add(1) == 1 {
			return nil, broken
		}
		return blockOf(80), nil
	})
	var all sync.WaitGroup
	var failed atomic.Int32
	for range 10 {
		all.Go(func() {
			if _, err := c.get(t.Context(), request{id: blockID{}}); err == broken {
				failed.Add(1)
			}
		})
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	close(gate)
	all.Wait()
	if failed.Load() < 1 {
		t.Error("nobody heard of the failed read")
	}
	if _, err := c.get(t.Context(), request{id: blockID{}}); err != nil {
		t.Errorf("after a failed read: %v", err)
	}
	if n := reads.Load(); n < 2 || n > 11 {
		t.Errorf("%d reads", n)
	}
	if b, err := c.get(gone, request{id: blockID{}}); err != nil && !errors.Is(err, context.Canceled) || err == nil && b == nil {
		t.Errorf("a caller that is gone: %v", err)
	}
}

// TestCacheAbandons: a constructor that asks for a block whose reading is abandoned, and has not ended yet, gets it from
// a reading of its own.
func TestCacheAbandons(t *testing.T) {
	began, ends := make(chan struct{}), make(chan struct{})
	var reads atomic.Int32
	c := newCache(t.Context(), 1<<20, noDisk, func(ctx context.Context, _ *window) (content, error) {
		if reads.Add(1) > 1 {
			return blockOf(80), nil
		}
		close(began)
		<-ctx.Done()
		<-ends // a request to the store that is under way
		return nil, context.Cause(ctx)
	})
	asked, released := make(chan error), new(atomic.Bool)
	go func() {
		_, err := c.get(t.Context(), request{blockID{}, released})
		asked <- err
	}()
	<-began
	c.abandon()
	fetched := make(chan error)
	go func() {
		_, err := c.get(t.Context(), request{id: blockID{}})
		fetched <- err
	}()
	var err error
	select {
	case err = <-fetched:
		close(ends)
	case <-time.After(200 * time.Millisecond): // it joined the reading that ends
		close(ends)
		err = <-fetched
	}
	if planner := <-asked; err != nil || reads.Load() != 2 || !errors.Is(planner, errReleased) {
		t.Errorf("after %d readings a constructor hears %v, the planner %v", reads.Load(), err, planner)
	}
	if held, _, _ := c.usage(); held != blockOf(80).Bytes() {
		t.Errorf("%d bytes are held", held)
	}
}

// TestCacheEnds: a reading that its loader's end cuts short fails as that, whatever it fails with, so that another loader is
// asked: here the disk takes no more of a block, and nothing reads on in another way.
func TestCacheEnds(t *testing.T) {
	base, end := context.WithCancel(t.Context())
	c := newCache(base, 1<<20, noDisk, func(context.Context, *window) (content, error) {
		end()
		return nil, errNotTaken
	})
	if _, err := c.get(t.Context(), request{id: blockID{}}); !errors.Is(err, context.Canceled) || fault.ClassOf(err) != fault.Lost {
		t.Errorf("a reading that is cut short: %v, of class %v", err, fault.ClassOf(err))
	}
}

// TestCacheCountsRereads: what was let go of for want of room counts when it is
// read again; what was released does not.
func TestCacheCountsRereads(t *testing.T) {
	c := newCache(t.Context(), 0, noDisk, func(context.Context, *window) (content, error) { return blockOf(80), nil })
	for range 3 {
		c.get(t.Context(), request{id: blockID{0, 7}})
	}
	c.release(map[uint32]uint64{0: 8})
	c.get(t.Context(), request{id: blockID{0, 7}})
	if held, blocks, rereads := c.usage(); held != 0 || blocks != 4 || rereads != 2 {
		t.Errorf("%d held, %d read, %d of them again; want 0, 4, 2", held, blocks, rereads)
	}
}

// TestCacheReleases: what is released is let go of, and nothing of another source:
// one that went back to an earlier position has blocks before those it released.
func TestCacheReleases(t *testing.T) {
	c := newCache(t.Context(), 1<<20, noDisk, func(context.Context, *window) (content, error) { return blockOf(80), nil })
	c.release(map[uint32]uint64{1: 50})
	all := []blockID{{0, 3}, {0, 4}, {1, 7}, {2, 3}, {2, 9}}
	for _, id := range all {
		if _, err := c.get(t.Context(), request{id: id}); err != nil {
			t.Fatal(err)
		}
	}
	c.release(map[uint32]uint64{0: 4, 2: 9})
	for i, kept := range []bool{false, true, true, false, true} {
		if held := c.entries[all[i]] != nil; held != kept || c.seen[all[i]] != kept {
			t.Errorf("block %v: held is %v, seen %v, want %v", all[i], held, c.seen[all[i]], kept)
		}
	}
}
