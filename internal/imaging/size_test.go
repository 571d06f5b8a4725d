package imaging

import (
	"bytes"
	"encoding/binary"
	"image/color"
	"testing"
)

// small are pictures of 90 x 60 pixels in all formats, made here.
func small(t testing.TB) map[string][]byte {
	m := photo(90, 60)
	return map[string][]byte{
		"jpeg": encodeJPEG(t, m, 90),
		"png":  encodePNG(t, m),
		"gif":  encodeGIF(t, m),
		"bmp":  encodeBMP(t, m),
		"tiff": encodeTIFF(t, m),
		"webp": encodeWebP(90, 60, color.NRGBA{200, 100, 50, 255}),
	}
}

func TestSize(t *testing.T) {
	for format, data := range small(t) {
		want := Info{Width: 90, Height: 60, Format: format, Orientation: 1}
		if got, err := Size(data); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", format, got, err, want)
		}
		if n := testing.AllocsPerRun(10, func() { Size(data) }); n > 0 {
			t.Errorf("%s: Size allocates %v times", format, n)
		}
	}
}

func TestSizeIsTurned(t *testing.T) {
	pictures := small(t)
	for _, format := range []string{"jpeg", "png", "webp"} {
		for orientation := range 10 { // 0 and 9 are not valid: upright
			data := withEXIF(format, pictures[format], orientation)
			want := Info{Width: 90, Height: 60, Format: format, Orientation: max(orientation%9, 1)}
			if want.Orientation >= 5 {
				want.Width, want.Height = 60, 90
			}
			if got, err := Size(data); err != nil || got != want {
				t.Errorf("%s of orientation %d: %+v, %v; want %+v", format, orientation, got, err, want)
			}
		}
	}
	turned := tiffOf(binary.LittleEndian, []byte{1, 2, 3, 4, 5, 6}, field{256, 3, 2}, field{257, 3, 3}, field{258, 1, 8}, field{262, 3, 1}, field{274, 3, 8})
	if got, err := Size(turned); err != nil || got.Width != 3 || got.Orientation != 8 {
		t.Errorf("a turned TIFF: %+v, %v", got, err)
	}
}

// TestSizeReadsTheHeaderOnly cuts pictures where their data begins.
func TestSizeReadsTheHeaderOnly(t *testing.T) {
	pictures := small(t)
	for format, n := range map[string]int{"png": 33, "gif": 13, "webp": 30} {
		if _, err := Size(pictures[format][:n]); err != nil {
			t.Errorf("%s of %d bytes: %v", format, n, err)
		}
	}
	data := withEXIF("jpeg", pictures["jpeg"], 6)
	scan := bytes.Index(data, []byte{0xff, 0xda})
	if got, err := Size(append(data[:scan+14:scan+14], make([]byte, 20)...)); err != nil || got.Width != 60 {
		t.Errorf("jpeg cut after its header: %+v, %v", got, err)
	}
}

