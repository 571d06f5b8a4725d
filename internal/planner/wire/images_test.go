package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

func TestImagesRead(t *testing.T) {
	good := func() *pb.BlockRead {
		return &pb.BlockRead{Lengths: []uint32{9, 3, 7}, Images: []uint32{2, 0, 1}, ImageHeight: []uint32{2, 4, 6}, ImageWidth: []uint32{2, 6, 2}}
	}
	got, err := imagesRead(good())
	if want := (&plan.Images{Offsets: []int32{0, 2, 2, 3}, Patches: []int32{4, 24, 12}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if got, err := imagesRead(&pb.BlockRead{Lengths: []uint32{9}}); got != nil || err != nil {
		t.Errorf("a block without images: %+v, %v", got, err)
	}
	for name, damage := range map[string]func(b *pb.BlockRead){
		"a sample more": func(b *pb.BlockRead) { b.Lengths = append(b.Lengths, 1) },
		"a height less": func(b *pb.BlockRead) { b.ImageHeight = b.ImageHeight[1:] },
		"a width more":  func(b *pb.BlockRead) { b.ImageWidth = append(b.ImageWidth, 2) },
		"an image more": func(b *pb.BlockRead) { b.Images[1]++ },
	} {
		b := good()
		damage(b)
		if _, err := imagesRead(b); err == nil || !strings.Contains(err.Error(), "a loader told of") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
