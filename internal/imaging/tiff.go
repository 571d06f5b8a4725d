package imaging

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"slices"

	"golang.org/x/image/tiff"

	"github.com/millrace-data/millrace/internal/fault"
)

// More tags of TIFF directories (TIFF 6.0, appendix A).
const (
	tagBits         = 258 // of each sample
	tagCompression  = 259
	tagPhotometric  = 262
	tagFillOrder    = 266
	tagSamples      = 277 // of a pixel
	tagRowsPerStrip = 278
	tagPlanes       = 284
	tagGroup3       = 292 // options
	tagGroup4       = 293
	tagPredictor    = 317
	tagColors       = 320
	tagTileWidth    = 322
	tagTileLength   = 323
	tagExtra        = 338 // samples that are no color
	tagSampleFormat = 339
)

// numbers are the tags whose values the library reads before any pixel.
var numbers = []uint16{tagImageWidth, tagImageLength, tagBits, tagCompression, tagPhotometric, tagFillOrder, tagRowsPerStrip, tagGroup3, tagGroup4, tagPredictor, tagColors, tagTileWidth, tagTileLength, tagExtra, tagSampleFormat}

// Compressions that are decoded.
const (
	tiffNone       = 1 // and 0
	tiffGroup3     = 3
	tiffGroup4     = 4
	tiffLZW        = 5
	tiffDeflate    = 8
	tiffPackBits   = 32773
	tiffDeflateOld = 32946
)

// What a sample means. Others are not decoded.
const (
	whiteIsZero = 0
	blackIsZero = 1
	tiffRGB     = 2
	tiffPalette = 3
)

// Kinds that are not decoded, by name.
var (
	tiffCompressions = map[uint32]string{2: "CCITT", 6: "old JPEG", 7: "JPEG", 34661: "JBIG", 34712: "JPEG 2000", 34887: "LERC", 34925: "LZMA", 50000: "Zstandard", 50001: "WebP", 50002: "JPEG XL"}
	tiffColors       = map[uint32]string{4: "a mask", 5: "CMYK", 6: "YCbCr", 8: "CIE L*a*b*", 9: "ICC L*a*b*", 10: "ITU L*a*b*", 32803: "a color filter's samples", 34892: "linear raw samples"}
	tiffFormats      = map[uint32]string{2: "signed integers", 3: "floating point", 5: "complex integers", 6: "complex numbers"}
)

// tiffHeader reads the first directory (TIFF 6.0, section 2), and refuses every kind of TIFF that is not decoded.
func tiffHeader(data []byte) (header, error) {
	dir, order := firstDirectory(data)
	width, hasWidth := entry(dir, order, tagImageWidth)
	height, hasHeight := entry(dir, order, tagImageLength)
	if !hasWidth || !hasHeight {
		return header{}, fault.Userf("a TIFF whose first directory has no width or height: it is cut off or damaged")
	}
	t := tiffFile{data, dir, order}
	if !t.sound() {
		return header{}, fault.Userf("a TIFF whose first directory is out of order, or names what is not there: it is damaged, or of a kind that is not decoded")
	}
	if kind := t.foreign(); kind != "" {
		return header{}, fault.Userf("a TIFF of %s is not decoded: write it as gray, RGB or RGBA of 8 or 16 bits, with LZW or Deflate, or as PNG", kind)
	}
	h := header{width: claimed(width), height: claimed(height), room: anyPixelsPerByte * len(data), eighths: tiffMemory, copied: len(data)}
	if v, ok := entry(dir, order, tagOrientation); ok && v >= 1 && v <= 8 {
		h.orientation = int(v)
	}
	return h, nil
}

// decodeTIFF decodes what tiffHeader takes. The library takes the white of a fax for ones whatever they mean; it is
// zeros.
func decodeTIFF(data []byte) (image.Image, error) {
	m, err := tiff.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	dir, order := firstDirectory(data)
	t := tiffFile{data, dir, order}
	if gray, ok := m.(*image.Gray); ok && t.fax() && t.first(tagPhotometric) == blackIsZero {
		for i := range gray.Pix {
			gray.Pix[i] = ^gray.Pix[i]
		}
	}
	return m, nil
}

// tiffFile is a TIFF with the entries of its first directory.
type tiffFile struct {
	data, dir []byte
	order     binary.ByteOrder
}

// values are the values of a tag.
type values struct {
	data  []byte // nil if the tag is not there
	size  int    // of one in bytes
	order binary.ByteOrder
}

// of returns the values of a tag, and reports false if they are not in the file, or no whole numbers.
func (t tiffFile) of(tag uint16) (v values, ok bool) {
	for e := t.dir; len(e) >= 12; e = e[12:] {
		if t.order.Uint16(e) != tag {
			continue
		}
		v := values{e[8:12], tiffSize(t.order.Uint16(e[2:])), t.order}
		n := uint64(v.size) * uint64(t.order.Uint32(e[4:]))
		if n > 4 {
			at := uint64(t.order.Uint32(v.data))
			if at+n > uint64(len(t.data)) {
				return v, false
			}
			v.data = t.data[at:]
		}
		v.data = v.data[:n]
		return v, v.size > 0
	}
	return values{size: 1}, true
}

