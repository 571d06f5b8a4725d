package imaging

import "slices"

// view is a picture of 3 bytes a pixel, seen in some orientation: pixel
// (x, y) is at first + x*right + y*down.
type view struct {
	rgb                []byte
	first, right, down int
}

// turned returns the view of a picture, stored with width x height pixels, in one of
// the orientations 1 to 8 of EXIF. From 5 on, rows become columns.
func turned(rgb []byte, width, height, orientation int) view {
	const pixel = 3
	row := pixel * width
	v := view{rgb: rgb, right: pixel, down: row}
	mirror := func() { v.first, v.right = v.first+(width-1)*pixel, -pixel }
	flip := func() { v.first, v.down = v.first+(height-1)*row, -row }
	switch orientation {
	case 2, 3, 7, 8:
		mirror()
	}
	switch orientation {
	case 3, 4, 6, 7:
		flip()
	}
	if orientation >= 5 {
		v.right, v.down = v.down, v.right
	}
	return v
}

// appendPatches cuts a picture of the grid's size.
func (g Geometry) appendPatches(dst []byte, v view, grid Grid) []byte {
	dst = slices.Grow(dst, grid.Patches()*g.PatchBytes())
	for row := 0; row < grid.H; row += g.Merge {
		for col := 0; col < grid.W; col += g.Merge {
			for i := range g.Merge * g.Merge {
				at := v.first + (row+i/g.Merge)*g.Patch*v.down + (col+i%g.Merge)*g.Patch*v.right
				dst = g.appendPatch(dst, v, at)
			}
		}
	}
	return dst
}

// appendPatch appends one patch, channel by channel.
func (g Geometry) appendPatch(dst []byte, v view, at int) []byte {
	plane, n := g.Patch*g.Patch, len(dst)
	dst = dst[:n+3*plane]
	red, green, blue := dst[n:n+plane], dst[n+plane:n+2*plane], dst[n+2*plane:]
	i := 0
	for range g.Patch {
		p := at
		for range g.Patch {
			red[i], green[i], blue[i] = v.rgb[p], v.rgb[p+1], v.rgb[p+2]
			p += v.right
			i++
		}
		at += v.down
	}
	return dst
}
