package imaging

import "bytes"

// What decoding takes follows from the header, so it can be reserved before anything is decoded.

// Room lends memory to decoders; internal/memory has one that several share.
type Room interface {
	// Take waits until bytes more may be taken, and counts them until free is called.
	Take(bytes int64) (free func(), err error)
}

// keptMemory is the most memory that a Decoder keeps for its next picture, in bytes: more costs little beside
// the time of decoding, and is not counted while nothing is decoded.
const keptMemory = 4 << 20

// hold takes room for bytes, until the function that it returns is called.
func (d *Decoder) hold(bytes int64) (end func(), err error) {
	free := func() {}
	if d.Room != nil {
		if free, err = d.Room.Take(bytes); err != nil {
			return nil, err
		}
	}
	return func() {
		if cap(d.rgb)+cap(d.half) > keptMemory {
			d.rgb, d.half = nil, nil
		}
		free()
	}, nil
}

// Memory is the most bytes that decoding a picture takes, as its header says, with its patches not counted; 0 if
// the header is refused.
func Memory(data []byte, g Geometry) int64 {
	p, err := identify(data)
	if err != nil {
		return 0
	}
	grid, err := g.Grid(p.Width, p.Height)
	if err != nil {
		return 0
	}
	return p.patchMemory(grid, g)
}

// patchMemory is what the patches of a grid take before they are cut.
func (p *known) patchMemory(grid Grid, g Geometry) int64 {
	width, height := p.stored()
	outWidth, outHeight := grid.W*g.Patch, grid.H*g.Patch
	if p.Orientation >= 5 {
		width, height = height, width
	}
	return p.memory + resizing(height, outWidth, outHeight)
}

// arrayMemory is what an array takes, with the array of bytes itself.
func (p *known) arrayMemory(r region, bytes int) int64 {
	n := p.memory + resizing(r.height, r.toWidth, r.toHeight) + int64(bytes)
	if p.Orientation != upright {
		n += rgbBytes * int64(p.Width) * int64(p.Height)
	}
	return n
}

// rgbBytes are those of a pixel while it is resized.
const rgbBytes = 3

// resizing is what it takes to resize a picture of a height, the width first.
func resizing(height, toWidth, toHeight int) int64 {
	return rgbBytes * (int64(toWidth)*int64(height) + int64(toWidth)*int64(toHeight))
}

// decoding is what the decoder of a format takes, and the picture in RGB that follows.
func (h *header) decoding() int64 {
	const side = 32 // the largest unit of a format that is decoded whole: an MCU of a JPEG
	whole := int64(h.width+side-1) / side * side * (int64(h.height+side-1) / side * side)
	return whole*int64(h.eighths)/8 + rgbBytes*int64(h.width)*int64(h.height) + int64(h.copied)
}

// jpegMemory is what Go's decoder takes for 8 pixels of a JPEG with this frame header, in bytes: its planes, the
// coefficients of a progressive one (4 bytes each), and a picture of 4 bytes a pixel where colors are put together.
func jpegMemory(frame []byte, progressive, rgb bool) int {
	n := int(frame[5])
	if n == 1 || len(frame) < 6+3*n || n < 1 {
		n = 1
		frame = []byte("......\x00\x11\x00")
	}
	luma := int(frame[7]>>4) * int(frame[7]&15)
	planes := 0
	for c := range n {
		planes += 8 * int(frame[7+3*c]>>4) * int(frame[7+3*c]&15)
	}
	planes = min((planes+luma-1)/max(luma, 1), 8*n)
	eighths := planes
	if progressive {
		eighths += 4 * planes
	}
	if rgb || n == 4 || n == 3 && string([]byte{frame[6], frame[9], frame[12]}) == "RGB" {
		eighths += 8 * 4
	}
	return eighths
}

// adobeRGB says whether an APP14 segment leaves the colors as they are.
func adobeRGB(segment []byte) bool {
	return bytes.HasPrefix(segment, []byte("Adobe")) && len(segment) >= 12 && segment[11] == 0
}

// pngMemory is that of 8 pixels of a PNG: of 8 or 16 bits a channel, twice if it is interlaced.
func pngMemory(bits, color, interlaced byte) int {
	eighths := 8 * 4
	switch {
	case bits == 16:
		eighths = 8 * 8
	case color == 3:
		eighths = 8
	}
	if interlaced != 0 {
		eighths *= 2
	}
	return eighths
}

// What other decoders take for 8 pixels.
const (
	gifMemory  = 8 * 2       // indexes, twice if it is interlaced
	vp8Memory  = 8 * 2       // planes with halved chroma, and filters
	vp8lMemory = 8 * 8       // 4 bytes a pixel, before and after a transform
	vp8xMemory = 8 * (2 + 9) // VP8, and alpha coded as VP8L
	bmpMemory  = 8 * 4
	tiffMemory = 8 * (8 + 8) // 4 channels of 16 bits, and a strip that is as large
)
