//go:build !race

// The race detector allocates for itself, so what is compared with the heap here is built without it.

package imaging

import (
	"bytes"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace-data/millrace/internal/testdata"
)

// TestMemory decodes pictures of all formats, and compares what that takes with what was asked for before.
func TestMemory(t *testing.T) {
	dir := filepath.Join(testdata.Dir(t), "images")
	seen := map[string]int{}
	for _, set := range []string{"odd-formats", "scikit-image", "exif-orientation"} {
		files, _ := filepath.Glob(filepath.Join(dir, set, "*"))
		for i, file := range files {
			data, err := os.ReadFile(file)
			info, wrong := Size(data)
			if err != nil || wrong != nil || i%step > 0 {
				continue
			}
			room := &testdata.Room{}
			d := Decoder{Room: room}
			took := testdata.Allocated(func() { _, _, _, err = d.AppendArray(nil, data, &Shape{Resize: "exact", Height: 64, Width: 64}, 0) })
			if err != nil {
				continue
			}
			const beside = 600 << 10 // tables of the decoders, buffers for reading, filters
			if took > room.Asked+beside || room.Held != 0 {
				t.Errorf("%s, %+v: %d bytes were asked for, %d were taken, %d are held", file, info, room.Asked, took, room.Held)
			}
			if pixels := int64(info.Width * info.Height); room.Asked > 30*pixels+int64(len(data))+beside {
				t.Errorf("%s, %+v: %d bytes were asked for, %d a pixel", file, info, room.Asked, room.Asked/pixels)
			}
			seen[info.Format]++
		}
	}
	for _, f := range formats {
		if seen[f.name] == 0 {
			t.Errorf("no picture in %s was decoded: %v", f.name, seen)
		}
	}
}

// TestMemoryOfPhotos: what is asked for is not much more than what is taken where that is large.
func TestMemoryOfPhotos(t *testing.T) {
	m := photo(1500, 1000)
	for name, data := range map[string][]byte{
		"jpeg": encodeJPEG(t, m, 90), "png": encodePNG(t, m), "bmp": encodeBMP(t, m),
		"turned": withEXIF("jpeg", encodeJPEG(t, m, 90), 6),
	} {
		g := Geometry{Patch: 14, Merge: 2, MinPixels: 56 * 56, MaxPixels: 14 * 14 * 4 * 1280}
		room := &testdata.Room{}
		d := Decoder{Room: room}
		var err error
		var patches []byte
		took := testdata.Allocated(func() { patches, _, err = d.AppendPatches(nil, data, g) }) - int64(len(patches))
		if err != nil || took > room.Asked+600<<10 || took < room.Asked*2/3 || room.Asked != Memory(data, g) {
			t.Errorf("%s: %d bytes were asked for, %d by the header, %d were taken, %v", name, room.Asked, Memory(data, g), took, err)
		}
		if cap(d.rgb)+cap(d.half) != 0 {
			t.Errorf("%s: %d bytes are kept that are not counted", name, cap(d.rgb)+cap(d.half))
		}
	}
}

// TestNoRoom: an error of the room is returned as it is, and nothing is decoded.
func TestNoRoom(t *testing.T) {
	room := &testdata.Room{Err: errors.New("the end")}
	d := Decoder{Room: room}
	var buf bytes.Buffer
	if err := png.Encode(&buf, photo(90, 60)); err != nil {
		t.Fatal(err)
	}
	_, _, one := d.AppendPatches(nil, buf.Bytes(), smallGeometry)
	_, _, _, two := d.AppendArray(nil, buf.Bytes(), &Shape{}, 0)
	for _, err := range []error{one, two, d.Verify(buf.Bytes())} {
		if err != room.Err {
			t.Error(err)
		}
	}
	if d.rgb != nil || Memory([]byte("no picture"), smallGeometry) != 0 {
		t.Error("a picture was decoded without room")
	}
}
