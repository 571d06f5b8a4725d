package imaging

import (
	"math/bits"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// Shape is the rule that makes one array of a picture, for encoders that take whole
// pictures. The zero value leaves a picture's size as it is.
type Shape struct {
	Resize        string // one of Resizes; "" is none
	Height, Width int    // exact, area: of the resized picture. shortest: both are that of its shorter side
	MaxPixels     int    // within: larger pictures are reduced to this area
	MinArea       int    // area: percent of the picture that the part has, at least; at most MaxArea
	MaxArea       int
	Filter        string // one of Filters; "" is bicubic

	Crop                  string // center or random; "" keeps all of the resized picture
	CropHeight, CropWidth int

	Flip    int // percent of pictures that are mirrored, left to right
	Gray    bool
	Planar  bool       // channels first
	Float   bool       // float32 in place of uint8
	Mean    [3]float64 // Float: a value v of 0 to 1 becomes (v - Mean) / Std
	Std     [3]float64 // Float
	Largest int        // pixels: larger pictures are refused before they are decoded; 0 is MaxPicturePixels
}

// Resizes are the ways to resize a picture: not at all; to a size, whatever its aspect;
// until the shorter side has a size; to an area at most; and a part of it, drawn by
// chance, to a size (as RandomResizedCrop of torchvision).
var Resizes = []string{"none", "exact", "shortest", "within", "area"}

// Filters are the kernels of resizing.
var Filters = []string{"bicubic", "bilinear"}

// Chance is what is drawn for one picture: a stream of numbers that follows from its
// value (SplitMix64).
type Chance uint64

func (c *Chance) next() uint64 {
	*c += 0x9e3779b97f4a7c15
	z := uint64(*c)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below draws one of 0 to n-1, n below 2^32, from the upper half of a number.
func (c *Chance) below(n int) int { return int(c.next() >> 32 * uint64(n) >> 32) }

// Check returns an error for an invalid shape.
func (s *Shape) Check() error {
	sized := s.Resize == "exact" || s.Resize == "area" || s.Resize == "shortest"
	switch {
	case s.Resize != "" && !slices.Contains(Resizes, s.Resize):
		return fault.Userf("resize %q: valid are none, exact, shortest, within and area", s.Resize)
	case s.Filter != "" && !slices.Contains(Filters, s.Filter):
		return fault.Userf("filter %q: valid are bicubic and bilinear", s.Filter)
	case sized && !side(s.Height, s.Width):
		return fault.Userf("size is %d x %d pixels; sides are 1 to %d for resize %s", s.Height, s.Width, maxSide, s.Resize)
	case s.Resize == "within" && (s.MaxPixels < 1 || s.MaxPixels > maxGridPixels):
		return fault.Userf("max_pixels is %d; valid are 1 to %d", s.MaxPixels, maxGridPixels)
	case s.Resize == "area" && (s.MinArea < 1 || s.MinArea > s.MaxArea || s.MaxArea > 100):
		return fault.Userf("area is %d to %d percent; valid are 1 to 100, the lower bound first", s.MinArea, s.MaxArea)
	case s.Crop != "" && s.Crop != "center" && s.Crop != "random":
		return fault.Userf("crop_at %q: valid are center and random", s.Crop)
	case s.Crop != "" && !side(s.CropHeight, s.CropWidth):
		return fault.Userf("crop is %d x %d pixels; sides are 1 to %d", s.CropHeight, s.CropWidth, maxSide)
	case s.Crop != "" && sized && (s.CropHeight > s.Height || s.CropWidth > s.Width):
		return fault.Userf("crop is %d x %d pixels, more than the resized picture of %d x %d has", s.CropHeight, s.CropWidth, s.Height, s.Width)
	case s.Flip < 0 || s.Flip > 100:
		return fault.Userf("flip is %d percent; valid are 0 to 100", s.Flip)
	case s.Float && slices.Min(s.Std[:]) <= 0:
		return fault.Userf("std has a value that is not above 0")
	}
	return nil
}

// maxSide bounds the sides of arrays.
const maxSide = 1 << 13

func side(height, width int) bool { return min(height, width) >= 1 && max(height, width) <= maxSide }

// Channels is the number of values of a pixel.
func (s *Shape) Channels() int {
	if s.Gray {
		return 1
	}
	return 3
}

// Dims are the sizes of the array of a picture of height x width pixels: rows, columns
// and channels, or channels first.
func (s *Shape) Dims(height, width int) []int {
	if s.Planar {
		return []int{s.Channels(), height, width}
	}
	return []int{height, width, s.Channels()}
}

// region is a part of a picture, and the size that it is resized to.
type region struct{ x, y, width, height, toWidth, toHeight int }

// region decides which part of a picture is resized, and to what.
func (s *Shape) region(width, height int, chance *Chance) (region, error) {
	r := region{width: width, height: height, toWidth: width, toHeight: height}
	switch s.Resize {
	case "exact":
		r.toWidth, r.toHeight = s.Width, s.Height
	case "area":
		s.part(&r, chance)
		r.toWidth, r.toHeight = s.Width, s.Height
	case "shortest":
		if width < height {
			r.toWidth, r.toHeight = s.Width, s.Width*height/width
		} else {
			r.toWidth, r.toHeight = s.Height*width/height, s.Height
		}
	case "within":
		if width*height > s.MaxPixels {
			r.toWidth = max(1, sqrtFloor(s.MaxPixels*width, height))
			r.toHeight = max(1, min(sqrtFloor(s.MaxPixels*height, width), s.MaxPixels/r.toWidth))
			r.toWidth = min(r.toWidth, s.MaxPixels/r.toHeight)
		}
	}
	if int64(r.toWidth)*int64(r.toHeight) > maxGridPixels {
		return r, fault.Userf("a picture of %d x %d pixels would become one of %d x %d, which is too large: leave it out", width, height, r.toWidth, r.toHeight)
	}
	return r, nil
}

// part draws a part of the picture: an area, and an aspect of 3/4 to 4/3 in a logarithmic
// scale. What does not fit is drawn again; after ten times it is the middle of the
// picture, of the nearest aspect.
func (s *Shape) part(r *region, chance *Chance) {
	width, height := r.width, r.height
	for range 10 {
		percent := s.MinArea<<16 + chance.below((s.MaxArea-s.MinArea)<<16+1) // in 2^-16
		area := int(uint64(width) * uint64(height) * uint64(percent) / 100 >> 16)
		aspect := aspects[chance.below(len(aspects))]
		w, h := sqrtFloor(area*aspect, 1<<16), sqrtFloor(area<<16, aspect)
		if w < 1 || h < 1 || w > width || h > height {
			continue
		}
		r.width, r.height = w, h
		r.x, r.y = chance.below(width-w+1), chance.below(height-h+1)
		return
	}
	switch {
	case 4*width < 3*height:
		r.height = max(1, 4*width/3)
	case 3*width > 4*height:
		r.width = max(1, 4*height/3)
	}
	r.x, r.y = middle(width-r.width), middle(height-r.height)
}

// aspects are (3/4) * (16/9)^(k/64) for k of 0 to 64, in 2^-16.
var aspects = func() (list [65]int) {
	const step = 8667506828 // (16/9)^(1/64) in 2^-33
	value := uint64(3) << 46
	for k := range list {
		list[k] = int((value + 1<<31) >> 32)
		hi, lo := bits.Mul64(value, step)
		value = hi<<31 | lo>>33
	}
	return list
}()

// middle is half of what is left beside a part, halves to even, as torchvision has it.
func middle(left int) int {
	if left%4 == 3 {
		return left/2 + 1
	}
	return left / 2
}

// bytes is the size of the values of some pixels.
func (s *Shape) bytes(pixels int) int {
	if s.Float {
		return 4 * pixels * s.Channels()
	}
	return pixels * s.Channels()
}
