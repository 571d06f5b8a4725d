package sourceloader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
)

// diskOf opens a disk in a folder of its own.
func diskOf(t *testing.T, limit int64) *spill.Disk {
	return spill.Open(spill.Options{Dir: t.TempDir(), Limit: limit})
}

// randomBlock has up to n samples, of one token to a few thousand, with kept values
// that are nothing, empty and long, and images.
func randomBlock(rng *rand.Rand, n int) *Block {
	b := &Block{kept: make([][][]byte, rng.IntN(3)), hasImages: rng.IntN(2) == 0, Filtered: rng.Uint64N(9), Dropped: rng.Uint64N(9), Empty: rng.Uint64N(9), known: rng.Uint32N(9)}
	b.hasMasks = b.Filtered%2 == 0
	for i := range rng.IntN(n + 1) {
		tokens := make([]int32, 1+rng.IntN(20))
		if rng.IntN(20) == 0 {
			tokens = make([]int32, 1+rng.IntN(5000))
		}
		for k := range tokens {
			tokens[k] = rng.Int32()
		}
		b.spans = append(b.spans, b.tokens.add(tokens))
		b.Order = append(b.Order, int32(i))
		for c := range b.kept {
			b.kept[c] = append(b.kept[c], [][]byte{nil, {}, make([]byte, rng.IntN(100)), make([]byte, rng.IntN(40000))}[rng.IntN(4)])
		}
		if b.hasMasks {
			b.masked = append(b.masked, [][]int32{nil, {1, 2}, {3, 7000, 7002, 90000}}[i%3])
		}
		if b.hasImages {
			var list []samples.Image
			for k := range rng.IntN(3) {
				list = append(list, samples.Image{
					At: int32(k), H: rng.Int32N(99), W: rng.Int32N(99), SHA: [32]byte{byte(i), byte(k)}, Origin: fmt.Sprintf("a.tar: row %d", i), Data: make([]byte, 1+rng.IntN(30000)),
				})
			}
			b.images = append(b.images, list)
		}
		if rng.IntN(10) == 0 {
			b.Banned = append(b.Banned, BannedSample{int32(i), rng.Uint32N(9)})
		}
	}
	b.tokens.trim()
	rng.Shuffle(len(b.Order), func(i, j int) { b.Order[i], b.Order[j] = b.Order[j], b.Order[i] })
	for _, at := range b.Order {
		b.Lengths = append(b.Lengths, uint32(b.spans[at].length))
	}
	return b
}

// askOf is a question that block b has an answer to.
func askOf(rng *rand.Rand, b *Block) *pb.BlockSamples {
	want := &pb.BlockSamples{}
	for i, at := range b.Order {
		if rng.IntN(3) > 0 {
			continue
		}
		want.Indices = append(want.Indices, uint32(i))
		for k := 0; b.hasImages && k < len(b.images[at]); k++ {
			if rng.IntN(2) == 0 {
				want.ImageSample, want.ImageNumber = append(want.ImageSample, uint32(i)), append(want.ImageNumber, uint32(k))
			}
		}
	}
	return want
}

// same asks a block in memory and another content the same things.
func same(t *testing.T, rng *rand.Rand, id blockID, b *Block, other content) {
	t.Helper()
	want, _ := b.report(id)
	if got, err := other.report(id); err != nil || !proto.Equal(got, want) {
		t.Fatalf("report: %v, %v, want %v", got, err, want)
	}
	var set samples.Set // used again
	for range 5 {
		ask := askOf(rng, b)
		var want samples.Set
		if err := b.choose(ask, &want); err != nil {
			t.Fatal(err)
		}
		if err := other.choose(ask, &set); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(set.Tokens, want.Tokens) || !slices.Equal(set.Offsets, want.Offsets) || !reflect.DeepEqual(set.Kept, want.Kept) || !reflect.DeepEqual(set.Masked, want.Masked) || !reflect.DeepEqual(set.Images, want.Images) {
			t.Fatal("a block gives other samples from the disk than from memory")
		}
	}
}

// TestSpilled: a block says the same from the disk as from memory, takes no more
// there than its memory says, and next to no memory.
func TestSpilled(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	disk := diskOf(t, 1<<30)
	for n := range 40 {
		b, id := randomBlock(rng, 4*n), blockID{uint32(n), rng.Uint64()}
		s, err := b.spillTo(disk, id, 0) // it takes what it needs
		if err != nil {
			t.Fatal(err)
		}
		if used, _, _ := disk.Usage(); used > b.Bytes()+100 {
			t.Errorf("%d bytes on the disk for %d in memory", used, b.Bytes())
		}
		if s.Bytes() > 32+b.Bytes()/100 {
			t.Errorf("%d bytes of memory for a block of %d", s.Bytes(), b.Bytes())
		}
		same(t, rng, id, b, s)
		s.file.Close()
	}
}

