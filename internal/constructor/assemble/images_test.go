package assemble

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/batch"
)

func encodedImages(rng *rand.Rand, n int) (images []Encoded) {
	for i := range n {
		images = append(images, Encoded{H: 1 + rng.IntN(5), W: 1 + rng.IntN(5), Rank: rng.IntN(4), Row: rng.IntN(3), Document: rng.IntN(9), Number: i, Tokens: 1 + rng.IntN(9)})
	}
	return images
}

func TestPixelsRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	const patch = 12
	for n := range 6 {
		want := encodedImages(rng, n)
		before := slices.Repeat([]byte{0xaa}, rng.IntN(200))
		body, tensors, at := AppendPixels(slices.Clone(before), want, patch)
		if !bytes.Equal(body[:len(before)], before) {
			t.Fatal("the body before was changed")
		}
		for i, start := range at {
			for k := range want[i].H * want[i].W * patch {
				body[start+k] = byte(i + 1)
			}
		}
		offset := batch.Aligned(len(before))
		for i := range tensors { // as they lie in the body
			tensors[i].Data = body[offset : offset+len(tensors[i].Data)]
			offset = batch.Aligned(offset + len(tensors[i].Data))
		}
		got, patches, err := ReadPixels(tensors)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %v, %v; want %v", got, err, want)
		}
		for i, p := range patches {
			if !bytes.Equal(p, slices.Repeat([]byte{byte(i + 1)}, want[i].H*want[i].W*patch)) {
				t.Errorf("image %d has the pixels of others", i)
			}
		}
	}
}

func TestSourcesRoundTrip(t *testing.T) {
	rows := []batch.Row{
		{Segments: [][]int32{{1, 2, 3}, {4, 5}}, Images: []batch.Image{
			{Document: 0, At: 1, Tokens: 2, H: 4, W: 2, SHA: [32]byte{1}}, {Document: 1, At: 0, Tokens: 1, H: 2, W: 2, SHA: [32]byte{2}},
		}},
		{},
		{Segments: [][]int32{{6}}, Images: []batch.Image{{Tokens: 1, H: 2, W: 2, SHA: [32]byte{3, 31: 9}}}},
	}
	want := []Source{{Encoder: 3}, {Encoder: 7, Ordinal: 2}, {Encoder: 3, Ordinal: 1}}
	_, tensors := AppendSources(nil, rows, want)
	images, sources, err := ReadSources(tensors, len(rows))
	if err != nil || !reflect.DeepEqual(images, imagesIn(rows)) || !reflect.DeepEqual(sources, want) {
		t.Fatalf("got %v from %v, %v", images, sources, err)
	}
}

// TestDamagedImageTensors breaks each thing that a reader relies on.
func TestDamagedImageTensors(t *testing.T) {
	make := func() []batch.Tensor {
		_, tensors, _ := AppendPixels(nil, encodedImages(rand.New(rand.NewPCG(2, 2)), 3), 3)
		return tensors
	}
	put := func(data []byte, at int, v uint64) { binary.LittleEndian.PutUint64(data[8*at:], v) }
	for name, test := range map[string]struct {
		damage func(ts []batch.Tensor) []batch.Tensor
		want   string
	}{
		"no pixels":       {func(ts []batch.Tensor) []batch.Tensor { return ts[1:] }, "tensor pixel_values is missing"},
		"no bounds":       {func(ts []batch.Tensor) []batch.Tensor { return slices.Delete(ts, 2, 3) }, "tensor image.cu_seqlens is missing"},
		"type":            {func(ts []batch.Tensor) []batch.Tensor { ts[0].DType = batch.Int32; return ts }, "tensor pixel_values is int32"},
		"short":           {func(ts []batch.Tensor) []batch.Tensor { ts[1].Data = ts[1].Data[8:]; return ts }, "bytes"},
		"grid":            {func(ts []batch.Tensor) []batch.Tensor { put(ts[1].Data, 4, 99); return ts }, "image 1 has grid"},
		"time":            {func(ts []batch.Tensor) []batch.Tensor { put(ts[1].Data, 0, 2); return ts }, "image 0 has grid"},
		"fewer dest":      {func(ts []batch.Tensor) []batch.Tensor { ts[3].Shape[0]--; ts[3].Data = ts[3].Data[40:]; return ts }, "have shapes"},
		"fewer than dest": {func(ts []batch.Tensor) []batch.Tensor { ts[0].Shape[0]--; ts[0].Data = ts[0].Data[3:]; return ts }, "image 2 has grid"},
		"more pixels": {func(ts []batch.Tensor) []batch.Tensor {
			ts[0].Shape[0]++
			ts[0].Data = append(ts[0].Data, 1, 2, 3)
			return ts
		}, "its images have"},
	} {
		_, _, err := ReadPixels(test.damage(make()))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	rows := []batch.Row{{Segments: [][]int32{{1}}, Images: []batch.Image{{Tokens: 1, H: 1, W: 1}}}}
	_, tensors := AppendSources(nil, rows, []Source{{}})
	put(tensors[0].Data, 2, 5)
	if _, _, err := ReadSources(tensors, 1); err == nil || !strings.Contains(err.Error(), "row 5 of 1") {
		t.Error(err)
	}
}

// TestMasksOutsideDocuments: bounds that no loader gives.
func TestMasksOutsideDocuments(t *testing.T) {
	l := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 8, CP: 1, PP: 1, Packed: true}
	for _, bounds := range [][]int32{{0, 1}, {1, 4}, {2, 2}, {2, 1}, {1}, {1, 2, 2, 3}, {-1, 2}} {
		row := batch.Row{Segments: [][]int32{{1, 2, 3}}, Masked: [][]int32{bounds}}
		if _, err := l.Microbatch([]batch.Row{row}, 0, 0); err == nil || !strings.Contains(err.Error(), "without loss") {
			t.Errorf("%v: %v", bounds, err)
		}
	}
	row := batch.Row{Segments: [][]int32{{1}}, Masked: [][]int32{nil, {1, 2}}}
	if _, err := l.Microbatch([]batch.Row{row}, 0, 0); err == nil {
		t.Error("a mask of a document that is not there")
	}
}

// TestImagesOutsideDocuments: a plan that puts placeholders where no token is.
func TestImagesOutsideDocuments(t *testing.T) {
	l := Layout{Format: Megatron, CPSlicing: Zigzag, SequenceLength: 8, CP: 1, PP: 1, Packed: true}
	for _, x := range []batch.Image{{Document: 1, Tokens: 1}, {At: 2, Tokens: 2}, {At: -1, Tokens: 1}, {Tokens: 0}, {Document: -1, Tokens: 1}} {
		row := batch.Row{Segments: [][]int32{{1, 2, 3}}, Images: []batch.Image{x}}
		if _, err := l.Microbatch([]batch.Row{row}, 0, 0); err == nil || !strings.Contains(err.Error(), "placeholders") {
			t.Errorf("%+v: %v", x, err)
		}
	}
}
