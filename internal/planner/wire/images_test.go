package wire

import (
	"reflect"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestBlocksThatCannotBe: numbers that stand for nothing are an error, and index nothing.
func TestBlocksThatCannotBe(t *testing.T) {
	for name, b := range map[string]*pb.BlockRead{
		"banned without a ban": {Lengths: []uint32{3}, Banned: []uint32{0}},
		"a ban of no sample":   {Lengths: []uint32{3}, Bans: []uint32{1}},
		"banned beyond":        {Lengths: []uint32{3}, Banned: []uint32{1}, Bans: []uint32{1}},
		"a source beyond":      {Source: 1<<32 - 1},
		"a block beyond":       {Seq: 1 << 63},
		"images beyond":        {Lengths: []uint32{3}, Images: []uint32{1}, ImageHeight: []uint32{1 << 16}, ImageWidth: []uint32{1 << 16}},
	} {
		if ev, ok := BlockEvent(1, b).(control.Failed); !ok || !strings.Contains(ev.Err.Error(), "a loader told of") {
			t.Errorf("%s: %+v", name, ev)
		}
	}
}

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
