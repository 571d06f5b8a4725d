package imaging

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// AppendArray decodes a picture, gives it the shape, and appends the values to dst, which may be
// nil: of Shape.Dims(height, width), in C order, uint8 or float32 in little-endian. What the
// shape leaves to chance follows from chance.
//
// The order of work is: turned upright, the part, resized, cropped, mirrored, gray,
// normalized. The result shares no memory with the decoder. On an error dst is returned
// as it was, with class fault.User: an invalid shape, pictures that Size refuses or that
// have more pixels than Shape.Largest (before any is decoded), a crop larger than the
// picture, damaged or truncated data.
func (d *Decoder) AppendArray(dst, data []byte, s *Shape, chance Chance) (out []byte, height, width int, err error) {
	if err := s.Check(); err != nil {
		return dst, 0, 0, err
	}
	p, err := identify(data)
	if err != nil {
		return dst, 0, 0, err
	}
	info := p.Info
	if s.Largest > 0 && info.Width*info.Height > s.Largest {
		return dst, 0, 0, fault.Userf("a %s picture of %d x %d pixels has more than %d; leave it out, or raise the limit", p.name, info.Width, info.Height, s.Largest)
	}
	r, err := s.region(info.Width, info.Height, &chance)
	if err != nil {
		return dst, 0, 0, err
	}
	height, width = r.toHeight, r.toWidth
	if s.Crop != "" {
		height, width = s.CropHeight, s.CropWidth
	}
	if height > r.toHeight || width > r.toWidth {
		return dst, 0, 0, fault.Userf("a picture of %d x %d pixels is smaller than the crop of %d x %d: leave it out, or resize before", r.toWidth, r.toHeight, width, height)
	}
	end, err := d.hold(p.arrayMemory(r, s.bytes(width*height)))
	if err != nil {
		return dst, 0, 0, err
	}
	defer end()
	if err := d.load(data, p.format, info); err != nil {
		return dst, 0, 0, err
	}
	d.upright(info)
	d.cut(info.Width, r.x, r.y, r.width, r.height)
	d.resize(s, r)
	x, y := middle(r.toWidth-width), middle(r.toHeight-height)
	if s.Crop == "random" {
		x, y = chance.below(r.toWidth-width+1), chance.below(r.toHeight-height+1)
	}
	d.cut(r.toWidth, x, y, width, height)
	if s.Flip > 0 && chance.below(100) < s.Flip {
		d.mirror(width)
	}
	return d.appendValues(dst, s, width*height), height, width, nil
}

// upright turns d.rgb to what is displayed.
func (d *Decoder) upright(info Info) {
	if info.Orientation == upright {
		return
	}
	width, height := info.stored()
	v := turned(d.rgb, width, height, info.Orientation)
	d.half = sized(d.half, len(d.rgb))
	to := d.half
	for y := range info.Height {
		p := v.first + y*v.down
		for range info.Width {
			copy(to[:3], v.rgb[p:p+3])
			to, p = to[3:], p+v.right
		}
	}
	d.rgb, d.half = d.half, d.rgb
}

// cut keeps a part of d.rgb, whose rows have stride pixels.
func (d *Decoder) cut(stride, x, y, width, height int) {
	if width == stride && y == 0 {
		d.rgb = d.rgb[:3*width*height]
		return
	}
	for row := range height { // moves towards the front only
		copy(d.rgb[3*width*row:][:3*width], d.rgb[3*(stride*(y+row)+x):])
	}
	d.rgb = d.rgb[:3*width*height]
}

// resize resizes d.rgb, which is the region.
func (d *Decoder) resize(s *Shape, r region) {
	k := bicubic
	if s.Filter == "bilinear" {
		k = bilinear
	}
	d.resizeColumns(k, r.width, r.height, r.toWidth)
	d.resizeRows(k, r.toWidth, r.height, r.toHeight)
}

// mirror swaps left and right.
func (d *Decoder) mirror(width int) {
	for row := range slices.Chunk(d.rgb, 3*width) {
		for a, b := 0, 3*(width-1); a < b; a, b = a+3, b-3 {
			for i := range 3 {
				row[a+i], row[b+i] = row[b+i], row[a+i]
			}
		}
	}
}

// appendValues appends n pixels in the shape's type and order.
func (d *Decoder) appendValues(dst []byte, s *Shape, n int) []byte {
	channels := s.Channels()
	if s.Gray {
		for i := range n { // ITU-R BT.601 in 1/65536, as Pillow's "L"
			p := d.rgb[3*i : 3*i+3]
			d.rgb[i] = byte((19595*uint32(p[0]) + 38470*uint32(p[1]) + 7471*uint32(p[2]) + 1<<15) >> 16)
		}
	}
	next, plane := channels, 1 // from pixel to pixel, and from channel to channel
	if s.Planar {
		next, plane = 1, n
	}
	if !s.Float {
		at := len(dst)
		dst = slices.Grow(dst, n*channels)[:at+n*channels]
		for c := range channels {
			for i, j := c, at+c*plane; i < n*channels; i, j = i+channels, j+next {
				dst[j] = d.rgb[i]
			}
		}
		return dst
	}
	at := len(dst)
	dst = slices.Grow(dst, 4*n*channels)[:at+4*n*channels]
	for c := range channels {
		levels := s.levels(c)
		for i, j := c, at+4*c*plane; i < n*channels; i, j = i+channels, j+4*next {
			binary.LittleEndian.PutUint32(dst[j:], levels[d.rgb[i]])
		}
	}
	return dst
}

// levels are the bits of the float32 of each value of a channel, rounded once from float64. No product is
// added to anything, so that no compiler fuses the two.
func (s *Shape) levels(channel int) (bits [256]uint32) {
	for v := range bits {
		bits[v] = math.Float32bits(float32((float64(v)/255 - s.Mean[channel]) / s.Std[channel]))
	}
	return bits
}
