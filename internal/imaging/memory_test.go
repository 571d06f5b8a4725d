package imaging

import (
	"bytes"
	"errors"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/millrace-data/millrace/internal/testdata"
)

// shelf is a Room that notes what it was asked for.
type shelf struct {
	asked, held int64
	err         error
}

func (s *shelf) Take(bytes int64) (func(), error) {
	s.asked, s.held = bytes, s.held+bytes
	return func() { s.held -= bytes }, s.err
}

// allocated is how many bytes are taken while do runs.
func allocated(do func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

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
			room := &shelf{}
			d := Decoder{Room: room}
			took := allocated(func() { _, _, _, err = d.AppendArray(nil, data, &Shape{Resize: "exact", Height: 64, Width: 64}, 0) })
			if err != nil {
				continue
			}
			const beside = 600 << 10 // tables of the decoders, buffers for reading, filters
			if took > room.asked+beside || room.held != 0 {
				t.Errorf("%s, %+v: %d bytes were asked for, %d were taken, %d are held", file, info, room.asked, took, room.held)
			}
			if pixels := int64(info.Width * info.Height); room.asked > 30*pixels+int64(len(data))+beside {
				t.Errorf("%s, %+v: %d bytes were asked for, %d a pixel", file, info, room.asked, room.asked/pixels)
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
		room := &shelf{}
		d := Decoder{Room: room}
		var err error
		var patches []byte
		took := allocated(func() { patches, _, err = d.AppendPatches(nil, data, g) }) - int64(len(patches))
		if err != nil || took > room.asked+600<<10 || took < room.asked*2/3 || room.asked != Memory(data, g) {
			t.Errorf("%s: %d bytes were asked for, %d by the header, %d were taken, %v", name, room.asked, Memory(data, g), took, err)
		}
		if cap(d.rgb)+cap(d.half) != 0 {
			t.Errorf("%s: %d bytes are kept that are not counted", name, cap(d.rgb)+cap(d.half))
		}
	}
}

// TestNoRoom: an error of the room is returned as it is, and nothing is decoded.
func TestNoRoom(t *testing.T) {
	room := &shelf{err: errors.New("the end")}
	d := Decoder{Room: room}
	var buf bytes.Buffer
	if err := png.Encode(&buf, photo(90, 60)); err != nil {
		t.Fatal(err)
	}
	_, _, one := d.AppendPatches(nil, buf.Bytes(), smallGeometry)
	_, _, _, two := d.AppendArray(nil, buf.Bytes(), &Shape{}, 0)
	for _, err := range []error{one, two, d.Verify(buf.Bytes())} {
		if err != room.err {
			t.Error(err)
		}
	}
	if d.rgb != nil || Memory([]byte("no picture"), smallGeometry) != 0 {
		t.Error("a picture was decoded without room")
	}
}
