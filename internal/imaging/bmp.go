package imaging

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"io"
	"math/bits"

	"golang.org/x/image/bmp"

	"github.com/millrace-data/millrace/internal/fault"
)

// Kinds of compression of a BMP (BITMAPINFOHEADER.biCompression).
const (
	bmpPlain       = 0
	bmpFields      = 3 // masks for red, green and blue
	bmpAlphaFields = 6 // and alpha
)

const bmpFileHeader = 14

// bmpHead is the header of a BMP.
type bmpHead struct {
	width, height int
	topDown       bool
	info          int // bytes of the header after that of the file
	planes, depth int // bits of a pixel
	compression   uint32
	pixels        int64 // where they begin
	data          []byte
}

// readBMPHead reads BITMAPINFOHEADER and its successors; a negative height means rows
// from the top.
func readBMPHead(data []byte) (h bmpHead, err error) {
	if len(data) < bmpFileHeader+40 {
		return h, cutOff("BMP")
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(data[at:]) }
	info := u32(14)
	if info != 40 && info != 108 && info != 124 {
		return h, fault.Userf("a BMP with a header of %d bytes; 40, 108 and 124 are read", info)
	}
	h = bmpHead{
		width: int(int32(u32(18))), height: int(int32(u32(22))), info: int(info), compression: u32(30), pixels: int64(u32(10)), data: data,
		planes: int(binary.LittleEndian.Uint16(data[26:])), depth: int(binary.LittleEndian.Uint16(data[28:])),
	}
	if h.height < 0 {
		h.height, h.topDown = -h.height, true
	}
	switch {
	case h.depth == 0:
		return h, fault.Userf("a BMP with 0 bits a pixel: it is damaged, or holds another format")
	case len(data) < bmpFileHeader+h.info:
		return h, cutOff("BMP")
	}
	return h, nil
}

// bmpHeader refuses every kind of BMP that is not decoded, so that no picture is
// planned by its header and refused when decoded.
func bmpHeader(data []byte) (header, error) {
	h, err := readBMPHead(data)
	if err == nil && !h.plain() {
		_, err = h.bitFields()
	}
	if err != nil {
		return header{}, err
	}
	return header{width: h.width, height: h.height, room: len(data) * 8 / h.depth, eighths: bmpMemory}, nil
}

// decodeBMP decodes the kinds that the library does, and pixels with bit masks.
func decodeBMP(data []byte) (image.Image, error) {
	h, err := readBMPHead(data)
	if err != nil {
		return nil, err
	}
	if h.plain() {
		return bmp.Decode(bytes.NewReader(data))
	}
	f, err := h.bitFields()
	if err != nil {
		return nil, err
	}
	return f.decode(bytes.NewReader(data))
}

// plain reports whether the library reads it as others do: uncompressed, with no masks or the usual
// ones, and with nothing between header, palette and pixels. Of 32 bits without masks it takes the fourth byte for
// alpha where the header could define that; it is padding there, often 0.
func (h *bmpHead) plain() bool {
	usual := h.compression == bmpFields && h.info > 40 && h.masksAt(4) == [4]uint32{0xff0000, 0xff00, 0xff, 0xff000000}
	if h.planes != 1 || h.compression != bmpPlain && !usual {
		return false
	}
	end := int64(bmpFileHeader + h.info)
	switch h.depth {
	case 1, 2, 4, 8:
		colors := int64(binary.LittleEndian.Uint32(h.data[46:]))
		if colors == 0 {
			colors = 1 << h.depth
		}
		return colors <= 1<<h.depth && h.pixels == end+4*colors
	case 24:
		return h.pixels == end
	case 32:
		return h.pixels == end && (usual || h.info == 40)
	}
	return false
}

// masksAt returns the first n masks, which follow the 40 bytes common to all headers.
func (h *bmpHead) masksAt(n int) (masks [4]uint32) {
	for i := range n {
		masks[i] = binary.LittleEndian.Uint32(h.data[bmpFileHeader+40+4*i:])
	}
	return masks
}

