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

	"github.com/millrace-data/millrace/internal/imaging"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/spill"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// sourceOf is a source of one file, with kept columns and maybe images.
func sourceOf(rng *rand.Rand) *Source {
	files := []order.File{{Chunks: 1}}
	files[0].URI = "a.jsonl"
	spec := &jobspec.Source{Name: "s", Keep: slices.Repeat([]string{"k"}, rng.IntN(3))}
	if rng.IntN(2) == 0 {
		spec.Transforms = []jobspec.Transform{&jobspec.Image{}}
	}
	return &Source{
		Source: &order.Source{Manifest: order.Manifest{Files: files}, Order: order.Order{Source: "s", Shuffle: rng.IntN(4) > 0, Block: 1, Layout: order.NewLayout(files, 1)}},
		Spec:   spec,
	}
}

// samplesOf are up to n samples of a source, of any sizes, some of them pieces of a record.
func samplesOf(rng *rand.Rand, src *Source, n int) (all []*transform.Sample) {
	for i := range rng.IntN(n + 1) {
		s := &transform.Sample{Row: int64(i / 2), Piece: int32(i % 2), Tokens: make([]int32, 1+rng.IntN(20))}
		if rng.IntN(20) == 0 {
			s.Tokens = make([]int32, 1+rng.IntN(5000))
		}
		for k := range s.Tokens {
			s.Tokens[k] = rng.Int32()
		}
		for range src.Spec.Keep {
			s.Extras = append(s.Extras, [][]byte{nil, {}, make([]byte, rng.IntN(100)), make([]byte, rng.IntN(40000))}[rng.IntN(4)])
		}
		for k := 0; src.Spec.Images() != nil && k < rng.IntN(3); k++ {
			s.Images = append(s.Images, transform.Image{At: int32(k), Grid: imaging.Grid{H: rng.IntN(99), W: rng.IntN(99)}, SHA: [32]byte{byte(i), byte(k)}, Data: make([]byte, 1+rng.IntN(30000))})
		}
		all = append(all, s)
	}
	return all
}

// within gives the samples to a block that is read within a window.
func within(src *Source, w *window, all []*transform.Sample, bans Bans) (content, error) {
	r := src.reading(nil, w)
	for _, s := range all {
		if err := r.sample(s); err != nil {
			return nil, err
		}
	}
	r.endChunk(0, []order.Unit{{}})
	r.block.sum = r.sums.block.Sum()
	return r.end(bans)
}

// whole is the block of the same samples in memory.
func whole(src *Source, id blockID, all []*transform.Sample, bans Bans) *Block {
	c := newCache(context.Background(), 1<<60, noDisk, nil)
	b, err := within(src, &window{cache: c, id: id}, all, bans)
	if err != nil {
		panic(err)
	}
	return b.(*Block)
}

// samePieces asks a block in memory, and one that went to the disk while it was read, the
// same things. Their sizes are reported about right.
func samePieces(t *testing.T, rng *rand.Rand, id blockID, b *Block, other content) {
	t.Helper()
	want, _ := b.report(id)
	got, err := other.report(id)
	if err != nil {
		t.Fatal(err)
	}
	if got.Bytes > 2*want.Bytes || want.Bytes > 2*got.Bytes+1000 {
		t.Errorf("told of %d bytes, want about %d", got.Bytes, want.Bytes)
	}
	if got.Bytes = want.Bytes; !proto.Equal(got, want) {
		t.Fatalf("report: %v, want %v", got, want)
	}
	for range 5 {
		sameSamples(t, askOf(rng, b), b, other)
	}
}

func sameSamples(t *testing.T, ask *pb.BlockSamples, b *Block, other content) {
	t.Helper()
	if err := answers(t, ask, b, other); err != nil {
		t.Fatal(err)
	}
}

// answers is the error of other's answer, which else is that of b.
func answers(t *testing.T, ask *pb.BlockSamples, b *Block, other content) error {
	t.Helper()
	var got, want samples.Set
	if err := errors.Join(b.choose(ask, &want), other.choose(ask, &got)); err != nil {
		return err
	}
	if !slices.Equal(got.Tokens, want.Tokens) || !slices.Equal(got.Offsets, want.Offsets) || !reflect.DeepEqual(got.Kept, want.Kept) || !reflect.DeepEqual(got.Images, want.Images) {
		t.Error("a block gives other samples from the disk than from memory")
	}
	return nil
}