// tiffSize is the size of a whole number of a type, 0 if it is none.
func tiffSize(kind uint16) int {
	switch kind {
	case 1:
		return 1
	case 3:
		return 2
	case 4:
		return 4
	}
	return 0
}

func (v values) len() int { return len(v.data) / v.size }

func (v values) at(i int) uint32 {
	switch b := v.data[i*v.size:]; v.size {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(v.order.Uint16(b))
	default:
		return v.order.Uint32(b)
	}
}

// first is the first value of a tag; 0 if there is none.
func (t tiffFile) first(tag uint16) uint32 {
	v, ok := t.of(tag)
	if !ok || v.len() == 0 {
		return 0
	}
	return v.at(0)
}

// sound reports whether the tags rise, as the library wants, and have values.
func (t tiffFile) sound() bool {
	for e := t.dir; len(e) >= 24; e = e[12:] {
		if t.order.Uint16(e) >= t.order.Uint16(e[12:]) {
			return false
		}
	}
	for _, tag := range numbers {
		if _, ok := t.of(tag); !ok {
			return false
		}
	}
	return true
}

func (t tiffFile) fax() bool {
	c := t.first(tagCompression)
	return c == tiffGroup3 || c == tiffGroup4
}

// foreign names what is not decoded, "" if nothing.
func (t tiffFile) foreign() string {
	switch c := t.first(tagCompression); c {
	case 0, tiffNone, tiffGroup3, tiffGroup4, tiffLZW, tiffDeflate, tiffPackBits, tiffDeflateOld:
	default:
		return named(tiffCompressions, c, "unknown") + " compression"
	}
	formats, _ := t.of(tagSampleFormat)
	for i := range formats.len() {
		if f := formats.at(i); f != 1 {
			return named(tiffFormats, f, "samples of the unknown format")
		}
	}
	if kind := t.pixel(); kind != "" {
		return kind
	}
	return t.coding()
}

func named(names map[uint32]string, v uint32, unknown string) string {
	if name := names[v]; name != "" {
		return name
	}
	return fmt.Sprintf("%s %d", unknown, v)
}

// pixel is foreign for the samples of a pixel.
func (t tiffFile) pixel() string {
	samples, depth := 1, uint32(1)
	if bits, _ := t.of(tagBits); bits.data != nil {
		samples, depth = bits.len(), t.first(tagBits)
		for i := range samples {
			if bits.at(i) != depth {
				return "samples of different bits"
			}
		}
	}
	if n, ok := entry(t.dir, t.order, tagSamples); ok && n != uint32(samples) {
		return fmt.Sprintf("%d samples a pixel, and the bits of %d", n, samples)
	}
	photometric, extra := t.first(tagPhotometric), t.first(tagExtra)
	switch {
	case photometric > tiffPalette:
		return named(tiffColors, photometric, "the unknown colors")
	case depth != 1 && depth != 8 && depth != 16:
		return fmt.Sprintf("%d bits a sample", depth)
	case photometric == tiffRGB && depth == 1:
		return "RGB of 1 bit a sample"
	case photometric == tiffRGB && (samples < 3 || samples > 4):
		return fmt.Sprintf("RGB with %d samples a pixel", samples)
	case photometric == tiffRGB && samples == 4 && extra != 1 && extra != 2:
		return "RGB with a fourth channel that is not alpha"
	case photometric != tiffRGB && samples != 1:
		return fmt.Sprintf("gray or a palette with %d samples a pixel", samples)
	case photometric == tiffPalette && depth == 16:
		return "a palette of 16 bits"
	case !t.colors(photometric == tiffPalette):
		return "a palette without its colors"
	case samples > 1 && t.first(tagPlanes) > 1:
		return "one plane for each channel"
	}
	return ""
}

// colors reports whether there are three equal columns of at most 256, or none where none are needed.
func (t tiffFile) colors(needed bool) bool {
	v, _ := t.of(tagColors)
	if v.data == nil {
		return !needed
	}
	return v.len() > 0 && v.len() <= 3*256 && v.len()%3 == 0
}

// coding is foreign for how samples become bytes.
func (t tiffFile) coding() string {
	compression, depth, predictor := t.first(tagCompression), t.first(tagBits), t.first(tagPredictor)
	difference := predictor == 2 && depth >= 8 && slices.Contains([]uint32{tiffLZW, tiffDeflate, tiffDeflateOld}, compression)
	switch {
	case t.fax() && (depth > 1 || t.first(tagPhotometric) > blackIsZero):
		return "a fax's compression, but of more than black and white"
	case compression == tiffGroup3 && t.first(tagGroup3) != 0:
		return "Group 3 compression in two dimensions, with bits that fill rows or parts that are not compressed"
	case compression == tiffGroup4 && t.first(tagGroup4)&2 != 0:
		return "Group 4 compression with parts that are not compressed"
	case !t.fax() && t.first(tagFillOrder) == 2:
		return "bytes whose bits are in reverse order"
	case predictor > 1 && !difference:
		return fmt.Sprintf("predictor %d with %d bits a sample and compression %d", predictor, max(depth, 1), compression)
	}
	return ""
}