// bitFields is a BMP whose pixels have 16 or 32 bits, and up to four masks that
// select red, green, blue and alpha.
type bitFields struct {
	*bmpHead
	masks [4]uint32
}

// bitFields takes the given masks, or else the usual ones. Only given masks
// define alpha. Other kinds of BMP are an error of class
// fault.User.
func (h *bmpHead) bitFields() (f bitFields, err error) {
	given := h.compression == bmpFields || h.compression == bmpAlphaFields
	if h.planes != 1 || h.depth != 16 && h.depth != 32 || h.compression != bmpPlain && !given {
		return f, fault.Userf("a BMP with %d bits a pixel, compression %d, %d planes and its pixels at byte %d is not of a kind that is decoded: write it without compression, or as PNG",
			h.depth, h.compression, h.planes, h.pixels)
	}
	f = bitFields{bmpHead: h}
	n, end := 0, bmpFileHeader+h.info
	switch {
	case given && h.info == 40 && h.compression == bmpFields:
		n, end = 3, end+12
	case given && h.info == 40:
		n, end = 4, end+16
	case given:
		n = 4
	case h.depth == 16:
		f.masks = [4]uint32{0x7c00, 0x3e0, 0x1f, 0}
	default:
		f.masks = [4]uint32{0xff0000, 0xff00, 0xff, 0}
	}
	if len(h.data) < end {
		return f, cutOff("BMP")
	}
	if n > 0 {
		f.masks = h.masksAt(n)
	}
	if h.pixels < int64(end) {
		return f, fault.Userf("a BMP whose pixels begin at byte %d, inside its header of %d bytes: it is damaged", h.pixels, end)
	}
	return f, f.check()
}

// check refuses masks that are empty, split or overlapping.
func (f bitFields) check() error {
	var seen uint32
	for i, m := range f.masks {
		run := m >> bits.TrailingZeros32(m)
		if m == 0 && i < 3 || run&(run+1) != 0 || seen&m != 0 || uint64(m)>>f.depth != 0 {
			return fault.Userf("a BMP of %d bits a pixel with the masks %08x: each of red, green and blue has a run of bits to itself; it is damaged, or write it as PNG", f.depth, f.masks)
		}
		seen |= m
	}
	return nil
}

// decode reads the pixels. Channels of other than 8 bits are scaled to 0..255, rounded
// to the nearest; without a mask for alpha pixels are opaque.
func (f bitFields) decode(r io.Reader) (image.Image, error) {
	if _, err := io.CopyN(io.Discard, r, f.pixels); err != nil {
		return nil, fmt.Errorf("skipping to the pixels: %w", err)
	}
	m := image.NewNRGBA(image.Rect(0, 0, f.width, f.height))
	row := make([]byte, (f.width*f.depth/8+3)&^3)
	for i := range f.height {
		if _, err := io.ReadFull(r, row); err != nil {
			return nil, err
		}
		y := f.height - 1 - i
		if f.topDown {
			y = i
		}
		f.unpack(m.Pix[y*m.Stride:][:4*f.width], row)
	}
	return m, nil
}

// unpack writes a row of pixels as red, green, blue and alpha.
func (f bitFields) unpack(dst, row []byte) {
	for x := range f.width {
		var pixel uint32
		if f.depth == 16 {
			pixel = uint32(binary.LittleEndian.Uint16(row[2*x:]))
		} else {
			pixel = binary.LittleEndian.Uint32(row[4*x:])
		}
		for i, mask := range f.masks {
			dst[4*x+i] = masked(pixel, mask)
		}
	}
}

// masked takes the bits of a mask, scaled to 8; without a mask it is 255.
func masked(pixel, mask uint32) byte {
	if mask == 0 {
		return 255
	}
	shift := bits.TrailingZeros32(mask)
	top := uint64(mask >> shift)
	return byte((uint64((pixel&mask)>>shift)*255 + top/2) / top)
}
