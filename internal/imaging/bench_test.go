package imaging

import (
	"bytes"
	"image"
	"image/jpeg"
	"testing"
)

// BenchmarkSize reads headers: ns per picture.
func BenchmarkSize(b *testing.B) {
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"jpeg", encodeJPEG(b, photo(640, 480), 90)},
		{"jpeg with EXIF", withEXIF("jpeg", encodeJPEG(b, photo(640, 480), 90), 6)},
		{"png", encodePNG(b, photo(640, 480))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Size(c.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAppendPatches decodes, resizes and cuts pictures. MB/s are of encoded
// bytes; ms/Mpx of the picture's pixels.
func BenchmarkAppendPatches(b *testing.B) {
	qwen := Geometry{Patch: 14, Merge: 2, MinPixels: 56 * 56, MaxPixels: 28 * 28 * 1280}
	small := Geometry{Patch: 14, Merge: 2, MinPixels: 56 * 56, MaxPixels: 224 * 224}
	for _, c := range []struct {
		name          string
		width, height int
		g             Geometry
		orientation   int
	}{
		{"640x480", 640, 480, qwen, 1},
		{"640x480 to 224x224", 640, 480, small, 1},
		{"2000x1500", 2000, 1500, qwen, 1},
		{"2000x1500 turned", 2000, 1500, qwen, 6},
	} {
		b.Run(c.name, func(b *testing.B) {
			data := withEXIF("jpeg", encodeJPEG(b, photo(c.width, c.height), 90), c.orientation)
			var d Decoder
			var dst []byte
			var err error
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if dst, _, err = d.AppendPatches(dst[:0], data, c.g); err != nil {
					b.Fatal(err)
				}
			}
			perPicture := b.Elapsed().Seconds() * 1e3 / float64(b.N)
			b.ReportMetric(perPicture*1e6/float64(c.width*c.height), "ms/Mpx")
		})
	}
}

// BenchmarkStdDecode is the standard library's part of it.
func BenchmarkStdDecode(b *testing.B) {
	data := encodeJPEG(b, photo(640, 480), 90)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := jpeg.Decode(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/(640*480), "ms/Mpx")
}

// BenchmarkResize is the resampling alone.
func BenchmarkResize(b *testing.B) {
	for _, c := range []struct {
		name    string
		in, out image.Point
	}{
		{"640x480 to 644x476", image.Pt(640, 480), image.Pt(644, 476)},
		{"2000x1500 to 1148x868", image.Pt(2000, 1500), image.Pt(1148, 868)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var d Decoder
			rgb := photo(c.in.X, c.in.Y)
			for b.Loop() {
				d.rgb = sized(d.rgb, 3*c.in.X*c.in.Y)
				if err := d.fill(rgb, rgb.Bounds(), false); err != nil {
					b.Fatal(err)
				}
				d.resizeColumns(bicubic, c.in.X, c.in.Y, c.out.X)
				d.resizeRows(bicubic, c.out.X, c.in.Y, c.out.Y)
			}
			b.ReportMetric(b.Elapsed().Seconds()*1e9/float64(b.N)/float64(c.in.X*c.in.Y), "ms/Mpx")
		})
	}
}
