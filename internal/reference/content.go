package reference

import (
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// content adds a sample's mask, images and kept values to its row, whose next document it
// is.
func (t sample) content(row *batch.Row) {
	for _, v := range t.kept {
		row.Kept = append(row.Kept, batch.Kept{Document: len(row.Segments), Column: v.Column, Data: v.Data})
	}
	if t.masked != nil {
		row.Masked = append(row.Masked, make([][]int32, len(row.Segments)+1-len(row.Masked))...)
		row.Masked[len(row.Segments)] = t.masked
	}
	for _, x := range t.images {
		x.Document = len(row.Segments)
		row.Images = append(row.Images, x)
	}
}

// images copies the images of a sample.
func (s *source) images(list []transform.Image) (images []batch.Image) {
	for _, x := range list {
		images = append(images, batch.Image{
			At: int(x.At), Tokens: transform.Geometry(s.spec.Images()).Tokens(x.Grid), H: x.Grid.H, W: x.Grid.W,
			SHA: x.SHA, Data: append([]byte{}, x.Data...),
		})
	}
	return images
}

// keep copies the kept columns of a sample.
func (s *source) keep(values [][]byte) (kept []batch.Kept) {
	for c, v := range values {
		if v != nil {
			kept = append(kept, batch.Kept{Column: s.spec.Keep[c], Data: append([]byte{}, v...)})
		}
	}
	slices.SortFunc(kept, func(a, b batch.Kept) int { return strings.Compare(a.Column, b.Column) })
	return kept
}
