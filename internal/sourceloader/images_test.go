package sourceloader

import (
	"slices"
	"strings"
	"testing"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

// imageBlock has three samples, read in the order 1, 2, 0, with 2, 0 and 1 images.
func imageBlock() *Block {
	image := func(at int32, data string) samples.Image {
		return samples.Image{At: at, H: 2, W: at + 2, SHA: [32]byte{byte(at)}, Origin: "f: row 1", Data: []byte(data)}
	}
	return &Block{
		hasImages: true, Order: []int32{1, 2, 0}, Lengths: []uint32{4, 4, 4},
		images: [][]samples.Image{{image(0, "a")}, {image(0, "b"), image(2, "c")}, nil},
	}
}

// TestSelectImages: all images are named, and only what was asked for is sent.
func TestSelectImages(t *testing.T) {
	var set samples.Set
	want := &pb.BlockSamples{Indices: []uint32{0, 1, 2}, ImageSample: []uint32{2, 0}, ImageNumber: []uint32{0, 1}}
	if err := imageBlock().selectImages(want, &set); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, list := range set.Images {
		for _, x := range list {
			got = append(got, string(x.Data)+"|"+x.Origin)
		}
		got = append(got, "/")
	}
	if !slices.Equal(got, []string{"|", "c|f: row 1", "/", "/", "a|f: row 1", "/"}) {
		t.Errorf("got %q", got)
	}
	if x := set.Images[0][0]; x.W != 2 || x.H != 2 {
		t.Errorf("the size of an image without data is %d x %d", x.H, x.W)
	}
	report := imageBlock().Report(0, 0)
	if want := imageBlock().Bytes(); report.Bytes != uint64(want) || want < 100 {
		t.Errorf("it takes %d bytes, the report says %d", want, report.Bytes)
	}
	if !slices.Equal(report.Images, []uint32{2, 0, 1}) || !slices.Equal(report.ImageWidth, []uint32{2, 4, 2}) || len(report.ImageHeight) != 3 {
		t.Errorf("told the planner of %v images, %v x %v", report.Images, report.ImageHeight, report.ImageWidth)
	}
}

func TestSelectImagesThatAreNotThere(t *testing.T) {
	for name, want := range map[string]*pb.BlockSamples{
		"a number too many":        {Indices: []uint32{0}, ImageSample: []uint32{0}, ImageNumber: []uint32{2}},
		"a sample that is not":     {Indices: []uint32{0}, ImageSample: []uint32{2}, ImageNumber: []uint32{0}},
		"samples without numbers":  {Indices: []uint32{0}, ImageSample: []uint32{0}},
		"an image of one with non": {Indices: []uint32{1}, ImageSample: []uint32{1}, ImageNumber: []uint32{0}},
	} {
		var set samples.Set
		if err := imageBlock().selectImages(want, &set); err == nil || !strings.Contains(err.Error(), "asked for") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestImageMemory: the budget counts images.
func TestImageMemory(t *testing.T) {
	b := imageBlock()
	before := b.Bytes()
	b.images[0][0].Data = make([]byte, 1<<20)
	if grown := b.Bytes() - before; grown != 1<<20-1 {
		t.Errorf("an image of 1 MiB counts as %d bytes", grown)
	}
}
