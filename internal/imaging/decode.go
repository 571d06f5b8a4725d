package imaging

import (
	"errors"
	"fmt"
	"image"
	"io"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// Pixels is a picture cut into patches.
type Pixels struct {
	Grid    Grid
	Patches []byte // uint8 [Grid.Patches(), PatchBytes], see Decoder.AppendPatches
}

// Decoder decodes pictures and reuses its memory. The zero value is ready. It is not
// safe for concurrent use.
type Decoder struct {
	// Room is asked before a picture is decoded, for as much as Memory says; nil: there is no limit. Its error
	// is returned as it is.
	Room Room

	rgb    []byte // the picture, 3 bytes a pixel
	half   []byte // resized along one side
	chroma chroma
}

// Decode returns the patches of one picture, with the grid of Geometry.Grid.
func Decode(data []byte, g Geometry) (*Pixels, error) {
	var d Decoder
	patches, grid, err := d.AppendPatches(nil, data, g)
	if err != nil {
		return nil, err
	}
	return &Pixels{Grid: grid, Patches: patches}, nil
}

// AppendPatches decodes a picture and appends the patches of its grid to dst, which
// may be nil. They are uint8 [grid.Patches(), 3, Patch, Patch]: the patches of a block of
// Merge x Merge are adjacent, row by row, and blocks follow row by row, so that
// Merge*Merge consecutive patches are one token; a patch has channels (red, green,
// blue), then rows, then columns.
//
// These are the rows of Qwen2-VL's pixel_values before normalization. That model wants
// each channel of a patch twice, for two equal frames of a still picture: with n patches,
// reshape (n, 3, 1, P*P), repeat the third axis, then reshape (n, 3*2*P*P). Its
// image_grid_thw is (1, grid.H, grid.W).
//
// The result shares no memory with the decoder. On an error dst is returned as it was,
// with class fault.User: pictures that Size or Geometry.Grid refuse, damaged or
// truncated data, and a size other than the header's.
func (d *Decoder) AppendPatches(dst, data []byte, g Geometry) ([]byte, Grid, error) {
	p, err := identify(data)
	if err != nil {
		return dst, Grid{}, err
	}
	info := p.Info
	grid, err := g.Grid(info.Width, info.Height)
	if err != nil {
		return dst, Grid{}, err
	}
	end, err := d.hold(p.patchMemory(grid, g))
	if err != nil {
		return dst, Grid{}, err
	}
	defer end()
	if err := d.load(data, p.format, info); err != nil {
		return dst, Grid{}, err
	}
	// Filters are symmetric, so resizing the stored picture and then turning it gives the
	// same bytes as the other order, if the side that becomes the width is resized first.
	width, height := info.stored()
	outWidth, outHeight := grid.W*g.Patch, grid.H*g.Patch
	if info.Orientation >= 5 {
		d.resizeRows(bicubic, width, height, outWidth)
		d.resizeColumns(bicubic, width, outWidth, outHeight)
		outWidth, outHeight = outHeight, outWidth
	} else {
		d.resizeColumns(bicubic, width, height, outWidth)
		d.resizeRows(bicubic, outWidth, height, outHeight)
	}
	return g.appendPatches(dst, turned(d.rgb, outWidth, outHeight, info.Orientation), grid), grid, nil
}

// Verify decodes a picture and drops the pixels. It returns the errors that
// AppendPatches would.
func (d *Decoder) Verify(data []byte) error {
	p, err := identify(data)
	if err != nil {
		return err
	}
	end, err := d.hold(p.memory)
	if err != nil {
		return err
	}
	defer end()
	return d.load(data, p.format, p.Info)
}

// load decodes a picture into d.rgb, as it is stored.
func (d *Decoder) load(data []byte, f *format, info Info) error {
	width, height := info.stored()
	m, err := f.safely(data)
	if err != nil {
		why := "it is damaged"
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			why = "it is truncated, or damaged"
		}
		return fault.Userf("decoding a %s picture of %d x %d pixels: %w; %s, or of a kind that is not decoded here", f.name, width, height, err, why)
	}
	canvas := image.Rect(0, 0, width, height)
	if b := m.Bounds(); b != canvas && (f.name != "gif" || !b.In(canvas)) {
		return fault.Userf("a %s header says %d x %d pixels, but its data has %d x %d: it is damaged", f.name, width, height, b.Dx(), b.Dy())
	}
	d.rgb = sized(d.rgb, 3*width*height)
	return d.fill(m, canvas, f.name == "webp")
}

// safely decodes a picture and recovers panics. The decoders of the standard library
// and x/image share no state, so a panic over damaged data does no harm.
func (f *format) safely(data []byte) (m image.Image, err error) {
	defer func() {
		if p := recover(); p != nil {
			m, err = nil, fmt.Errorf("the decoder panicked: %v", p)
		}
	}()
	return f.decode(data)
}

// sized returns a slice of n bytes, in the memory of b if that is enough. Its content
// is arbitrary.
func sized[T any](b []T, n int) []T {
	return slices.Grow(b[:0], n)[:n]
}
