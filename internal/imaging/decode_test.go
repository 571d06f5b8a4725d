package imaging

import (
	"bytes"
	"encoding/hex"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"runtime"
	"slices"
	"testing"
)

// whole decodes a picture under a geometry that does not resize it: patches of one pixel.
func whole(t testing.TB, data []byte) (rgb []byte, width, height int) {
	t.Helper()
	info, err := Size(data)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode(data, Geometry{Patch: 1, Merge: 1, MinPixels: 0, MaxPixels: 1 << 24})
	if err != nil {
		t.Fatal(err)
	}
	if p.Grid.W != info.Width || p.Grid.H != info.Height {
		t.Fatalf("grid of single pixels is %v for %+v", p.Grid, info)
	}
	return p.Patches, info.Width, info.Height
}

// expect compares a whole picture with a function of its places.
func expect(t *testing.T, data []byte, want func(x, y int) [3]byte) {
	t.Helper()
	rgb, width, height := whole(t, data)
	for y := range height {
		for x := range width {
			if got := [3]byte(rgb[3*(y*width+x):]); got != want(x, y) {
				t.Fatalf("pixel (%d, %d) of %d x %d is %v, want %v", x, y, width, height, got, want(x, y))
			}
		}
	}
}

// TestColors decodes each kind of picture without resizing it.
func TestColors(t *testing.T) {
	r := image.Rect(0, 0, 20, 16)
	over := func(v, a int) byte { return byte((v*a + 255*(255-a) + 127) / 255) }
	t.Run("gray", func(t *testing.T) {
		m := image.NewGray(r)
		for i := range m.Pix {
			m.Pix[i] = byte(7 * i)
		}
		expect(t, encodePNG(t, m), func(x, y int) [3]byte { v := m.GrayAt(x, y).Y; return [3]byte{v, v, v} })
	})
	t.Run("16 bits", func(t *testing.T) {
		m := image.NewRGBA64(r)
		for i := range m.Pix {
			m.Pix[i] = byte(11 * i)
		}
		for i := 6; i < len(m.Pix); i += 8 {
			m.Pix[i], m.Pix[i+1] = 255, 255
		}
		want := func(x, y int) [3]byte { p := m.Pix[m.PixOffset(x, y):]; return [3]byte{p[0], p[2], p[4]} }
		expect(t, encodePNG(t, m), want)
		expect(t, encodeTIFF(t, m), want)
	})
	t.Run("alpha", func(t *testing.T) {
		m := image.NewNRGBA(r)
		for i := range m.Pix {
			m.Pix[i] = byte(13 * i)
		}
		expect(t, encodePNG(t, m), func(x, y int) [3]byte {
			c := m.NRGBAAt(x, y)
			return [3]byte{over(int(c.R), int(c.A)), over(int(c.G), int(c.A)), over(int(c.B), int(c.A))}
		})
	})
	t.Run("palette with alpha", func(t *testing.T) {
		m := image.NewPaletted(r, color.Palette{color.NRGBA{10, 20, 30, 255}, color.NRGBA{200, 100, 0, 128}, color.NRGBA{}})
		for i := range m.Pix {
			m.Pix[i] = byte(i % 3)
		}
		table := [][3]byte{{10, 20, 30}, {over(200, 128), over(100, 128), over(0, 128)}, {255, 255, 255}}
		expect(t, encodePNG(t, m), func(x, y int) [3]byte { return table[m.ColorIndexAt(x, y)] })
	})
	t.Run("webp with alpha", func(t *testing.T) {
		data := encodeWebP(20, 16, color.NRGBA{200, 100, 50, 51})
		expect(t, data, func(int, int) [3]byte { return [3]byte{over(200, 51), over(100, 51), over(50, 51)} })
	})
	t.Run("bmp", func(t *testing.T) {
		m := photo(20, 16)
		expect(t, encodeBMP(t, m), func(x, y int) [3]byte { return [3]byte(m.Pix[m.PixOffset(x, y):]) })
	})
	t.Run("a frame on the screen", func(t *testing.T) {
		frame := image.NewPaletted(image.Rect(5, 4, 9, 11), color.Palette{color.RGBA{1, 2, 3, 255}})
		later := image.NewPaletted(image.Rect(0, 0, 20, 16), color.Palette{color.RGBA{9, 9, 9, 255}})
		var b bytes.Buffer
		if err := gif.EncodeAll(&b, &gif.GIF{
			Image: []*image.Paletted{frame, later}, Delay: []int{1, 1},
			Config: image.Config{Width: 20, Height: 16},
		}); err != nil {
			t.Fatal(err)
		}
		expect(t, b.Bytes(), func(x, y int) [3]byte {
			if (image.Point{x, y}).In(frame.Rect) {
				return [3]byte{1, 2, 3}
			}
			return [3]byte{255, 255, 255}
		})
	})
}