// TestWindow: a block is the same whatever part of it is in memory while it is read, also
// with kept values, images and banned samples, and with more samples than a page.
func TestWindow(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	disk, pieces := diskOf(t, 1<<30), 0
	for n := range 60 {
		src, id := sourceOf(rng), blockID{0, rng.Uint64N(9)}
		all := samplesOf(rng, src, []int{3, 40, 3 * pageSamples}[n%3])
		bans := Bans{known: 7}
		bans.Add(0, rng.Int64N(4), 3)
		c := newCache(t.Context(), rng.Int64N(2)*50e3, disk, nil)
		c.window = 1 << rng.IntN(18)
		got, err := within(src, &window{cache: c, id: id}, all, bans)
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := got.(*spilled); ok {
			pieces++
			samePieces(t, rng, id, whole(src, id, all, bans), got)
			if s.Bytes() > 64+s.file.Size()/100+16*int64(s.samples)/pageSamples {
				t.Errorf("%d bytes of memory for a file of %d", s.Bytes(), s.file.Size())
			}
			s.file.Close()
		} else {
			same(t, rng, id, whole(src, id, all, bans), got)
		}
	}
	if used, _, problem := disk.Usage(); used != 0 || problem != "" || pieces < 20 {
		t.Errorf("%d blocks were in pieces; in the end %d bytes are on the disk, problem %q", pieces, used, problem)
	}
}

// TestWindowIsKept: in memory there is never more of a block than its window, what there
// is room for, and one sample.
func TestWindowIsKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 20 {
		src := sourceOf(rng)
		c := newCache(t.Context(), rng.Int64N(100e3), diskOf(t, 1<<30), nil)
		w := &window{cache: c}
		r := src.reading(nil, w)
		for _, s := range samplesOf(rng, src, 500) {
			bytes, _ := sampleBytes(s)
			if err := r.sample(s); err != nil {
				t.Fatal(err)
			}
			if held, _, _ := c.usage(); held != w.counted || w.held > max(c.budget, 0)+2*c.window+bytes {
				t.Fatalf("%d bytes are counted, %d by the window; %d of %d are held after one of %d", held, w.counted, w.held, c.budget, bytes)
			}
			inMemory := r.block.tokens.bytes()
			if most := w.held + 4*lastSlab; inMemory > most {
				t.Fatalf("slabs of %d bytes, %d are held", inMemory, w.held)
			}
		}
		w.discard()
	}
}

