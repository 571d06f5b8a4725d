package imaging

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
)

// photo is a picture with slopes, edges and noise, the same each time.
func photo(width, height int) *image.RGBA {
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	state := uint32(1)
	for y := range height {
		for x := range width {
			state = state*1664525 + 1013904223
			noise := int(state >> 28)
			v := (x*5 + y*3) / 4
			if (x/24+y/40)%3 == 0 {
				v = 255 - v
			}
			m.SetRGBA(x, y, color.RGBA{byte(v + noise), byte(x*255/width + noise), byte(y*255/height) / 2, 255})
		}
	}
	return m
}

func encoded(t testing.TB, encode func(*bytes.Buffer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encodeJPEG(t testing.TB, m image.Image, quality int) []byte {
	return encoded(t, func(b *bytes.Buffer) error { return jpeg.Encode(b, m, &jpeg.Options{Quality: quality}) })
}

func encodePNG(t testing.TB, m image.Image) []byte {
	return encoded(t, func(b *bytes.Buffer) error { return png.Encode(b, m) })
}

func encodeGIF(t testing.TB, m image.Image) []byte {
	return encoded(t, func(b *bytes.Buffer) error { return gif.Encode(b, m, nil) })
}

func encodeBMP(t testing.TB, m image.Image) []byte {
	return encoded(t, func(b *bytes.Buffer) error { return bmp.Encode(b, m) })
}

func encodeTIFF(t testing.TB, m image.Image) []byte {
	return encoded(t, func(b *bytes.Buffer) error { return tiff.Encode(b, m, &tiff.Options{Compression: tiff.Deflate}) })
}

// exifBlock is a TIFF file with only an orientation.
func exifBlock(order binary.AppendByteOrder, orientation int) []byte {
	b := []byte("II*\x00")
	if order == binary.AppendByteOrder(binary.BigEndian) {
		b = []byte("MM\x00*")
	}
	b = order.AppendUint32(b, 8)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint16(b, tagOrientation)
	b = order.AppendUint16(b, 3)
	b = order.AppendUint32(b, 1)
	b = order.AppendUint16(b, uint16(orientation))
	return append(b, 0, 0, 0, 0, 0, 0)
}

// withEXIF adds an orientation to a JPEG, PNG or WebP.
func withEXIF(format string, data []byte, orientation int) []byte {
	switch format {
	case "jpeg":
		exif := append([]byte("Exif\x00\x00"), exifBlock(binary.BigEndian, orientation)...)
		segment := binary.BigEndian.AppendUint16([]byte{0xff, 0xe1}, uint16(2+len(exif)))
		return bytes.Join([][]byte{data[:2], segment, exif, data[2:]}, nil)
	case "png":
		exif := exifBlock(binary.LittleEndian, orientation)
		chunk := append(binary.BigEndian.AppendUint32(nil, uint32(len(exif))), "eXIf"...)
		chunk = append(chunk, exif...)
		chunk = binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
		end := len(data) - 12 // before IEND
		return bytes.Join([][]byte{data[:end], chunk, data[end:]}, nil)
	case "webp":
		sides := binary.LittleEndian.Uint32(data[21:])
		canvas := binary.LittleEndian.AppendUint32(nil, sides&0x3fff)[:3]
		canvas = append(canvas, binary.LittleEndian.AppendUint32(nil, sides>>14&0x3fff)[:3]...)
		first := riffChunk("VP8X", append([]byte{1 << 3, 0, 0, 0}, canvas...))
		last := riffChunk("EXIF", exifBlock(binary.LittleEndian, orientation))
		return riffFile(first, data[12:], last)
	}
	panic(format)
}

func riffChunk(name string, body []byte) []byte {
	chunk := append(binary.LittleEndian.AppendUint32([]byte(name), uint32(len(body))), body...)
	if len(body)%2 == 1 {
		chunk = append(chunk, 0)
	}
	return chunk
}

func riffFile(chunks ...[]byte) []byte {
	body := append([]byte("WEBP"), bytes.Join(chunks, nil)...)
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
}

// encodeWebP is a lossless WebP of one color: five codes of one symbol each, which
// take no bits per pixel (RFC 9649, sections 3.7.2.1.1 and 3.8).
func encodeWebP(width, height int, c color.NRGBA) []byte {
	var bits uint64
	var n int
	var body []byte
	put := func(v uint64, count int) {
		bits |= v << n
		for n += count; n >= 8; n -= 8 {
			body, bits = append(body, byte(bits)), bits>>8
		}
	}
	put(0x2f, 8)
	put(uint64(width-1), 14)
	put(uint64(height-1), 14)
	put(1, 1) // alpha is used
	put(0, 3) // version
	put(0, 3) // no transform, no color cache, no meta codes
	for _, v := range []byte{c.G, c.R, c.B, c.A} {
		put(1|0<<1|1<<2, 3) // simple, one symbol, of 8 bits
		put(uint64(v), 8)
	}
	put(1, 4) // the code of distances: simple, one symbol, of 1 bit, 0
	put(0, 7)
	for len(body) < 10 { // a file of one color is shorter than any reader expects
		body = append(body, 0)
	}
	return riffFile(riffChunk("VP8L", body))
}