// TestCMYK converts without a file: no encoder here writes one.
func TestCMYK(t *testing.T) {
	m := image.NewCMYK(image.Rect(0, 0, 16, 16))
	for i := range m.Pix {
		m.Pix[i] = byte(31 * i)
	}
	d := Decoder{rgb: make([]byte, 3*16*16)}
	if err := d.fill(m, m.Rect, false); err != nil {
		t.Fatal(err)
	}
	for i := range 256 {
		c, k := float64(m.Pix[4*i+1]), float64(m.Pix[4*i+3])
		want := (255 - k) * (255 - c) / 255 // of magenta, to green
		if got := float64(d.rgb[3*i+1]); got < want-0.51 || got > want+0.51 {
			t.Fatalf("magenta %v with black %v gives %v of green, want %.2f", c, k, got, want)
		}
	}
}

// TestLuma compares the conversion of JPEG and WebP with its definition in fractions.
func TestLuma(t *testing.T) {
	near := func(what string, got [3]byte, want [3]float64) {
		for i, v := range want {
			if v = min(max(v, 0), 255); float64(got[i]) < v-0.52 || float64(got[i]) > v+0.52 {
				t.Fatalf("%s: %v, want %.2f", what, got, want)
			}
		}
	}
	var got [3]byte
	for y := range 256 {
		for c := range 256 {
			l, b, r := float64(y), float64(c-128), float64((c*7+y)%256-128)
			got[0], got[1], got[2] = fullRGB(int32(y), int32(c), int32((c*7+y)%256))
			near("full range", got, [3]float64{l + 1.402*r, l - 0.344136*b - 0.714136*r, l + 1.772*b})
			got[0], got[1], got[2] = studioRGB(int32(y), int32(c), int32((c*7+y)%256))
			l = (l - 16) * 255 / 219
			b, r = b*255/224, r*255/224
			near("studio range", got, [3]float64{l + 1.402*r, l - 0.344136*b - 0.714136*r, l + 1.772*b})
		}
	}
}

// TestChroma compares upsampling with its definition: 3/4 of a sample and 1/4 of the
// next nearest, along each side that has half.
func TestChroma(t *testing.T) {
	for ratio, half := range map[image.YCbCrSubsampleRatio][2]int{
		image.YCbCrSubsampleRatio444: {0, 0}, image.YCbCrSubsampleRatio422: {1, 0},
		image.YCbCrSubsampleRatio440: {0, 1}, image.YCbCrSubsampleRatio420: {1, 1},
		image.YCbCrSubsampleRatio411: {2, 0},
	} {
		for _, size := range []image.Point{{21, 13}, {8, 8}, {5, 1}, {6, 2}} {
			m := image.NewYCbCr(image.Rectangle{Max: size}, ratio)
			for i := range m.Cb {
				m.Cb[i], m.Cr[i] = byte(i*i*5), byte(255-i*37)
			}
			var c chroma
			for y := range size.Y {
				cb, cr := c.rows(m, y)
				for x := range size.X {
					for i, plane := range [][]byte{m.Cb, m.Cr} {
						got := float64([][]byte{cb, cr}[i][x])
						want := triangle(plane, m.CStride, size, x, y, half)
						if got < want-0.57 || got > want+0.57 {
							t.Fatalf("%v %v, plane %d at (%d, %d): %v, want %.3f", ratio, size, i, x, y, got, want)
						}
					}
				}
			}
		}
	}
}

func triangle(plane []byte, stride int, size image.Point, x, y int, half [2]int) float64 {
	at := func(x, y int) float64 { return float64(plane[y*stride+x]) }
	if half[0] == 2 {
		return at(x/4, y)
	}
	pair := func(i, n, half int) (cur, near int) {
		if half == 0 {
			return i, i
		}
		return i / 2, min(max(0, i/2+i%2*2-1), (n-1)/2)
	}
	cx, nx := pair(x, size.X, half[0])
	cy, ny := pair(y, size.Y, half[1])
	return (9*at(cx, cy) + 3*at(nx, cy) + 3*at(cx, ny) + at(nx, ny)) / 16
}

// TestDecodeIsDecodeThenResize compares with the simplest composition: the standard
// library's pixels, turned, resized and cut by indexes.
func TestDecodeIsDecodeThenResize(t *testing.T) {
	g := Geometry{Patch: 4, Merge: 2, MinPixels: 40 * 40, MaxPixels: 64 * 64}
	source := photo(90, 60)
	for orientation := 1; orientation <= 8; orientation++ {
		data := withEXIF("png", encodePNG(t, source), orientation)
		turned := turn(source, orientation)
		grid, err := g.Grid(turned.Rect.Dx(), turned.Rect.Dy())
		if err != nil {
			t.Fatal(err)
		}
		var d Decoder
		for i := 0; i < len(turned.Pix); i += 4 {
			d.rgb = append(d.rgb, turned.Pix[i:i+3]...)
		}
		width, height := grid.W*g.Patch, grid.H*g.Patch
		d.resizeColumns(bicubic, turned.Rect.Dx(), turned.Rect.Dy(), width)
		d.resizeRows(bicubic, width, turned.Rect.Dy(), height)
		got, err := Decode(data, g)
		if err != nil || got.Grid != grid {
			t.Fatal(got, err)
		}
		want := byIndex(d.rgb, g, grid)
		if !slices.Equal(got.Patches, want) {
			t.Errorf("orientation %d: patches are not those of the turned picture", orientation)
		}
	}
}

