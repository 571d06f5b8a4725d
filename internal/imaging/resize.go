package imaging

import (
	"encoding/binary"
	"math/bits"
)

// Weights have 22 bits after the point: with 8 bits of a channel and the sign, sums of
// a bicubic filter, which overshoot by less than a half, stay within 32 bits.
const (
	weightBits = 22
	one        = 1 << weightBits
)

// filter computes one line of pixels from another.
type filter struct {
	taps    []taps
	weights []int32
}

// taps are the source pixels of one pixel: from first on, one for each weight.
type taps struct {
	first      int
	begin, end int // in filter.weights
}

// kernel is a function of the distance between two pixels, in pixels of the coarser line.
type kernel struct {
	reach  int                    // where it becomes zero
	degree int                    // of weight's values: below 2*d^degree
	weight func(n, d int64) int64 // at n/d, in some unit, for |n| < reach*d
}

var (
	// bicubic is Keys' cubic with a = -1/2 (Cubic convolution interpolation, 1981).
	bicubic = kernel{reach: 2, degree: 3, weight: cubic}
	// bilinear is the triangle.
	bilinear = kernel{reach: 1, degree: 1, weight: func(n, d int64) int64 { return d - max(n, -n) }}
)

// filter returns the filter that resizes a line of in pixels to out: the kernel, stretched
// by in/out where that is above 1. The weights of a pixel are rounded from exact
// fractions; they add up to one within half a unit for each.
//
// With D = 2*max(in, out), source pixel x lies n/D = ((2x+1)*out - (2i+1)*in) / D away from
// pixel i. Both pieces of the cubic are then whole numbers over 2*D*D*D.
func (k kernel) filter(in, out int) filter {
	f := filter{taps: make([]taps, 0, out), weights: make([]int32, 0, out+2*k.reach*max(in, out))}
	d := 2 * max(in, out)
	width, reach := 2*d/(2*out)+2, k.reach*d
	// Dropping low bits of very large numbers, all are below 2^62 and so is their sum.
	drop := max(0, k.degree*bits.Len(uint(d))+1+bits.Len(uint(width))-62)
	exact := make([]int64, 0, width)
	for i := range out {
		center := (2*i + 1) * in
		first := max(0, (center-reach)/(2*out)-1)
		for (2*first+1)*out-center <= -reach {
			first++
		}
		exact = exact[:0]
		var sum int64
		for x := first; x < in; x++ {
			n := (2*x+1)*out - center
			if n >= reach {
				break
			}
			w := k.weight(int64(n), int64(d)) >> drop
			exact, sum = append(exact, w), sum+w
		}
		for len(exact) > 1 && exact[0] == 0 {
			exact, first = exact[1:], first+1
		}
		for len(exact) > 1 && exact[len(exact)-1] == 0 {
			exact = exact[:len(exact)-1]
		}
		begin := len(f.weights)
		for _, w := range exact {
			f.weights = append(f.weights, fraction(w, sum))
		}
		f.taps = append(f.taps, taps{first, begin, len(f.weights)})
	}
	return f
}

// cubic is 2*d^3 times Keys' cubic with a = -1/2 at n/d, for |n| < 2d.
func cubic(n, d int64) int64 {
	n = max(n, -n)
	if n < d {
		return (3*n-5*d)*n*n + 2*d*d*d
	}
	return ((5*d-n)*n-8*d*d)*n + 4*d*d*d
}

// fraction is a/b in units of 1/one, rounded to the nearest. b is above zero, and |a|
// at most 4b.
func fraction(a, b int64) int32 {
	hi, lo := bits.Mul64(uint64(max(a, -a)), one)
	lo, carry := bits.Add64(lo, uint64(b)/2, 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(b))
	if a < 0 {
		return -int32(q)
	}
	return int32(q)
}

// channel is a sum of weighted bytes, rounded, within 0 to 255.
func channel(sum int32) byte {
	return byte(min(max((sum+one/2)>>weightBits, 0), 255))
}

// resizeColumns gives d.rgb, of width x height pixels, out columns.
func (d *Decoder) resizeColumns(k kernel, width, height, out int) {
	if width == out {
		return
	}
	f := k.filter(width, out)
	d.half = sized(d.half, 3*out*height)
	for y := range height {
		f.line(d.half[3*y*out:3*(y+1)*out], d.rgb[3*y*width:3*(y+1)*width])
	}
	d.rgb, d.half = d.half, d.rgb
}

// line resizes one row of pixels. Four weights at a time take a third less time than one.
func (f *filter) line(dst, src []byte) {
	for i := range f.taps {
		t := &f.taps[i]
		pixels := src[3*t.first:]
		weights := f.weights[t.begin:t.end]
		var r, g, b int32
		for len(weights) >= 4 && len(pixels) >= 12 {
			p, w0, w1, w2, w3 := (*[12]byte)(pixels), weights[0], weights[1], weights[2], weights[3]
			r += w0*int32(p[0]) + w1*int32(p[3]) + w2*int32(p[6]) + w3*int32(p[9])
			g += w0*int32(p[1]) + w1*int32(p[4]) + w2*int32(p[7]) + w3*int32(p[10])
			b += w0*int32(p[2]) + w1*int32(p[5]) + w2*int32(p[8]) + w3*int32(p[11])
			pixels, weights = pixels[12:], weights[4:]
		}
		for _, w := range weights {
			p := pixels[:3]
			r += w * int32(p[0])
			g += w * int32(p[1])
			b += w * int32(p[2])
			pixels = pixels[3:]
		}
		to := dst[:3]
		to[0], to[1], to[2] = channel(r), channel(g), channel(b)
		dst = dst[3:]
	}
}

// resizeRows gives d.rgb, of width x height pixels, out rows.
func (d *Decoder) resizeRows(k kernel, width, height, out int) {
	if height == out {
		return
	}
	f := k.filter(height, out)
	row := 3 * width
	d.half = sized(d.half, row*out)
	for i, t := range f.taps {
		addRows(d.half[row*i:][:row], d.rgb[row*t.first:], f.weights[t.begin:t.end])
	}
	d.rgb, d.half = d.half, d.rgb
}

// addRows writes the weighted sum of rows, which follow each other in src and are as
// long as dst. It takes eight bytes at a time: four words have two sums each, of bytes
// that are four apart. A sum starts high enough to stay positive, so none borrows
// from its neighbor, and negative weights may wrap.
func addRows(dst, src []byte, weights []int32) {
	const (
		lanes  = 0x000000ff_000000ff
		offset = 256
		start  = (offset<<weightBits + one/2) * (1<<32 + 1)
	)
	row, x := len(dst), 0
	for ; x+8 <= row; x += 8 {
		var s0, s1, s2, s3 uint64 = start, start, start, start
		at := x
		for _, weight := range weights {
			v, w := binary.LittleEndian.Uint64(src[at:]), uint64(weight)
			s0 += v & lanes * w
			s1 += v >> 8 & lanes * w
			s2 += v >> 16 & lanes * w
			s3 += v >> 24 & lanes * w
			at += row
		}
		to := dst[x : x+8]
		for i, s := range [4]uint64{s0, s1, s2, s3} {
			to[i] = byte(min(max(int32(uint32(s)>>weightBits)-offset, 0), 255))
			to[i+4] = byte(min(max(int32(s>>(32+weightBits))-offset, 0), 255))
		}
	}
	for ; x < row; x++ {
		var sum int32
		for i, w := range weights {
			sum += w * int32(src[i*row+x])
		}
		dst[x] = channel(sum)
	}
}
