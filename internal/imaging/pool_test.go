package imaging

import (
	"bytes"
	"context"
	"crypto/sha256"
	"image"
	"image/jpeg"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

var smallGeometry = Geometry{Patch: 4, Merge: 2, MinPixels: 0, MaxPixels: 1024}

// pictureOf returns a picture as planned.
func pictureOf(t *testing.T, width, height int) Picture {
	t.Helper()
	m := image.NewGray(image.Rect(0, 0, width, height))
	for i := range m.Pix {
		m.Pix[i] = byte(i * 7)
	}
	var buf bytes.Buffer
	if err := jpeg.Encode(&buf, m, nil); err != nil {
		t.Fatal(err)
	}
	grid, err := smallGeometry.Grid(width, height)
	if err != nil {
		t.Fatal(err)
	}
	data := buf.Bytes()
	return Picture{Data: data, SHA: sha256.Sum256(data), Grid: grid, Origin: "here", Patches: make([]byte, 0, grid.Patches()*smallGeometry.PatchBytes())}
}

// TestDecode: many pictures at a time decode as each does alone, in the given memory.
func TestDecode(t *testing.T) {
	pool := NewPool(3, nil)
	var list []Picture
	for i := range 40 {
		list = append(list, pictureOf(t, 5+i, 50-i))
	}
	rooms := make([]*byte, len(list))
	for i := range list {
		rooms[i] = &list[i].Patches[:1][0]
	}
	if err := pool.Decode(t.Context(), list, smallGeometry); err != nil {
		t.Fatal(err)
	}
	for i := range list {
		want, err := Decode(list[i].Data, smallGeometry)
		if err != nil || !bytes.Equal(list[i].Patches, want.Patches) || &list[i].Patches[0] != rooms[i] {
			t.Errorf("picture %d: %d bytes, %v; want %d in place", i, len(list[i].Patches), err, len(want.Patches))
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	truncated, swapped, other, narrow := pictureOf(t, 30, 20), pictureOf(t, 30, 20), pictureOf(t, 30, 20), pictureOf(t, 30, 20)
	truncated.Data = truncated.Data[:len(truncated.Data)*2/3]
	truncated.SHA = sha256.Sum256(truncated.Data)
	swapped.SHA[0]++
	other.Grid = Grid{H: 2, W: 2}
	narrow.Patches = narrow.Patches[:0:10]
	for _, test := range []struct {
		picture Picture
		class   fault.Class
		want    string
	}{
		{truncated, fault.User, "here: decoding a jpeg picture of 30 x 20 pixels: invalid JPEG format: short Huffman data"},
		{truncated, fault.User, "with `millrace ban` or in a file for --changes, and resume from the last token; or restart the job from the first step with `verify: true` in the image step"},
		{swapped, fault.Bug, "here: the image is not the one that was planned"},
		{other, fault.Bug, "here: its grid is {4 8}, planned was {2 2}"},
		{narrow, fault.Bug, "room for 10 bytes"},
	} {
		list := []Picture{pictureOf(t, 9, 9), test.picture, pictureOf(t, 9, 9)}
		err := NewPool(1, nil).Decode(t.Context(), list, smallGeometry)
		if err == nil || fault.ClassOf(err) != test.class || !strings.Contains(err.Error(), test.want) {
			t.Errorf("class %v: %v; want %v: %s", fault.ClassOf(err), err, test.class, test.want)
		}
	}
}

// TestDecodersComeBack: errors and cancelled calls return their decoders.
func TestDecodersComeBack(t *testing.T) {
	pool := NewPool(2, nil)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 5 {
		bad := pictureOf(t, 9, 9)
		bad.SHA[3]++
		if pool.Decode(t.Context(), []Picture{bad, bad, bad}, smallGeometry) == nil {
			t.Error("a wrong picture was decoded")
		}
		_ = pool.Decode(gone, []Picture{pictureOf(t, 9, 9)}, smallGeometry)
	}
	if n := len(pool.free); n != 2 {
		t.Errorf("%d decoders of 2 are left", n)
	}
}
