package imaging

import (
	"bytes"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"

	"github.com/millrace-data/millrace/internal/fault"
)

// Bounds on pictures, checked before memory is allocated. Decoding takes 5 to 15
// bytes a pixel, and up to 30 for a progressive JPEG: see Memory.
const (
	MaxPictureSide   = 1 << 18 // pixels
	MaxPicturePixels = 1 << 26 // 8192 x 8192
)

// Info is the content of a picture's header.
type Info struct {
	Width, Height int    // pixels, as displayed: after Orientation
	Format        string // jpeg, png, gif, webp, bmp or tiff
	Orientation   int    // EXIF 274: 1 to 8, where 5 to 8 swap the sides that are stored
}

// stored returns width and height as in the file.
func (i Info) stored() (width, height int) {
	if i.Orientation >= 5 {
		return i.Height, i.Width
	}
	return i.Width, i.Height
}

// header is the result of a format's header reader.
type header struct {
	width, height int // as stored
	orientation   int // 0 is upright
	room          int // the most pixels that a file of this length holds
	eighths       int // bytes that the decoder takes for 8 pixels, at most
	copied        int // bytes of the file that it copies, at most
}

// format is a picture format.
type format struct {
	name   string
	magics []string // how files begin; ? is any byte
	header func(data []byte) (header, error)
	decode func(data []byte) (image.Image, error)
}

// reading is a decoder of bytes by one that reads.
func reading(decode func(r io.Reader) (image.Image, error)) func(data []byte) (image.Image, error) {
	return func(data []byte) (image.Image, error) { return decode(bytes.NewReader(data)) }
}

var formats = []format{
	{"jpeg", []string{"\xff\xd8"}, jpegHeader, reading(jpeg.Decode)},
	{"png", []string{"\x89PNG\r\n\x1a\n"}, pngHeader, reading(png.Decode)},
	{"gif", []string{"GIF87a", "GIF89a"}, gifHeader, reading(gif.Decode)},
	{"webp", []string{"RIFF????WEBP"}, webpHeader, reading(webp.Decode)},
	{"bmp", []string{"BM"}, bmpHeader, decodeBMP},
	{"tiff", []string{"II*\x00", "MM\x00*"}, tiffHeader, decodeTIFF},
}

// foreign lists other formats found in place of pictures, for error messages.
var foreign = []struct{ name, magic string }{
	{"AVIF", "????ftypavif"},
	{"HEIC", "????ftyphe"},
	{"HEIC", "????ftypmif1"},
	{"JPEG 2000", "\x00\x00\x00\x0cjP"},
	{"JPEG 2000", "\xff\x4f\xff\x51"},
	{"JPEG XL", "\xff\x0a"},
	{"JPEG XL", "\x00\x00\x00\x0cJXL "},
	{"icon", "\x00\x00\x01\x00"},
	{"Photoshop", "8BPS"},
	{"DDS", "DDS "},
	{"BigTIFF", "II+\x00"}, {"BigTIFF", "MM\x00+"},
	{"PDF", "%PDF"},
	{"gzip", "\x1f\x8b"},
	{"XML, SVG or HTML", "<"},
}

func begins(data []byte, magic string) bool {
	if len(data) < len(magic) {
		return false
	}
	for i := range magic {
		if magic[i] != '?' && magic[i] != data[i] {
			return false
		}
	}
	return true
}

// Size reads the header of an encoded picture, without decoding it or
// allocating memory. It reads the headers of the file's segments and its EXIF block.
// A picture that has a size may still be damaged further on.
//
// Errors are of class fault.User: an unknown format, a damaged header, a
// size out of bounds, or a size too large for the file.
func Size(data []byte) (Info, error) {
	p, err := identify(data)
	return p.Info, err
}

// known is what is known of a picture before it is decoded.
type known struct {
	Info
	*format
	memory int64 // bytes that its decoder takes, and the picture in RGB, at most
}

// identify is Size, and returns the format and what decoding takes.
func identify(data []byte) (known, error) {
	f, err := sniff(data)
	if err != nil {
		return known{}, err
	}
	h, err := f.header(data)
	if err != nil {
		return known{}, err
	}
	switch pixels := int64(h.width) * int64(h.height); {
	case h.width < 1 || h.height < 1:
		return known{}, fault.Userf("a %s picture of %d x %d pixels is empty", f.name, h.width, h.height)
	case h.width > MaxPictureSide || h.height > MaxPictureSide || pixels > MaxPicturePixels:
		return known{}, fault.Userf("a %s picture of %d x %d pixels is too large: at most %d pixels a side and %d in all are decoded; reduce it or leave it out",
			f.name, h.width, h.height, MaxPictureSide, MaxPicturePixels)
	case pixels > int64(h.room):
		return known{}, fault.Userf("a %s header claims %d x %d pixels, more than a file of %d bytes can hold: it is damaged or cut off",
			f.name, h.width, h.height, len(data))
	}
	info := Info{Width: h.width, Height: h.height, Format: f.name, Orientation: max(h.orientation, upright)}
	if info.Orientation >= 5 {
		info.Width, info.Height = h.height, h.width
	}
	return known{info, f, h.decoding()}, nil
}

func sniff(data []byte) (*format, error) {
	for i := range formats {
		for _, magic := range formats[i].magics {
			if begins(data, magic) {
				return &formats[i], nil
			}
		}
	}
	const supported = "supported are JPEG, PNG, GIF, WebP, BMP and TIFF"
	if len(data) == 0 {
		return nil, fault.Userf("a picture of 0 bytes; %s", supported)
	}
	for _, other := range foreign {
		if begins(bytes.TrimLeft(data[:min(len(data), 64)], " \t\r\n"), other.magic) {
			return nil, fault.Userf("this is %s, which is not decoded here; %s", other.name, supported)
		}
	}
	return nil, fault.Userf("not a known picture format: it begins with %q; %s", data[:min(len(data), 12)], supported)
}