func TestSizeRefuses(t *testing.T) {
	pictures := small(t)
	changed := func(format string, at int, bytes ...byte) []byte {
		data := append([]byte(nil), pictures[format]...)
		copy(data[at:], bytes)
		return data
	}
	sof := bytes.Index(pictures["jpeg"], []byte{0xff, 0xc0})
	sides := func(order binary.ByteOrder, w, h uint32) []byte {
		b := make([]byte, 8)
		order.PutUint32(b, w)
		order.PutUint32(b[4:], h)
		return b
	}
	for _, c := range []struct {
		what string
		data []byte
		say  string
	}{
		{"nothing", nil, "0 bytes; supported are JPEG, PNG, GIF, WebP, BMP and TIFF"},
		{"text", []byte("a cat on a mat"), `begins with "a cat on a m"; supported are`},
		{"an error page", []byte("\n <!DOCTYPE html>"), "XML, SVG or HTML"},
		{"HEIC", []byte("\x00\x00\x00\x18ftypheic"), "HEIC"},
		{"a lone magic", []byte("\xff\xd8"), "cut off"},
		{"a PNG of 60000 x 60000", changed("png", 16, sides(binary.BigEndian, 60000, 60000)...), "60000 x 60000 pixels is too large"},
		{"a PNG of 2^32-1 columns", changed("png", 16, sides(binary.BigEndian, 1<<32-1, 1)...), "too large"},
		{"a PNG of 8000 x 8000 in few bytes", changed("png", 16, sides(binary.BigEndian, 8000, 8000)...), "can hold"},
		{"a PNG of 0 columns", changed("png", 16, sides(binary.BigEndian, 0, 5)...), "pixels is empty"},
		{"a PNG of color type 5", changed("png", 25, 5), "color type 5"},
		{"a PNG of 0 bits", changed("png", 24, 0), "0 bits"},
		{"a PNG without a header", changed("png", 12, 'I', 'D', 'A', 'T'), "header chunk"},
		{"a JPEG of 60000 x 60000", changed("jpeg", sof+5, 0xea, 0x60, 0xea, 0x60), "too large"},
		{"a JPEG of 8000 x 8000 in few bytes", changed("jpeg", sof+5, 0x1f, 0x40, 0x1f, 0x40), "can hold"},
		{"a JPEG of 0 rows", changed("jpeg", sof+5, 0, 0), "pixels is empty"},
		{"a JPEG of 12 bits", changed("jpeg", sof+4, 12), "12 bits"},
		{"an arithmetic JPEG", changed("jpeg", sof+1, 0xc9), "SOF9"},
		{"a JPEG without a frame", changed("jpeg", sof+1, 0xfe), "without a frame"},
		{"a JPEG cut in its header", pictures["jpeg"][:sof+6], "cut off"},
		{"a GIF of 65535 x 65535", changed("gif", 6, 255, 255, 255, 255), "too large"},
		{"a WebP of 16384 x 16384", changed("webp", 21, 255, 255, 255, 0xf), "too large"},
		{"a WebP of 8192 x 8192 in few bytes", changed("webp", 21, 0xff, 0xdf, 0xff, 0x17), "can hold"},
		{"an animated WebP", riffFile(riffChunk("VP8X", []byte{2, 0, 0, 0, 89, 0, 0, 59, 0, 0})), "animated WebP"},
		{"a WebP of sound", riffFile(riffChunk("WAVE", make([]byte, 20))), `chunk "WAVE"`},
		{"a BMP of 2^31 rows", changed("bmp", 18, sides(binary.LittleEndian, 1, 1<<31)...), "too large"},
		{"a BMP of 8000 x 8000 in few bytes", changed("bmp", 18, sides(binary.LittleEndian, 8000, 8000)...), "can hold"},
		{"a BMP of OS/2", changed("bmp", 14, 12), "header of 12 bytes"},
		{"a TIFF without a directory", []byte("II*\x00\xff\xff\xff\xff"), "no width or height"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := Size(c.data)
			refused(t, err, c.say)
			_, err = Decode(c.data, qwen)
			refused(t, err, c.say)
		})
	}
}

// TestBrokenEXIF checks that a picture with a damaged orientation is still read.
func TestBrokenEXIF(t *testing.T) {
	good := exifBlock(binary.LittleEndian, 6)
	for cut := range good {
		for _, at := range []int{4, 5, 6, 7, 8, 10, 14} {
			bad := append([]byte(nil), good[:cut]...)
			if at < len(bad) {
				bad[at] ^= 0xf0
			}
			if o := orientationOf(bad); o != 1 && o != 6 {
				t.Fatalf("EXIF of %d bytes, byte %d changed: orientation %d", cut, at, o)
			}
		}
	}
	if o := orientationOf(good[:22]); o != 6 {
		t.Errorf("orientation %d of a directory without an end; want 6", o)
	}
	if o := orientationOf(append([]byte("Exif\x00\x00"), good...)); o != 6 {
		t.Errorf("orientation %d behind a JPEG's mark; want 6", o)
	}
}
