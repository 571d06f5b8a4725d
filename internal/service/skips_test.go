package service_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/internal/trainer"
)

// shapesOf are what each of two ranks gets in some steps, but for the data.
func shapesOf(t *testing.T, opts service.Options, steps int) (shapes []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := service.Run(ctx, opts, func(ctx context.Context, address string) error {
		ranks := openRanks(ctx, t, address, nil, client.Rank{}, client.Rank{DP: 1})
		for range steps {
			for _, c := range ranks {
				batch, err := c.Next(ctx)
				if err != nil {
					return err
				}
				shapes = append(shapes, shapeOf(batch))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return shapes
}

// TestShapeWithDamagedImages: where records with images are left out, others take their
// place: batches have the shape that they have without damage, and are the reference's.
// The damage is one of each kind, and files that were found broken in the world.
func TestShapeWithDamagedImages(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	var broken [][]member
	for i, d := range spoiled {
		broken = append(broken, d.members(t, rng, fmt.Sprintf("spoiled-%d", i)))
	}
	if dir, ok := testdata.Find(); ok {
		for _, name := range []string{"broken.png", "hopper_bad_exif.jpg", "truncated_jpeg.jpg"} {
			data, err := os.ReadFile(filepath.Join(dir, "corrupt/images/pillow", name))
			if err != nil {
				t.Fatal(err)
			}
			broken = append(broken, []member{{"real-" + strings.ReplaceAll(name, "jpeg.", "."), data}})
		}
	}
	spec := strings.Replace(damagedJob("constructor", "true", "{policy: skip, limit: 10000}"), "pp: 2", "pp: 1", 1)
	shapes := map[string][]string{}
	for name, every := range map[string]int{"whole": 1 << 30, "damaged": 4} {
		dir, rng := t.TempDir(), rand.New(rand.NewPCG(6, 6))
		var members []member
		for i := range 60 {
			key := fmt.Sprintf("%03d", i)
			if i%every == every-1 {
				bad := broken[i/every%len(broken)]
				text, _, _ := strings.Cut(bad[0].name, ".")
				members = append(members, member{key + text + ".txt", []byte("b")})
				for _, m := range bad {
					members = append(members, member{key + m.name, m.data})
				}
			}
			members = append(members, member{key + ".txt", []byte("a")}, member{key + ".jpg", picture(t, rng, 8+rng.IntN(20), 8+rng.IntN(20), "jpg")})
		}
		writeTar(t, filepath.Join(dir, "pairs.tar"), members)
		job := parse(t, dir, spec)
		want, images := expect(t, job, 10)
		if images < 20 {
			t.Fatalf("%d images", images)
		}
		serveVLM(t, service.Options{Job: job, Loaders: 2, Constructors: 2}, 10, nil, want)
		shapes[name] = shapesOf(t, service.Options{Job: job}, 10)
	}
	if !slices.Equal(shapes["whole"], shapes["damaged"]) || len(shapes["whole"]) != 20 {
		t.Errorf("without damage the batches are\n%s\nwith it\n%s", shapes["whole"], shapes["damaged"])
	}
}

// faulty is a store whose reads fail, or bring other bytes, as harm says of the n-th.
type faulty struct {
	store.Store
	reads atomic.Int64
	harm  func(n int64, p []byte) error
}

func (f *faulty) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	h, err := f.Store.Open(ctx, obj)
	if err != nil {
		return nil, err
	}
	return &faultyHandle{h, f}, nil
}

type faultyHandle struct {
	store.Handle
	of *faulty
}

func (h *faultyHandle) ReadAt(p []byte, off int64) (int, error) {
	n, err := h.Handle.ReadAt(p, off)
	if bad := h.of.harm(h.of.reads.Add(1), p[:n]); bad != nil {
		return 0, bad
	}
	return n, err
}

// runWithStores runs a recipe with a loader for each of some stores.
func runWithStores(t *testing.T, dir string, r recipe, onStep func(trainer.Step), stores ...*faulty) (*trainer.Result, error) {
	t.Helper()
	job := parse(t, dir, r.text(resources{prefetch: 1, window: 1}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience) // what is lost is tried again with pauses
	var roles sync.WaitGroup
	defer roles.Wait()
	defer cancel()
	ready := make(chan string, 1)
	// Each of these ends with ctx, or with the error of the job, which the trainer gets, too.
	roles.Go(func() {
		_ = planner.Run(ctx, planner.Options{Job: job, Address: "127.0.0.1:0", Loaders: len(stores), Serving: func(a string) { ready <- a }})
	})
	address := <-ready
	roles.Go(func() { _ = constructor.Run(ctx, constructor.Options{Planner: address, Address: "127.0.0.1:0"}) })
	for _, st := range stores {
		roles.Go(func() {
			_ = sourceloader.Run(ctx, sourceloader.Options{Planner: address, Address: "127.0.0.1:0", Store: st})
		})
	}
	return trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: r.steps, Prefetch: -1, OnStep: onStep})
}

// TestFaultyStores: a read that fails is made again, however often, and no record is left out
// for it though the source's policy is to; of a loader to which bytes come as others each time,
// another one takes the work. If all loaders have such a store, the job ends and says so.
func TestFaultyStores(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := t.TempDir()
	var b strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&b, `{"text":"record %d is a line"}`+"\n", i)
	}
	write(t, filepath.Join(dir, "chat.jsonl"), b.String())
	r := recipe{"faulty stores", `
sources:
  - name: chat
    files: chat.jsonl
    chunk_bytes: 500
    bad_records: {policy: skip, limit: 100000}
batch: {sequence_length: 256, sequences: 16}
topology: {dp: 1}
`, 10, ""}
	want := solve(t, dir, r)
	var armed atomic.Bool // all loaders have opened the source, and read some of it
	var harmed atomic.Int64
	whole := func(int64, []byte) error { return nil }
	lossy := func(n int64, _ []byte) error {
		if armed.Load() && rand.New(rand.NewPCG(uint64(n), 5)).IntN(6) == 0 {
			harmed.Add(1)
			return fault.Lostf("reading: %w", io.ErrUnexpectedEOF)
		}
		return nil
	}
	noisy := func(n int64, p []byte) error {
		rng := rand.New(rand.NewPCG(uint64(n), 7))
		for i := 0; armed.Load() && i < len(p); i++ {
			if p[i] == '{' && rng.IntN(2) == 0 {
				p[i] = '#'
				harmed.Add(1)
			}
		}
		return nil
	}
	for _, c := range []struct {
		name  string
		harms []func(int64, []byte) error
		says  string
	}{
		{"one read in six is lost", []func(int64, []byte) error{lossy, lossy}, ""},
		{"one loader reads other bytes each time", []func(int64, []byte) error{noisy, whole}, ""},
		{"all do", []func(int64, []byte) error{noisy, noisy}, "it is the reading that is at fault and not the data"},
	} {
		if testing.Short() && c.says != "" {
			continue // each loader tries for 5 s
		}
		t.Run(c.name, func(t *testing.T) {
			armed.Store(false)
			harmed.Store(0)
			var stores []*faulty
			for _, harm := range c.harms {
				stores = append(stores, &faulty{Store: store.Local{}, harm: harm})
			}
			res, err := runWithStores(t, dir, r, func(s trainer.Step) {
				if s.Step == 4 {
					armed.Store(true)
				}
			}, stores...)
			switch {
			case c.says != "":
				if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `the job has failed, start the service again: source "chat", block `) || len(err.Error()) > 3000 {
					t.Errorf("%v; want one that says %q, in few words", err, c.says)
				}
			case err != nil:
				t.Error(err)
			case res.Digest != want.digests[r.steps]:
				t.Errorf("digest step=%d %x, want %x", res.Next, res.Digest, want.digests[r.steps])
			}
			if harmed.Load() == 0 {
				t.Error("no read was harmed")
			}
		})
	}
}