// TestWindowWithoutDisk: where the disk takes nothing, or takes some and then no more, a block
// that has no room in memory is read again for each page of its samples, and nothing stays on
// the disk. Pages and what is known of the block are within the budget.
func TestWindowWithoutDisk(t *testing.T) {
	missing := spill.Open(spill.Options{Dir: filepath.Join(t.TempDir(), "missing"), Limit: 1 << 30})
	for name, disk := range map[string]*spill.Disk{"off": noDisk, "missing": missing, "tiny": diskOf(t, 100), "too small": diskOf(t, 20e3)} {
		t.Run(name, func(t *testing.T) {
			l := loaderOf(t, "", 3000)
			src, err := l.source(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			want, err := src.Read(t.Context(), l.store, src.Chain.Worker(), 0, Bans{})
			if err != nil {
				t.Fatal(err)
			}
			const budget = 60e3
			c := newCache(t.Context(), budget, disk, func(ctx context.Context, w *window) (content, error) {
				got, _, err := src.readWithin(ctx, l.store, src.Chain.Worker(), Bans{}, w)
				return got, err
			})
			var got *paged
			err = c.use(t.Context(), request{id: blockID{}}, func(b content) error {
				got = b.(*paged)
				samePieces(t, rand.New(rand.NewPCG(1, 1)), blockID{}, want, b)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if pages := len(got.bounds) - 1; pages < 4 || c.pages.bytes > budget/pagesShare || c.held != got.Bytes()+c.pages.bytes {
				t.Errorf("%d pages, %d bytes of them in memory; %d counted, %d known of the block", pages, c.pages.bytes, c.held, got.Bytes())
			}
			c.close()
			if used, _, _ := disk.Usage(); used != 0 || c.held != 0 {
				t.Errorf("in the end %d bytes are on the disk, %d in memory", used, c.held)
			}
		})
	}
}

// TestPaged: a block that is read for each page of its samples is the same as one in memory,
// also with kept values, masks, images and banned samples. A page is read once for all who ask
// for it at the same time, and again if the block is another one now.
func TestPaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(18, 8))
	for range 40 {
		src, id := sourceOf(rng), blockID{0, rng.Uint64N(9)}
		all := samplesOf(rng, src, 300)
		c := newCache(t.Context(), rng.Int64N(200e3), noDisk, nil)
		got, passes := pagedOf(src, c, id, all)
		b := whole(src, id, all, Bans{})
		for range 5 {
			before, ask := *passes, askOf(rng, b)
			sameSamples(t, ask, b, got)
			if n := *passes - before; n > 1 {
				t.Errorf("a block was read %d times for one question", n)
			}
		}
		samePieces(t, rng, id, b, got)
		before := *passes
		c.pages.forget(got)
		got.gone = false
		if len(all) == 0 {
			continue
		}
		var asks sync.WaitGroup
		for range 5 {
			asks.Go(func() { _ = got.choose(&pb.BlockSamples{Indices: []uint32{0}}, &samples.Set{}) })
		}
		asks.Wait()
		if n := *passes - before; n != 1 {
			t.Errorf("a page was read %d times for five who asked for it", n)
		}
		c.pages.forget(got)
		got.sum++
		if err := got.choose(&pb.BlockSamples{Indices: []uint32{0}}, &samples.Set{}); !errors.Is(err, spill.ErrUnreadable) {
			t.Errorf("of a block that changed: %v", err)
		}
	}
}

// pagedOf is a block of samples that counts how often it is read for its pages.
func pagedOf(src *Source, c *cache, id blockID, all []*transform.Sample) (p *paged, passes *int) {
	passes = new(int)
	scan := func(w *window, each visit) (*reading, error) {
		r := src.reading(nil, w)
		r.visit = each
		for _, s := range all {
			if err := r.sample(s); err != nil {
				return nil, err
			}
		}
		r.endChunk(0, []order.Unit{{}})
		r.block.sum = r.sums.block.Sum()
		return r, nil
	}
	w := &window{cache: c, id: id, paged: true}
	var sizes []uint32
	r, err := scan(w, func(b *Block, at int) { sizes = append(sizes, uint32(len(b.appendSample(nil, at, 0)))) })
	if err != nil {
		panic(err)
	}
	p, err = newPaged(r.finish(int64(id.seq), Bans{}), w, sizes)
	if err != nil {
		panic(err)
	}
	w.count(0)
	p.pass = func(each visit) error {
		*passes++
		w := &window{cache: c, id: id, paged: true}
		defer func() { w.count(0) }()
		r, err := scan(w, each)
		if err == nil {
			err = p.sameAs(r)
		}
		return err
	}
	return p, passes
}

// TestWhichBlockMakesRoom: for a block that is being read, larger ones go to the disk; if
// there are none, it goes itself.
func TestWhichBlockMakesRoom(t *testing.T) {
	for _, tc := range []struct {
		finished int
		pieces   bool
	}{{60e3, false}, {3e3, true}} {
		sized := &Block{Order: []int32{0}, Lengths: []uint32{uint32(tc.finished / 4)}}
		sized.spans = append(sized.spans, sized.tokens.add(make([]int32, tc.finished/4)))
		src := sourceOf(rand.New(rand.NewPCG(3, 3)))
		src.Spec.Keep, src.Spec.Transforms = nil, nil
		var all []*transform.Sample
		for i := range 100 {
			all = append(all, &transform.Sample{Row: int64(i), Tokens: make([]int32, 50)})
		}
		c := newCache(t.Context(), 64e3, diskOf(t, 1<<20), func(_ context.Context, w *window) (content, error) {
			if w.id.source == 0 {
				return sized, nil
			}
			return within(src, w, all, Bans{})
		})
		if !tc.pieces {
			c.window = 1 << 10
		} else {
			c.budget, c.window = 12e3, 1<<10
		}
		for source := range uint32(2) {
			if _, err := c.get(t.Context(), request{id: blockID{source, 0}}); err != nil {
				t.Fatal(err)
			}
		}
		if finished, read := c.entries[blockID{0, 0}], c.entries[blockID{1, 0}]; finished.onDisk() == tc.pieces || read.onDisk() != tc.pieces {
			t.Errorf("a block of %d is on the disk: %v, the one that was read: %v", tc.finished, finished.onDisk(), read.onDisk())
		}
		c.close()
		if used, _, _ := c.disk.Usage(); used != 0 || c.held != 0 {
			t.Errorf("in the end %d bytes are on the disk, %d in memory", used, c.held)
		}
	}
}

// TestForgottenWhileRead: a block that is let go of while it goes to the disk leaves
// nothing there, and is read again.
func TestForgottenWhileRead(t *testing.T) {
	src := sourceOf(rand.New(rand.NewPCG(3, 3)))
	all := samplesOf(rand.New(rand.NewPCG(4, 4)), src, 1<<10)
	var c *cache
	reads := 0
	c = newCache(t.Context(), 0, diskOf(t, 1<<30), func(_ context.Context, w *window) (content, error) {
		got, err := within(src, w, all, Bans{})
		if reads++; reads == 1 {
			c.forget(0)
			if w.counted == 0 {
				t.Error("nothing of the block is counted")
			}
		}
		return got, err
	})
	want := whole(src, blockID{}, all, Bans{})
	if err := c.use(t.Context(), request{id: blockID{}}, func(b content) error {
		return answers(t, &pb.BlockSamples{Indices: []uint32{0}}, want, b)
	}); err != nil || reads != 2 {
		t.Errorf("%d reads: %v", reads, err)
	}
	c.close()
	if used, _, _ := c.disk.Usage(); used != 0 || c.held != 0 {
		t.Errorf("in the end %d bytes are on the disk, %d in memory", used, c.held)
	}
}

// TestWindowsConcurrently reads blocks that outgrow memory from many sides, with any room
// on the disk: all of them are what they are, nothing waits for ever and nothing stays.
func TestWindowsConcurrently(t *testing.T) {
	for _, limit := range []int64{1 << 30, 150e3, 30e3, 0} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			src := sourceOf(rand.New(rand.NewPCG(3, 3)))
			samplesFor := func(id blockID) []*transform.Sample {
				return samplesOf(rand.New(rand.NewPCG(uint64(id.source), id.seq)), src, 60)
			}
			disk := diskOf(t, limit)
			c := newCache(t.Context(), 100e3, disk, func(_ context.Context, w *window) (content, error) {
				got, err := within(src, w, samplesFor(w.id), Bans{})
				if errors.Is(err, errNotTaken) {
					w.discard()
					w.count(0)
					p, _ := pagedOf(src, w.cache, w.id, samplesFor(w.id))
					return p, nil
				}
				return got, err
			})
			var all sync.WaitGroup
			for g := range 6 {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(7, uint64(g)))
					for range 30 {
						id := blockID{uint32(rng.IntN(3)), uint64(rng.IntN(8))}
						switch rng.IntN(12) {
						case 0:
							c.release(map[uint32]uint64{id.source: id.seq})
						case 1:
							c.forget(id.source)
						}
						want := whole(src, id, samplesFor(id), Bans{})
						ask := askOf(rng, want)
						if err := c.use(t.Context(), request{id: id}, func(b content) error { return answers(t, ask, want, b) }); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			c.close()
			if used, _, problem := disk.Usage(); used != 0 || c.held != 0 || c.leaving != 0 || problem != "" {
				t.Errorf("in the end %d bytes are on the disk, %d in memory, %d leave; problem %q", used, c.held, c.leaving, problem)
			}
		})
	}
}
