package imaging

import "image"

// chroma holds the rows of Cb and Cr at the width of luma while a row is converted.
type chroma struct {
	sums   []int32
	cb, cr []byte
}

// row writes row y of a picture as RGB.
func (c *chroma) row(dst []byte, m *image.YCbCr, y int, studio bool) {
	width := m.Rect.Dx()
	luma := m.Y[m.YOffset(m.Rect.Min.X, y):][:width]
	cb, cr := c.rows(m, y)
	if studio {
		for x, l := range luma {
			dst[3*x], dst[3*x+1], dst[3*x+2] = studioRGB(int32(l), int32(cb[x]), int32(cr[x]))
		}
		return
	}
	for x, l := range luma {
		dst[3*x], dst[3*x+1], dst[3*x+2] = fullRGB(int32(l), int32(cb[x]), int32(cr[x]))
	}
}

// fullRGB converts with the equations of JFIF (ITU-T T.871, clause 7), in 1/65536.
func fullRGB(y, cb, cr int32) (r, g, b byte) {
	y, cb, cr = y<<16+1<<15, cb-128, cr-128
	return clip(y + 91881*cr), clip(y - 22554*cb - 46802*cr), clip(y + 116130*cb)
}

// studioRGB converts with the equations of ITU-R BT.601, where black is 16, white 235,
// and chroma goes from 16 to 240, in 1/65536.
func studioRGB(y, cb, cr int32) (r, g, b byte) {
	y, cb, cr = 76309*(y-16)+1<<15, cb-128, cr-128
	return clip(y + 104597*cr), clip(y - 25675*cb - 53279*cr), clip(y + 132201*cb)
}

func clip(v int32) byte { return byte(min(max(v>>16, 0), 255)) }

// rows returns Cb and Cr for each pixel of row y. Where chroma has half of luma's
// samples along a side, a pixel takes 3/4 of the sample it lies in and 1/4 of the next
// nearest: the triangle filter that libjpeg calls fancy upsampling. Other ratios, and
// pictures too narrow for it, repeat samples.
func (c *chroma) rows(m *image.YCbCr, y int) (cb, cr []byte) {
	width, height := m.Rect.Dx(), m.Rect.Dy()
	s := samples{width: width, stride: m.CStride, cur: y, near: y}
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio444:
	case image.YCbCrSubsampleRatio422:
		s.halfWidth = true
	case image.YCbCrSubsampleRatio420:
		s.halfWidth, s.halfHeight = true, true
	case image.YCbCrSubsampleRatio440:
		s.halfHeight = true
	default:
		return c.repeated(m, y)
	}
	if s.halfWidth {
		if s.width = (width + 1) / 2; s.width <= 2 {
			return c.repeated(m, y)
		}
	}
	if s.halfHeight {
		s.cur, s.near = y/2, min(max(0, y/2-1+y%2*2), (height-1)/2)
	}
	if !s.halfWidth && !s.halfHeight {
		return m.Cb[y*m.CStride:], m.Cr[y*m.CStride:]
	}
	c.sums = sized(c.sums, s.width)
	c.cb, c.cr = s.row(c.cb, m.Cb, c.sums), s.row(c.cr, m.Cr, c.sums)
	return c.cb, c.cr
}

// repeated gives each pixel the sample it lies in.
func (c *chroma) repeated(m *image.YCbCr, y int) (cb, cr []byte) {
	width := m.Rect.Dx()
	c.cb, c.cr = sized(c.cb, width), sized(c.cr, width)
	for x := range width {
		at := m.COffset(m.Rect.Min.X+x, m.Rect.Min.Y+y)
		c.cb[x], c.cr[x] = m.Cb[at], m.Cr[at]
	}
	return c.cb, c.cr
}

// samples are the rows of a chroma plane behind a row of pixels.
type samples struct {
	width, stride         int
	cur, near             int // rows: the one that the pixels lie in, and the next nearest
	halfWidth, halfHeight bool
}

// row writes the samples at the width of luma to dst and returns it. Rounding
// alternates as in libjpeg, so that it has no bias.
func (s samples) row(dst, plane []byte, sums []int32) []byte {
	cur, near := plane[s.cur*s.stride:][:s.width], plane[s.near*s.stride:][:s.width]
	shift, even, odd := 2, int32(1), int32(2)
	if !s.halfWidth {
		dst = sized(dst, s.width)
		bias := even
		if s.near > s.cur {
			bias = odd
		}
		for x, v := range cur {
			dst[x] = byte((3*int32(v) + int32(near[x]) + bias) >> shift)
		}
		return dst
	}
	for x, v := range cur {
		sums[x] = int32(v)
	}
	if s.halfHeight {
		for x, v := range cur {
			sums[x] = 3*int32(v) + int32(near[x])
		}
		shift, even, odd = 4, 8, 7
	}
	dst = sized(dst, 2*s.width)
	before := sums[0]
	for x, v := range sums {
		after := v
		if x+1 < len(sums) {
			after = sums[x+1]
		}
		dst[2*x], dst[2*x+1] = byte((3*v+before+even)>>shift), byte((3*v+after+odd)>>shift)
		before = v
	}
	return dst
}
