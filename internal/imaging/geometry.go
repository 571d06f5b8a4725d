package imaging

import (
	"math"

	"github.com/millrace-data/millrace/internal/fault"
)

// MaxAspect is the largest ratio between the sides of a picture. Longer strips are
// refused: a grid would distort them.
const MaxAspect = 200

// maxGridPixels bounds Geometry.MaxPixels, so that all arithmetic fits 64 bits.
const maxGridPixels = 1 << 26

// Geometry is the rule that cuts pictures into patches. Qwen2-VL and Qwen2.5-VL have
// Patch 14 and Merge 2, MinPixels 56*56 and MaxPixels 28*28*1280 or more.
type Geometry struct {
	Patch     int // pixels along a side of a patch, at least 1
	Merge     int // patches along a side of the block that becomes one token, at least 1
	MinPixels int // smaller pictures are enlarged to this area
	MaxPixels int // larger pictures are reduced to this area, at least that of one block
}

// Grid is the size of a resized picture, in patches.
type Grid struct {
	H, W int // rows and columns, multiples of Geometry.Merge
}

// Patches is the number of patches.
func (g Grid) Patches() int { return g.H * g.W }

// Tokens is the number of embeddings that stand for a picture of this grid in the
// sequence: one for each block of Merge x Merge patches.
func (g Geometry) Tokens(grid Grid) int { return grid.Patches() / (g.Merge * g.Merge) }

// PatchBytes is the number of bytes of one patch: 3 channels of Patch x Patch.
func (g Geometry) PatchBytes() int { return 3 * g.Patch * g.Patch }

// Check returns an error for an invalid geometry.
func (g Geometry) Check() error {
	switch {
	case g.Patch < 1 || g.Patch > 1024:
		return fault.Userf("patch is %d pixels; valid are 1 to 1024 (Qwen2-VL has 14)", g.Patch)
	case g.Merge < 1 || g.Merge > 64:
		return fault.Userf("merge is %d patches; valid are 1 to 64 (Qwen2-VL has 2)", g.Merge)
	case g.MinPixels < 0 || g.MinPixels > g.MaxPixels:
		return fault.Userf("min_pixels is %d; valid are 0 to max_pixels, which is %d", g.MinPixels, g.MaxPixels)
	case g.MaxPixels < g.unit()*g.unit() || g.MaxPixels > maxGridPixels:
		return fault.Userf("max_pixels is %d; valid are %d, the area of one block of %d x %d patches, to %d",
			g.MaxPixels, g.unit()*g.unit(), g.Merge, g.Merge, maxGridPixels)
	}
	return nil
}

// unit is the side of a block in pixels: sides of grids are multiples of it.
func (g Geometry) unit() int { return g.Patch * g.Merge }

// Grid returns the grid of a picture of width x height pixels. Each side becomes the
// nearest multiple of Patch*Merge pixels, halves going to the even one. If the area is
// then out of bounds, both sides are scaled by the same factor to the bound and
// rounded towards the inside. A side has at least one block, and where no grid
// satisfies both bounds, MaxPixels wins.
//
// This is smart_resize of Qwen2-VL's image processor in exact integers. That code
// computes the factor in floating point; the two can differ where a scaled side is a
// whole number of blocks, and where a side would have less than one.
//
// It fails, with class fault.User, for an invalid geometry, a side below 1 pixel and
// an aspect ratio above MaxAspect.
func (g Geometry) Grid(width, height int) (Grid, error) {
	if err := g.Check(); err != nil {
		return Grid{}, err
	}
	if width < 1 || height < 1 || width > MaxPictureSide || height > MaxPictureSide {
		return Grid{}, fault.Userf("a picture of %d x %d pixels has no grid; sides are 1 to %d pixels", width, height, MaxPictureSide)
	}
	if long, short := max(width, height), min(width, height); long > MaxAspect*short {
		return Grid{}, fault.Userf("a picture of %d x %d pixels is longer than %d times its width; crop it or leave it out", width, height, MaxAspect)
	}
	rows, cols := max(1, nearest(height, g.unit())), max(1, nearest(width, g.unit()))
	area := g.unit() * g.unit()
	if rows*cols*area < g.MinPixels {
		rows, cols = sqrtCeil(height*g.MinPixels, width*area), sqrtCeil(width*g.MinPixels, height*area)
	}
	if most := g.MaxPixels / area; rows*cols > most {
		rows, cols = sqrtFloor(height*g.MaxPixels, width*area), sqrtFloor(width*g.MaxPixels, height*area)
		rows = min(max(1, rows), most)
		cols = min(max(1, cols), most/rows)
	}
	return Grid{H: rows * g.Merge, W: cols * g.Merge}, nil
}

// nearest is n/unit, rounded, halves to even.
func nearest(n, unit int) int {
	q, r := n/unit, n%unit
	if 2*r > unit || 2*r == unit && q%2 == 1 {
		q++
	}
	return q
}

// sqrtFloor is the square root of a/b, rounded down. The root of a fraction and that of
// its whole part have the same whole part.
func sqrtFloor(a, b int) int {
	n := a / b
	root := int(math.Sqrt(float64(n))) // a guess, corrected below
	for root*root > n {
		root--
	}
	for (root+1)*(root+1) <= n {
		root++
	}
	return root
}

// sqrtCeil is the square root of a/b, rounded up.
func sqrtCeil(a, b int) int {
	n := (a + b - 1) / b
	root := sqrtFloor(n, 1)
	if root*root < n {
		root++
	}
	return root
}
