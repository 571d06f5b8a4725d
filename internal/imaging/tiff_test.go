package imaging

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/image/tiff"
)

// field is a tag of a TIFF directory: its type is 1 (BYTE), 3 (SHORT) or 4 (LONG).
type field []int

// tiffOf is a TIFF of one strip, or tile, whose fields are in order.
func tiffOf(order binary.AppendByteOrder, pixels []byte, fields ...field) []byte {
	b := []byte("II*\x00")
	if order == binary.AppendByteOrder(binary.BigEndian) {
		b = []byte("MM\x00*")
	}
	fields = append(slices.Clone(fields), field{273, 4, 8}, field{279, 4, len(pixels)})
	slices.SortFunc(fields, func(a, b field) int { return a[0] - b[0] })
	more := len(pixels) + len(pixels)%2
	b = order.AppendUint32(b, uint32(8+more))
	b = append(append(b, pixels...), make([]byte, more-len(pixels))...)
	b = order.AppendUint16(b, uint16(len(fields)))
	behind := len(b) + 12*len(fields) + 4
	var rest []byte
	for _, f := range fields {
		var v []byte
		for _, x := range f[2:] {
			switch f[1] {
			case 1:
				v = append(v, byte(x))
			case 3:
				v = order.AppendUint16(v, uint16(x))
			default:
				v = order.AppendUint32(v, uint32(x))
			}
		}
		b = order.AppendUint16(b, uint16(f[0]))
		b = order.AppendUint16(b, uint16(f[1]))
		b = order.AppendUint32(b, uint32(len(f)-2))
		if len(v) > 4 {
			b = order.AppendUint32(b, uint32(behind+len(rest)))
			rest = append(rest, v...)
		} else {
			b = append(b, append(v, 0, 0, 0, 0)[:4]...)
		}
	}
	return append(append(b, 0, 0, 0, 0), rest...)
}

// packed are bytes of the digits 0 and 1.
func packed(digits string) (b []byte) {
	digits = strings.ReplaceAll(digits, " ", "")
	for i := range digits {
		if i%8 == 0 {
			b = append(b, 0)
		}
		b[i/8] |= digits[i] & 1 << (7 - i%8)
	}
	return b
}

// TestFax: two rows of three white, two black and three white. White is 0 in a fax (TIFF 6.0, section 10 and 11), so it
// is black where 0 is.
func TestFax(t *testing.T) {
	const eol, white3, black2 = "000000000001", "1000", "11"
	for name, c := range map[string]struct {
		compression int
		data        []byte
	}{
		"Group 3": {3, packed(eol + white3 + black2 + white3 + eol + white3 + black2 + white3)},
		"Group 4": {4, packed("001" + white3 + black2 + "1" + "111" + eol + eol)},
	} {
		for photometric := range 2 {
			for fill := 1; fill <= 2; fill++ {
				data := slices.Clone(c.data)
				for i := range data {
					if fill == 2 {
						data[i] = bits.Reverse8(data[i])
					}
				}
				file := tiffOf(binary.BigEndian, data, field{256, 3, 8}, field{257, 3, 2}, field{258, 3, 1}, field{259, 3, c.compression}, field{262, 3, photometric}, field{266, 3, fill}, field{277, 3, 1})
				expect(t, file, func(x, _ int) [3]byte {
					if (x == 3 || x == 4) == (photometric == blackIsZero) {
						return [3]byte{255, 255, 255}
					}
					return [3]byte{}
				})
			}
		}
		if err := new(Decoder).Verify(tiffOf(binary.BigEndian, c.data[:1], field{256, 3, 8}, field{257, 3, 2}, field{259, 3, c.compression})); err == nil {
			t.Errorf("%s: decoded without its end", name)
		}
	}
	raw := tiffOf(binary.BigEndian, []byte{0x18, 0x18}, field{256, 3, 8}, field{257, 3, 2}, field{262, 3, blackIsZero})
	expect(t, raw, func(x, _ int) [3]byte { v := byte(0xff * (0x18 >> (7 - x) & 1)); return [3]byte{v, v, v} })
}

// rgb are the fields of a picture of 4 x 3 pixels, changed by others.
func rgb(others ...field) []field {
	fields := []field{{256, 3, 4}, {257, 3, 3}, {258, 3, 8, 8, 8}, {259, 3, 1}, {262, 3, 2}, {277, 3, 3}}
	for _, o := range others {
		fields = slices.DeleteFunc(fields, func(f field) bool { return f[0] == o[0] })
		fields = append(fields, o)
	}
	return fields
}