// turn maps the pixels of an orientation by EXIF's definition: where row 0 and column
// 0 of the stored picture are seen.
func turn(m *image.RGBA, orientation int) *image.RGBA {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	to := map[int]func(x, y int) (int, int){
		1: func(x, y int) (int, int) { return x, y },                 // top, left
		2: func(x, y int) (int, int) { return w - 1 - x, y },         // top, right
		3: func(x, y int) (int, int) { return w - 1 - x, h - 1 - y }, // bottom, right
		4: func(x, y int) (int, int) { return x, h - 1 - y },         // bottom, left
		5: func(x, y int) (int, int) { return y, x },                 // left, top
		6: func(x, y int) (int, int) { return h - 1 - y, x },         // right, top
		7: func(x, y int) (int, int) { return h - 1 - y, w - 1 - x }, // right, bottom
		8: func(x, y int) (int, int) { return y, w - 1 - x },         // left, bottom
	}[orientation]
	if orientation >= 5 {
		w, h = h, w
	}
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	w, h = m.Rect.Dx(), m.Rect.Dy()
	for y := range h {
		for x := range w {
			tx, ty := to(x, y)
			out.SetRGBA(tx, ty, m.RGBAAt(x, y))
		}
	}
	return out
}

// byIndex cuts a picture as AppendPatches documents.
func byIndex(rgb []byte, g Geometry, grid Grid) []byte {
	var out []byte
	m, p, width := g.Merge, g.Patch, grid.W*g.Patch
	for blockRow := range grid.H / m {
		for blockCol := range grid.W / m {
			for row := range m {
				for col := range m {
					for channel := range 3 {
						for y := range p {
							for x := range p {
								py, px := (blockRow*m+row)*p+y, (blockCol*m+col)*p+x
								out = append(out, rgb[3*(py*width+px)+channel])
							}
						}
					}
				}
			}
		}
	}
	return out
}

// TestJPEGIsNearStd compares with the standard library's own conversion: luma is the
// same, and chroma differs by its interpolation alone.
func TestJPEGIsNearStd(t *testing.T) {
	data := encodeJPEG(t, photo(96, 64), 95)
	m, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	rgba := image.NewRGBA(m.Bounds())
	draw.Draw(rgba, rgba.Rect, m, image.Point{}, draw.Src)
	rgb, width, height := whole(t, data)
	sum := 0
	for i := range width * height {
		for c := range 3 {
			diff := int(rgb[3*i+c]) - int(rgba.Pix[4*i+c])
			sum += max(diff, -diff)
		}
	}
	if mean := float64(sum) / float64(len(rgb)); mean > 4 {
		t.Errorf("mean difference to the standard library's RGB is %.2f levels", mean)
	}
}

// TestDecoderIsReused checks that earlier pictures have no effect, and that dst is
// appended to.
func TestDecoderIsReused(t *testing.T) {
	var d Decoder
	pictures := small(t)
	pictures["turned"] = withEXIF("jpeg", pictures["jpeg"], 6)
	pictures["large"] = encodeJPEG(t, photo(700, 300), 90)
	dst := []byte("before")
	for _, name := range []string{"large", "png", "turned", "gif", "webp", "large", "tiff", "bmp", "jpeg"} {
		alone, err := Decode(pictures[name], qwen)
		if err != nil {
			t.Fatal(name, err)
		}
		n := len(dst)
		var grid Grid
		if dst, grid, err = d.AppendPatches(dst, pictures[name], qwen); err != nil {
			t.Fatal(name, err)
		}
		if grid != alone.Grid || !bytes.Equal(dst[n:], alone.Patches) || len(alone.Patches) != grid.Patches()*qwen.PatchBytes() {
			t.Errorf("%s: other patches than alone", name)
		}
		before := string(dst)
		if dst, _, err = d.AppendPatches(dst, pictures[name][:len(pictures[name])/2], qwen); err == nil || string(dst) != before {
			t.Errorf("%s: cut off, the error is %v and dst changed", name, err)
		}
	}
	if string(dst[:6]) != "before" {
		t.Error("dst was overwritten")
	}
}

// TestFingerprint pins the pixels of a JPEG, with revision. If it fails after a change of Go's release,
// image/jpeg rounds differently there: running jobs must keep the release they began with.
func TestFingerprint(t *testing.T) {
	const want = "244789ec9fca057a5779992b839a40a839681ee31ea1be9b881f3a4ef276e755"
	got := Fingerprint()
	if hex.EncodeToString(got[:]) != want {
		t.Errorf("fingerprint is %x under %s, was %s: JPEG pictures give other pixels", got, runtime.Version(), want)
	}
}
