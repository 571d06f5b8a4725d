package sourceloader

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/millrace-data/millrace/internal/imaging"
	"github.com/millrace-data/millrace/internal/planner/compile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

const (
	picturesOfLoader = 12
	pictureSide      = 560 // pixels; with patches of 14 nothing is resized
)

// pictureLoader is a loader whose one source has pictures that it is to decode, with its only block read.
func pictureLoader(t *testing.T) (*Loader, *pb.BlockSamples) {
	t.Helper()
	var encoded, archive bytes.Buffer
	if err := jpeg.Encode(&encoded, image.NewGray(image.Rect(0, 0, pictureSide, pictureSide)), nil); err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(&archive)
	for i := range picturesOfLoader {
		for _, member := range []struct {
			ending  string
			content []byte
		}{{"jpg", encoded.Bytes()}, {"txt", []byte("a picture")}} {
			if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%03d.%s", i, member.ending), Size: int64(len(member.content)), Mode: 0o600}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(member.content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var files store.Memory
	files.Put("d/0.tar", archive.Bytes())
	job, findings := jobspec.Parse("j.yaml", []byte(`
name: j
sources:
  - name: s
    files: /d/*.tar
    transforms: [text: "{txt}", tokenize: bytes, image: {columns: [jpg], token: 300, patch: 14, merge: 2, max_pixels: 1000000, decode: loader}]
batch: {sequence_length: 4096, sequences: 4}
`), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	l := &Loader{store: store.NewMetered(&files), shared: transform.NewShared(0, nil), pictures: imaging.NewPool(2, nil)}
	l.setJob(compile.LoaderJob(job))
	said := heard(t, l)
	l.cache = newCache(t.Context(), 32<<20, diskOf(t, 64<<20), l.load)
	want := &pb.BlockSamples{Sum: reportOf(t, l, said, 0).Sum}
	for i := range uint32(picturesOfLoader) {
		want.Indices, want.ImageSample, want.ImageNumber = append(want.Indices, i), append(want.ImageSample, i), append(want.ImageNumber, 0)
	}
	return l, want
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools kept is free after the second only
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAnswersCount: what a loader counts of an answer with pixels is what they take of the heap, and nothing is
// left of it afterwards.
func TestAnswersCount(t *testing.T) {
	l, want := pictureLoader(t)
	gather := func() ([]samples.Set, *holding) {
		sets := make([]samples.Set, 1)
		held, err := l.gather(t.Context(), &pb.FetchRequest{Blocks: []*pb.BlockSamples{want}}, sets, new(atomic.Int64), nil)
		if err != nil {
			t.Fatal(err)
		}
		return sets, held
	}
	const pixels = picturesOfLoader * 3 * pictureSide * pictureSide
	counted, _, _ := l.cache.usage()
	measure := func() (sets []samples.Set, held *holding, counts, took int64) {
		heap := liveHeap()
		sets, held = gather()
		took = liveHeap() - heap
		now, _, _ := l.cache.usage()
		return sets, held, now - counted, took
	}
	_, held, _, _ := measure() // the decoders have their memory now
	held.end()
	sets, held, counts, took := measure()
	for range 2 { // the heap is the whole program's: what ends beside the test may be freed, or kept, meanwhile
		if took >= pixels && took <= counts+64<<10 {
			break
		}
		held.end()
		sets, held, counts, took = measure()
	}
	if counts < pixels || took > counts+64<<10 || took < pixels {
		t.Errorf("%d bytes of pixels count as %d and take %d of the heap", pixels, counts, took)
	}
	if !sets[0].Images[0][0].Decoded || len(sets[0].Images[0][0].Data) != pixels/picturesOfLoader {
		t.Errorf("an image has %d bytes", len(sets[0].Images[0][0].Data))
	}
	held.end()
	held.end()
	if left, _, _ := l.cache.usage(); left != counted {
		t.Errorf("%d bytes are left of the answer", left-counted)
	}
}

// TestAnswersWait: pixels of two fetches that together are more than half of the memory are not decoded at the same
// time; who gives up leaves nothing behind; and an answer larger than that comes alone.
func TestAnswersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, want := pictureLoader(t) // an answer has 11 MB, and the cache 32 MiB
		var answered atomic.Int32
		gather := func(ctx context.Context) (*holding, error) {
			held, err := l.gather(ctx, &pb.FetchRequest{Blocks: []*pb.BlockSamples{want}}, make([]samples.Set, 1), new(atomic.Int64), nil)
			answered.Add(1)
			return held, err
		}
		before, _, _ := l.cache.usage()
		first, err := gather(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				held, err := gather(ctx)
				held.end()
				if (err == nil) != (ctx.Err() == nil) {
					t.Errorf("%v with %v", err, ctx.Err())
				}
			}()
		}
		for _, step := range []struct {
			name     string
			do       func()
			answered int32
		}{{"two wait", func() {}, 1}, {"one gave up", cancel, 2}, {"the first is done", first.end, 3}} {
			step.do()
			synctest.Wait()
			if n := answered.Load(); n != step.answered {
				t.Errorf("%s: %d fetches of 3 were answered, want %d", step.name, n, step.answered)
			}
		}
		if left, _, _ := l.cache.usage(); left != before {
			t.Errorf("%d bytes are left of the answers", left-before)
		}
		l.cache.pixels = newPixels(1 << 20)
		last, err := gather(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		last.end()
	})
}
