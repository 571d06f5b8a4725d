package imaging

import (
	"fmt"
	"image"
	"image/color"
)

// fill writes a decoded picture to d.rgb, which has the size of canvas. The rest of
// the canvas is white. With studio, luma and chroma have the
// narrow range of video, as in WebP.
func (d *Decoder) fill(m image.Image, canvas image.Rectangle, studio bool) error {
	b := m.Bounds()
	if b != canvas {
		for i := range d.rgb {
			d.rgb[i] = 255
		}
	}
	row := rowReader(m, b, &d.chroma, studio)
	if row == nil {
		return fmt.Errorf("a decoder returned a %T, which cannot be converted to RGB", m)
	}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		at := 3 * (y*canvas.Dx() + b.Min.X)
		row(d.rgb[at:at+3*b.Dx()], y)
	}
	return nil
}

// rowReader returns the function that writes row y of m as RGB.
func rowReader(m image.Image, b image.Rectangle, c *chroma, studio bool) func(dst []byte, y int) {
	switch m := m.(type) {
	case *image.YCbCr:
		return func(dst []byte, y int) { c.row(dst, m, y, studio) }
	case *image.NYCbCrA:
		return func(dst []byte, y int) {
			c.row(dst, &m.YCbCr, y, studio)
			for x, a := range m.A[m.AOffset(b.Min.X, y):][:b.Dx()] {
				blend(dst[3*x:3*x+3], a)
			}
		}
	case *image.Gray:
		return func(dst []byte, y int) {
			for x, v := range m.Pix[m.PixOffset(b.Min.X, y):][:b.Dx()] {
				dst[3*x], dst[3*x+1], dst[3*x+2] = v, v, v
			}
		}
	case *image.Paletted:
		return palettedRow(m, b)
	case *image.NRGBA:
		return func(dst []byte, y int) {
			src := m.Pix[m.PixOffset(b.Min.X, y):]
			for x := range b.Dx() {
				p := dst[3*x : 3*x+3]
				copy(p, src[4*x:])
				blend(p, src[4*x+3])
			}
		}
	case *image.RGBA: // premultiplied
		return func(dst []byte, y int) {
			src := m.Pix[m.PixOffset(b.Min.X, y):]
			for x := range b.Dx() {
				white := 255 - int(src[4*x+3])
				for i := range 3 {
					dst[3*x+i] = byte(min(int(src[4*x+i])+white, 255))
				}
			}
		}
	case *image.CMYK:
		return func(dst []byte, y int) {
			src := m.Pix[m.PixOffset(b.Min.X, y):]
			for x := range b.Dx() {
				light := 255 - int(src[4*x+3])
				for i := range 3 {
					dst[3*x+i] = byte(light - (light*int(src[4*x+i])+127)/255)
				}
			}
		}
	case image.RGBA64Image: // 16 bits
		return func(dst []byte, y int) {
			for x := range b.Dx() {
				c := m.RGBA64At(b.Min.X+x, y)
				dst[3*x], dst[3*x+1], dst[3*x+2] = overWhite(c)
			}
		}
	}
	return nil
}

// palettedRow looks colors up. Decoders refuse an index beyond the palette or extend it;
// the table covers all indexes, and the others are white.
func palettedRow(m *image.Paletted, b image.Rectangle) func(dst []byte, y int) {
	var table [256][3]byte
	for i := range table {
		table[i] = [3]byte{255, 255, 255}
	}
	for i, c := range m.Palette[:min(len(m.Palette), len(table))] {
		n := color.NRGBAModel.Convert(c).(color.NRGBA)
		table[i] = [3]byte{n.R, n.G, n.B}
		blend(table[i][:], n.A)
	}
	return func(dst []byte, y int) {
		for x, v := range m.Pix[m.PixOffset(b.Min.X, y):][:b.Dx()] {
			copy(dst[3*x:3*x+3], table[v][:])
		}
	}
}

// blend blends a color with alpha a over white, rounded to the nearest.
func blend(rgb []byte, a byte) {
	if a == 255 {
		return
	}
	for i, v := range rgb {
		rgb[i] = byte((int(v)*int(a) + 255*(255-int(a)) + 127) / 255)
	}
}

// overWhite blends a premultiplied color of 16 bits over white and keeps the high bytes.
func overWhite(c color.RGBA64) (r, g, b byte) {
	white := 0xffff - uint32(c.A)
	high := func(v uint16) byte { return byte(min(uint32(v)+white, 0xffff) >> 8) }
	return high(c.R), high(c.G), high(c.B)
}