// TestTIFFKinds: what is not decoded is refused by the header, with its name.
func TestTIFFKinds(t *testing.T) {
	gray := func(others ...field) []field {
		return rgb(append([]field{{258, 3, 8}, {262, 3, 1}, {277, 3, 1}}, others...)...)
	}
	for want, fields := range map[string][]field{
		"":                                       rgb(),
		"JPEG compression":                       rgb(field{259, 3, 7}, field{262, 3, 6}),
		"CCITT compression":                      gray(field{258, 3, 1}, field{259, 3, 2}),
		"LZMA compression":                       rgb(field{259, 3, 34925}),
		"Zstandard compression":                  rgb(field{259, 3, 50000}),
		"unknown 9 compression":                  rgb(field{259, 3, 9}),
		"CMYK":                                   rgb(field{258, 3, 8, 8, 8, 8}, field{262, 3, 5}, field{277, 3, 4}),
		"YCbCr":                                  rgb(field{262, 3, 6}),
		"CIE L*a*b*":                             rgb(field{262, 3, 8}),
		"the unknown colors 99":                  rgb(field{262, 3, 99}),
		"floating point":                         gray(field{258, 3, 32}, field{339, 3, 3}),
		"signed integers":                        gray(field{339, 1, 2}),
		"32 bits a sample":                       gray(field{258, 3, 32}),
		"4 bits a sample":                        gray(field{258, 3, 4}),
		"gray or a palette with 2 samples":       gray(field{258, 3, 8, 8}, field{277, 3, 2}, field{338, 3, 2}),
		"RGB with a fourth channel":              rgb(field{258, 3, 8, 8, 8, 8}, field{277, 3, 4}, field{338, 3, 0}),
		"RGB with 5 samples":                     rgb(field{258, 3, 8, 8, 8, 8, 8}, field{277, 3, 5}, field{338, 3, 0, 0}),
		"RGB of 1 bit":                           rgb(field{258, 3, 1, 1, 1}),
		"3 samples a pixel, and the bits of 1":   rgb(field{258, 3, 8}),
		"samples of different bits":              rgb(field{258, 3, 5, 6, 5}),
		"one plane for each channel":             rgb(field{284, 3, 2}),
		"a palette of 16 bits":                   gray(field{258, 3, 16}, field{262, 3, 3}, field{320, 3, 1, 2, 3}),
		"a palette without its colors":           gray(field{262, 3, 3}),
		"a fax's compression":                    gray(field{259, 3, 4}),
		"Group 3 compression in two":             gray(field{258, 3, 1}, field{259, 3, 3}, field{292, 4, 1}),
		"Group 4 compression with parts":         gray(field{258, 3, 1}, field{259, 3, 4}, field{293, 4, 2}),
		"bytes whose bits are in reverse":        gray(field{266, 3, 2}),
		"predictor 2 with 8 bits a sample and c": rgb(field{317, 3, 2}),
		"predictor 3":                            rgb(field{259, 3, 5}, field{317, 3, 3}),
		"first directory is out of order":        rgb(field{262, 2, 1}),
	} {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			data := tiffOf(order, make([]byte, 4*3*8), fields...)
			_, err := Size(data)
			if want == "" {
				if err != nil {
					t.Error(err)
				}
				continue
			}
			refused(t, err, want)
		}
	}
	_, err := Size([]byte("II+\x00\x08\x00\x00\x00"))
	refused(t, err, "this is BigTIFF")
}

// TestTIFFIsTheLibrarys makes directories of all kinds: what the header takes, the library decodes.
func TestTIFFIsTheLibrarys(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...int) int { return values[rng.IntN(len(values))] }
	pixels, palette := make([]byte, 4*3*8), make([]int, 900)
	taken, refusals := 0, 0
	for range 30_000 {
		samples := pick(1, 1, 3, 4, 2)
		depths := slices.Repeat([]int{pick(1, 8, 8, 16, 4, 32)}, samples)
		if rng.IntN(20) == 0 {
			depths[rng.IntN(samples)] = 8
		}
		kind := pick(1, 3, 3, 3, 4)
		fields := []field{{256, 3, 4}, {257, 3, 3}, append(field{258, kind}, depths...), {259, 3, pick(0, 1, 1, 1, 1, 1, 1, 7)}, {262, 3, pick(0, 1, 2, 2, 3, 5, 6)}}
		for _, maybe := range []field{
			{266, 3, pick(1, 2)}, {277, 3, pick(samples, samples, samples, 1, 3)}, {284, 3, pick(1, 1, 2)}, {317, 3, pick(1, 2, 3)},
			append(field{320, 3}, palette[:pick(768, 768, 30, 769, 900)]...), {338, pick(3, 1), pick(0, 1, 2)}, append(field{339, pick(3, 2)}, slices.Repeat([]int{pick(1, 1, 1, 2)}, samples)...),
		} {
			if maybe[0] == 277 || rng.IntN(3) == 0 || maybe[0] == 320 && fields[4][2] == tiffPalette || maybe[0] == 338 && samples == 4 {
				fields = append(fields, maybe)
			}
		}
		data := tiffOf(binary.LittleEndian, pixels, fields...)
		_, sized := Size(data)
		if _, err := tiff.Decode(bytes.NewReader(data)); sized == nil && err != nil {
			t.Fatalf("the header takes %.300v, and the library says: %v", fields, err)
		}
		if sized == nil {
			taken++
		} else {
			refusals++
		}
	}
	if taken < 1000 || refusals < 1000 {
		t.Errorf("%d directories are taken and %d refused: too few for a result", taken, refusals)
	}
}
