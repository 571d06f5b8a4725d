package imaging

import (
	"fmt"
	"image"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/testdata"
)

// decodeBounded decodes, and checks that an error is a user error and that memory is
// bounded by the header: 30 bytes a pixel, some for each byte of the file,
// and a constant for the decoder and a grid of qwen.
func decodeBounded(t testing.TB, what string, data []byte) (took uint64, err error) {
	t.Helper()
	info, sizeErr := Size(data)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = Decode(data, qwen)
	runtime.ReadMemStats(&after)
	bound := uint64(30*info.Width*info.Height + 64*len(data) + 24<<20)
	if sizeErr != nil {
		bound = 1 << 16
		if err == nil {
			t.Fatalf("%s: decoded, but it has no size: %v", what, sizeErr)
		}
	}
	took = after.TotalAlloc - before.TotalAlloc
	if took > bound {
		t.Errorf("%s: took %d bytes for %d bytes of %+v; the bound is %d", what, took, len(data), info, bound)
	}
	if err != nil && (fault.ClassOf(err) != fault.User || len(err.Error()) > 400) {
		t.Errorf("%s: error of class %v: %v", what, fault.ClassOf(err), err)
	}
	return took, err
}

// TestTruncated cuts pictures at every byte of their first part, and then at some bytes.
// Verify finds the same damage.
func TestTruncated(t *testing.T) {
	for format, data := range small(t) {
		for n := 0; n < len(data); n += 1 + n/16 {
			_, err := decodeBounded(t, format, data[:n:n])
			if err == nil && len(data)-n > 16 { // some end with bytes that no decoder needs
				t.Errorf("%s: %d of %d bytes were decoded", format, n, len(data))
			}
			if verify := new(Decoder).Verify(data[:n:n]); fmt.Sprint(verify) != fmt.Sprint(err) {
				t.Errorf("%s: %d of %d bytes: Verify says %v, Decode %v", format, n, len(data), verify, err)
			}
		}
	}
}

// TestChanged changes bytes: nothing may panic or take memory without bound.
func TestChanged(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for format, data := range small(t) {
		for range 80 / step {
			bad := append([]byte(nil), data...)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(bad))
				if r.IntN(2) == 0 {
					at = r.IntN(min(len(bad), 64)) // headers
				}
				bad[at] = byte(r.IntN(256))
			}
			decodeBounded(t, format, bad)
		}
	}
}

// TestSizeIsChecked gives a GIF a screen smaller than its frame, and a WebP another
// canvas than its picture's.
func TestSizeIsChecked(t *testing.T) {
	pictures := small(t)
	pictures["gif"][6] = 50
	_, err := Decode(pictures["gif"], qwen)
	refused(t, err, "decoding a gif picture of 50 x 60 pixels: gif: frame bounds")
	webp := withEXIF("webp", pictures["webp"], 1)
	webp[24] = 40 // VP8X canvas
	_, err = Decode(webp, qwen)
	refused(t, err, "decoding a webp picture of 41 x 60 pixels")

	// No decoder here returns another size than its header; one that did is noticed.
	lying := format{name: "png", decode: func([]byte) (image.Image, error) { return photo(91, 60), nil }}
	err = new(Decoder).load(nil, &lying, Info{Width: 90, Height: 60})
	refused(t, err, "header says 90 x 60 pixels, but its data has 91 x 60")
}

// TestPanicIsAnError uses a decoder that panics.
func TestPanicIsAnError(t *testing.T) {
	f := formats[0]
	f.decode = nil
	_, err := f.safely([]byte("x"))
	if err == nil || !strings.Contains(err.Error(), "the decoder panicked: runtime error") {
		t.Errorf("error %v", err)
	}
}

// TestCorrupt decodes pictures that broke other decoders.
func TestCorrupt(t *testing.T) {
	dir := testdata.Dir(t)
	decoded, refusals := 0, 0
	most, by := uint64(0), ""
	for _, pattern := range []string{"go-fuzz/jpeg/*", "go-fuzz/png/*", "go-fuzz/gif/*", "go-fuzz/webp/*", "images/pillow/*"} {
		files, err := filepath.Glob(filepath.Join(dir, "corrupt", pattern))
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for i := 0; i < len(files); i += step {
			file := files[i]
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			took, err := decodeBounded(t, file, data)
			if err == nil {
				decoded++
			} else {
				refusals++
			}
			if took > most {
				most, by = took, file
			}
		}
	}
	t.Logf("%d decoded, %d refused; %s took %d bytes", decoded, refusals, by, most)
	if most > 16<<20 {
		t.Errorf("%s took %d bytes", by, most)
	}
	if decoded < 50/step || refusals < 100/step {
		t.Errorf("%d decoded and %d refused: the corpus has both", decoded, refusals)
	}
}

// FuzzDecode looks for panics and for errors that do not blame the picture.
func FuzzDecode(f *testing.F) {
	for _, data := range small(f) {
		f.Add(data)
	}
	g := Geometry{Patch: 14, Merge: 2, MinPixels: 0, MaxPixels: 56 * 56}
	f.Fuzz(func(t *testing.T, data []byte) {
		info, err := Size(data)
		if err == nil && info.Width*info.Height > 1<<20 {
			return // slow, not wrong
		}
		p, err := Decode(data, g)
		switch {
		case err != nil && fault.ClassOf(err) != fault.User:
			t.Errorf("class %v: %v", fault.ClassOf(err), err)
		case err == nil && len(p.Patches) != p.Grid.Patches()*g.PatchBytes():
			t.Errorf("%d bytes for %v", len(p.Patches), p.Grid)
		}
	})
}