// TestSpilledRefuses: what a block in memory refuses, one on the disk does.
func TestSpilledRefuses(t *testing.T) {
	b := imageBlock()
	for range 3 {
		b.spans = append(b.spans, b.tokens.add([]int32{1, 2, 3, 4}))
	}
	s, err := b.spillTo(diskOf(t, 1<<20), blockID{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.file.Close()
	for _, want := range []*pb.BlockSamples{
		{Indices: []uint32{3}},
		{Indices: []uint32{0}, ImageSample: []uint32{0}, ImageNumber: []uint32{2}},
		{Indices: []uint32{0}, ImageSample: []uint32{2}, ImageNumber: []uint32{0}},
		{Indices: []uint32{0}, ImageSample: []uint32{0}},
	} {
		var set samples.Set
		inMemory, onDisk := b.choose(want, &set), s.choose(want, &set)
		if inMemory == nil || onDisk == nil || inMemory.Error() != onDisk.Error() || errors.Is(onDisk, spill.ErrUnreadable) {
			t.Errorf("%v: from memory %v, from the disk %v", want, inMemory, onDisk)
		}
	}
}

// blocksOf makes a cache whose blocks are random and always the same, and counts
// what is read.
func blocksOf(t *testing.T, budget int64, disk *spill.Disk) (c *cache, blockOf func(blockID) *Block) {
	blockOf = func(id blockID) *Block {
		return randomBlock(rand.New(rand.NewPCG(uint64(id.source), id.seq)), 20)
	}
	c = newCache(t.Context(), budget, disk, func(_ context.Context, w *window) (content, error) { return blockOf(w.id), nil })
	t.Cleanup(func() {
		c.close()
		if used, _, problem := disk.Usage(); used != 0 || c.held != 0 || c.leaving != 0 || problem != "" {
			t.Errorf("in the end %d bytes are on the disk, %d in memory, %d leave; problem %q", used, c.held, c.leaving, problem)
		}
	})
	return c, blockOf
}

// TestCacheWithDisk: whatever is asked for, released and forgotten, with any room on
// the disk, blocks are what they are, and memory and disk are within their limits.
func TestCacheWithDisk(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for _, limit := range []int64{1, 250e3, 2e6, 1 << 30} {
		disk := diskOf(t, limit)
		const budget = 200e3
		c, blockOf := blocksOf(t, budget, disk)
		for range 200 {
			id := blockID{uint32(rng.IntN(4)), uint64(rng.IntN(12))}
			switch rng.IntN(20) {
			case 0:
				c.release(map[uint32]uint64{id.source: id.seq})
			case 1:
				if limit < 1<<30 {
					c.forget(id.source) // what was forgotten is read again
				}
			}
			if err := c.use(t.Context(), request{id: id}, func(b content) error { same(t, rng, id, blockOf(id), b); return nil }); err != nil {
				t.Fatal(err)
			}
			memory, onDisk := int64(0), int64(0)
			for _, e := range c.entries {
				memory += e.content.Bytes()
				if s, ok := e.content.(*spilled); ok {
					onDisk += s.file.Size()
				}
			}
			if used, _, _ := disk.Usage(); c.held != memory || memory > budget || used != onDisk || used > limit {
				t.Fatalf("%d bytes of memory, %d counted, %d allowed; %d bytes of files, %d counted, %d allowed", memory, c.held, int(budget), onDisk, used, limit)
			}
		}
		_, _, rereads := c.usage()
		t.Logf("disk of %d: %d blocks read, %d of them again", limit, c.blocks, rereads)
		if (rereads > 0) != (limit < 1<<30) {
			t.Errorf("a disk of %d bytes, and %d blocks were read again", limit, rereads)
		}
	}
}

// TestCacheWithDiskConcurrently is the same from many sides, for the race detector.
func TestCacheWithDiskConcurrently(t *testing.T) {
	c, blockOf := blocksOf(t, 100e3, diskOf(t, 1e6))
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(6, uint64(g)))
			for range 60 {
				id := blockID{uint32(rng.IntN(3)), uint64(rng.IntN(8))}
				switch rng.IntN(20) {
				case 0:
					c.release(map[uint32]uint64{id.source: id.seq})
				case 1:
					c.forget(id.source)
				}
				if err := c.use(t.Context(), request{id: id}, func(b content) error {
					var got, want samples.Set
					ask := askOf(rng, blockOf(id))
					if err := b.choose(ask, &got); err != nil {
						return err
					}
					if err := blockOf(id).choose(ask, &want); err != nil || !slices.Equal(got.Tokens, want.Tokens) || !reflect.DeepEqual(got.Images, want.Images) {
						t.Errorf("block %v gave other samples: %v", id, err)
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// TestCacheNeedsNoDisk: blocks that fit are not written.
func TestCacheNeedsNoDisk(t *testing.T) {
	disk := spill.Open(spill.Options{Dir: filepath.Join(t.TempDir(), "missing"), Limit: 1 << 30})
	c, _ := blocksOf(t, 1<<30, disk)
	for seq := range uint64(20) {
		if _, err := c.get(t.Context(), request{id: blockID{0, seq}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCacheDiskFails: a disk that cannot be written to costs reading again.
func TestCacheDiskFails(t *testing.T) {
	disk := spill.Open(spill.Options{Dir: filepath.Join(t.TempDir(), "missing"), Limit: 1 << 30})
	c := newCache(t.Context(), 100, disk, func(context.Context, *window) (content, error) { return blockOf(80), nil })
	for range 2 {
		for seq := range uint64(3) {
			if _, err := c.get(t.Context(), request{id: blockID{0, seq}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, _, rereads := c.usage(); rereads != 2 || c.held > 100 {
		t.Errorf("%d blocks were read again, want 2; %d bytes are held", rereads, c.held)
	}
	if used, _, problem := disk.Usage(); used != 0 || problem == "" {
		t.Errorf("%d bytes on the disk, problem %q", used, problem)
	}
}

// TestCacheReadsAgainWhatIsLost: a block whose file is gone comes from its source.
func TestCacheReadsAgainWhatIsLost(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	c, blockOf := blocksOf(t, 1, diskOf(t, 1<<30))
	id := blockID{3, 4}
	for range 2 {
		if err := c.use(t.Context(), request{id: id}, func(b content) error { same(t, rng, id, blockOf(id), b); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	lost := false
	if err := c.use(t.Context(), request{id: id}, func(b content) error {
		if _, ok := b.(*spilled); ok {
			lost = true
			return fmt.Errorf("reading: %w", spill.ErrUnreadable)
		}
		return nil
	}); err != nil || !lost {
		t.Errorf("was on the disk: %v; %v", lost, err)
	}
	if _, blocks, rereads := c.usage(); blocks != 2 || rereads != 1 {
		t.Errorf("%d blocks read, %d of them again", blocks, rereads)
	}
}

// TestWhichBlocksGoToTheDisk: the largest go; with a full disk those that are needed
// last are let go of, and nothing is written in place of what is needed as soon.
func TestWhichBlocksGoToTheDisk(t *testing.T) {
	sized := func(n int) *Block { // of about n bytes
		b := &Block{}
		b.spans = append(b.spans, b.tokens.add(make([]int32, n/4)))
		b.Order, b.Lengths = []int32{0}, []uint32{uint32(n / 4)}
		return b
	}
	sizes := map[blockID]int{{0, 0}: 8000, {1, 0}: 50e3, {2, 0}: 8000, {0, 1}: 50e3, {3, 0}: 50e3, {4, 0}: 50e3}
	c := newCache(t.Context(), 70e3, diskOf(t, 60e3), func(_ context.Context, w *window) (content, error) { return sized(sizes[w.id]), nil })
	defer c.close()
	where := func(id blockID) string {
		switch e := c.entries[id]; {
		case e == nil:
			return "nowhere"
		case e.onDisk():
			return "on the disk"
		}
		return "in memory"
	}
	for _, step := range []struct {
		get  blockID
		want map[blockID]string
	}{
		{blockID{0, 0}, map[blockID]string{{0, 0}: "in memory"}},
		{blockID{1, 0}, map[blockID]string{{1, 0}: "in memory"}},
		{blockID{2, 0}, map[blockID]string{{1, 0}: "in memory"}},
		// of two as large the one that is needed later goes
		{blockID{0, 1}, map[blockID]string{{0, 0}: "in memory", {1, 0}: "in memory", {2, 0}: "in memory", {0, 1}: "on the disk"}},
		// it makes room for one that is needed sooner
		{blockID{3, 0}, map[blockID]string{{0, 1}: "nowhere", {1, 0}: "on the disk", {3, 0}: "in memory"}},
		// and that one for none that is needed as soon: the memory changes hands
		{blockID{4, 0}, map[blockID]string{{1, 0}: "on the disk", {3, 0}: "nowhere", {4, 0}: "in memory", {0, 0}: "in memory", {2, 0}: "in memory"}},
	} {
		if _, err := c.get(t.Context(), request{id: step.get}); err != nil {
			t.Fatal(err)
		}
		for id, want := range step.want {
			if got := where(id); got != want {
				t.Errorf("after block %v was read, block %v is %s, want %s", step.get, id, got, want)
			}
		}
	}
}
