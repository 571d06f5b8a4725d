package constructor

import (
	"bytes"
	"crypto/sha256"
	"image"
	"image/color"
	"image/png"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/constructor/deliver"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/imaging"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

var small = imaging.Geometry{Patch: 4, Merge: 2, MinPixels: 64, MaxPixels: 1024}

// encodedImage is a PNG of n by n pixels, and what a decoder makes of it.
func encodedImage(t *testing.T, rng *rand.Rand, n int) (samples.Image, []byte) {
	t.Helper()
	m := image.NewRGBA(image.Rect(0, 0, n, n))
	for i := range n * n {
		m.Set(i%n, i/n, color.RGBA{byte(rng.Uint32()), byte(rng.Uint32()), byte(rng.Uint32()), 255})
	}
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	patches, grid, err := new(imaging.Decoder).AppendPatches(nil, out.Bytes(), small)
	if err != nil {
		t.Fatal(err)
	}
	return samples.Image{H: int32(grid.H), W: int32(grid.W), SHA: sha256.Sum256(out.Bytes()), Data: out.Bytes(), Origin: "pairs.tar, row 17"}, patches
}

// imageStep is a step of one row whose three images rank 0 encodes: two that came as they are in
// their files, and between them one that a loader has decoded.
func imageStep(t *testing.T) (*step, [][]byte) {
	t.Helper()
	rng := rand.New(rand.NewPCG(4, 4))
	layout := assemble.Layout{Format: assemble.Megatron, CPSlicing: assemble.Zigzag, CP: 1, PP: 1}
	st := &step{length: 8, total: 1, images: map[slot][]picture{}, from: content{
		layout: layout, names: []string{"pairs"}, mesh: &pb.Mesh{Dp: 1, Cp: 1, Pp: 1, Tp: 1, Stride: []uint32{1, 1, 1, 1}},
		images: []*pb.ImageStep{{Patch: 4, Merge: 2, MinPixels: 64, MaxPixels: 1024}},
	}}
	st.rows = []row{{Row: batch.Row{Segments: [][]int32{{1, 2, 3}}}}}
	var want [][]byte
	for i, side := range []int{16, 24, 8} {
		x, patches := encodedImage(t, rng, side)
		want = append(want, patches)
		p := picture{Image: x, number: uint32(i), Encoded: assemble.Encoded{H: int(x.H), W: int(x.W), Number: i}}
		if i == 1 {
			p.Decoded, p.pixels = true, patches
		} else {
			st.undecoded += int64(len(patches))
		}
		st.images[slot{}] = append(st.images[slot{}], p)
	}
	return st, want
}

// TestBatchesDecodeNothing: what ranks are sent of images was decoded when the step was built.
// The encoded bytes may be anything by then, and each request gives the same.
func TestBatchesDecodeNothing(t *testing.T) {
	st, want := imageStep(t)
	c := &Constructor{pictures: imaging.NewPool(2, nil)}
	if err := c.decode(t.Context(), st); err != nil {
		t.Fatal(err)
	}
	for _, x := range st.images[slot{}] {
		if !x.Decoded {
			clear(x.Data)
		}
	}
	sent := 0
	for range 2 {
		table, body, err := st.part(deliver.Rank{}, false, []byte("what was in a buffer before"))
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range table.Tensors {
			if x.Name == assemble.PixelValues && bytes.Equal(body[x.Offset:x.Offset+x.Size], bytes.Join(want, nil)) {
				sent++
			}
		}
	}
	if sent != 2 {
		t.Errorf("%d of 2 batches have the pixels of the images", sent)
	}
}

// TestDecodingCounts: before a step's images are decoded the memory for that is reserved, at most the part of the
// constructor's that is for it, or what the largest takes.
func TestDecodingCounts(t *testing.T) {
	st, _ := imageStep(t)
	undecoded := 0
	for _, x := range st.images[slot{}] {
		if !x.Decoded {
			undecoded++
			need := imaging.Memory(x.Data, small)
			st.scratch, st.largest = st.scratch+need, max(st.largest, need)
		}
	}
	var said bytes.Buffer
	c := &Constructor{opts: Options{Log: slog.New(slog.NewTextHandler(&said, nil))}}
	for budget, want := range map[int64]int64{1: st.largest, roomShare * (st.largest + 1): st.largest + 1, 1 << 30: st.scratch} {
		c.decodeWithin(budget)
		if got := st.decoding(c.room); got != want || undecoded < 2 {
			t.Errorf("%d of %d bytes are reserved for %d images with a budget of %d, want %d", got, st.scratch, undecoded, budget, want)
		}
	}
	c.decodeWithin(1)
	if err := c.decode(t.Context(), st); err != nil || strings.Count(said.String(), "each alone") != 1 {
		t.Errorf("%v; said: %s", err, said.String())
	}
}

// TestExchange: the embeddings of an image go to all ranks of the first stage that have its row, those of tp among them,
// and what each of them gets is what its images' encoders send.
func TestExchange(t *testing.T) {
	m := &pb.Mesh{Dp: 2, Cp: 2, Pp: 2, Tp: 2, Stride: []uint32{4, 2, 8, 1}}
	encoded := []assemble.Encoded{{Rank: 0, Tokens: 3}, {Rank: 1, Tokens: 5}, {Rank: 1, Tokens: 2}}
	rows := []batch.Row{{Images: []batch.Image{{Tokens: 3}, {Tokens: 4}}}, {}, {Images: []batch.Image{{Tokens: 7}}}}
	sources := []assemble.Source{{Encoder: 9}, {Encoder: 2}, {Encoder: 9, Ordinal: 1}}
	for pp := range m.Pp {
		send, recv := exchange(m, deliver.Rank{DP: 1, CP: 1, PP: pp, TP: 1}, encoded, rows, sources)
		if want := []int32{3, 3, 3, 3, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0}; !slices.Equal(send, want) {
			t.Errorf("pp %d sends %v, want %v", pp, send, want)
		}
		want := make([]int32, 16)
		if pp == 0 {
			want[2], want[9] = 4, 10
		}
		if !slices.Equal(recv, want) {
			t.Errorf("pp %d gets %v, want %v", pp, recv, want)
		}
	}
}

// TestImagesOfRows: each image of a row has the encoder and the ordinal that the plan's list names next.
func TestImagesOfRows(t *testing.T) {
	plan, steps := &pb.ImagePlan{RowEncoder: []uint32{5, 0, 5}, RowOrdinal: []uint32{1, 0, 2}}, []*pb.ImageStep{{Patch: 4, Merge: 2, MinPixels: 64, MaxPixels: 1024}}
	next, rows := 0, make([]row, 2)
	for i, images := range [][]samples.Image{{{At: 3, H: 4, W: 2}, {At: 9, H: 2, W: 2}}, {{H: 2, W: 4}}} {
		rows[i].Segments = [][]int32{make([]int32, 16)}
		if err := rows[i].addImages(images, 0, plan, &next, steps); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := rows[0].sources, []assemble.Source{{Encoder: 5, Ordinal: 1}, {}}; !slices.Equal(got, want) {
		t.Errorf("the first row has images of %v, want %v", got, want)
	}
	if got, want := rows[1].sources, []assemble.Source{{Encoder: 5, Ordinal: 2}}; !slices.Equal(got, want) {
		t.Errorf("the second row has images of %v, want %v", got, want)
	}
	if got, want := rows[0].Images[1], (batch.Image{At: 9, Tokens: 1, H: 2, W: 2}); !reflect.DeepEqual(got, want) {
		t.Errorf("the second image is %+v, want %+v", got, want)
	}
	if err := rows[1].addImages([]samples.Image{{H: 2, W: 2}}, 0, plan, &next, steps); err == nil || !strings.Contains(err.Error(), "more images than the plan") {
		t.Errorf("an image that the plan lacks: %v", err)
	}
}

// TestDamagedImage: an image that is not the one that was planned ends the build, and the error
// says where it is from.
func TestDamagedImage(t *testing.T) {
	for name, test := range map[string]struct {
		class fault.Class
		spoil func(x *picture)
	}{
		"another one":         {fault.Bug, func(x *picture) { x.Data[30]++ }},
		"cut off in its data": {fault.User, func(x *picture) { x.Data = x.Data[:len(x.Data)/2]; x.SHA = sha256.Sum256(x.Data) }},
	} {
		st, _ := imageStep(t)
		test.spoil(&st.images[slot{}][2])
		err := (&Constructor{pictures: imaging.NewPool(1, nil)}).decode(t.Context(), st)
		if fault.ClassOf(err) != test.class || !strings.Contains(err.Error(), `source "pairs": pairs.tar, row 17, image 2`) {
			t.Errorf("%s: class %v: %v", name, fault.ClassOf(err), err)
		}
	}
}
