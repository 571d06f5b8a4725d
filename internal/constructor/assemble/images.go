package assemble

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/batch"
)

// Names of the tensors of images. Those with ImagePrefix stand beside the model's
// keys; the others are keys of vision models.
const (
	PixelValues  = "pixel_values"
	GridTHW      = "image_grid_thw"
	ImagePrefix  = "image."
	ImageBounds  = ImagePrefix + "cu_seqlens"
	ImageDest    = ImagePrefix + "dest"
	ImageSource  = ImagePrefix + "source"
	ImageDigests = ImagePrefix + "sha256"
	SendCounts   = ImagePrefix + "send_counts"
	RecvCounts   = ImagePrefix + "recv_counts"
)

// Columns of ImageDest and ImageSource.
const (
	destColumns   = 5
	sourceColumns = 8
)

// Encoded is an image that a rank encodes, and whose it is.
type Encoded struct {
	H, W     int // patches
	Rank     int // DP rank of its row
	Row      int // place of the row in its microbatch
	Document int // in the row
	Number   int // of the document's images
	Tokens   int // embeddings
}

// AppendPixels appends the tensors of the images that a rank encodes in one
// microbatch: "pixel_values", uint8 [patches, patchBytes], all patches of the first
// image, then of the second, and so on; "image_grid_thw", int64 [images, 3], 1 and the
// patches down and across; "image.cu_seqlens", int32 [images+1], where each image's
// patches begin; "image.dest", int64 [images, 5], the fields of Encoded from Rank on.
// Tensors begin at aligned offsets. The pixels are left to the caller: those of image
// i belong to the bytes of the body returned from pixels[i] on.
func AppendPixels(body []byte, images []Encoded, patchBytes int) (longer []byte, tensors []batch.Tensor, pixels []int) {
	var grids, dest, bounds []byte
	bounds = binary.LittleEndian.AppendUint32(bounds, 0)
	body = pad(body)
	start, patches := len(body), 0
	for _, e := range images {
		pixels = append(pixels, start+patches*patchBytes)
		patches += e.H * e.W
		bounds = binary.LittleEndian.AppendUint32(bounds, uint32(patches))
		grids = appendInts(grids, 1, e.H, e.W)
		dest = appendInts(dest, e.Rank, e.Row, e.Document, e.Number, e.Tokens)
	}
	size := patches * patchBytes
	body = slices.Grow(body, size)[:start+size]
	tensors = append(tensors, batch.Tensor{Name: PixelValues, DType: batch.Uint8, Shape: []int{patches, patchBytes}, Data: body[start:]})
	n := len(images)
	body, tensors = appendTensor(body, tensors, batch.Tensor{Name: GridTHW, DType: batch.Int64, Shape: []int{n, 3}, Data: grids})
	body, tensors = appendTensor(body, tensors, batch.Tensor{Name: ImageBounds, DType: batch.Int32, Shape: []int{n + 1}, Data: bounds})
	body, tensors = appendTensor(body, tensors, batch.Tensor{Name: ImageDest, DType: batch.Int64, Shape: []int{n, destColumns}, Data: dest})
	return body, tensors, pixels
}

// AppendCounts appends "image.send_counts" and "image.recv_counts", int32 [world]:
// how many embeddings a rank sends to each rank in one microbatch, and gets from each.
func AppendCounts(body []byte, send, recv []int32) ([]byte, []batch.Tensor) {
	column := func(name string, counts []int32) batch.Tensor {
		t := batch.Tensor{Name: name, DType: batch.Int32, Shape: []int{len(counts)}}
		for _, n := range counts {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, uint32(n))
		}
		return t
	}
	body, tensors := appendTensor(body, nil, column(SendCounts, send))
	return appendTensor(body, tensors, column(RecvCounts, recv))
}

// ReadCounts is the inverse of AppendCounts; nil without such tensors.
func ReadCounts(tensors []batch.Tensor) (send, recv []int32, err error) {
	from, to := find(tensors, SendCounts), find(tensors, RecvCounts)
	if from == nil && to == nil {
		return nil, nil, nil
	}
	if err := checkForms(form{from, SendCounts, batch.Int32, 1}, form{to, RecvCounts, batch.Int32, 1}); err != nil {
		return nil, nil, err
	}
	return batch.Elements[int32](from.Data), batch.Elements[int32](to.Data), nil
}

// Source says where the embeddings of an image come from.
type Source struct {
	Encoder int // number of the rank that encodes it
	Ordinal int // which of the images that this rank encodes in the same microbatch
}

// AppendSources appends the tensors of the images of a microbatch's rows, in the
// order of their placeholders: "image.source", int64 [images, 8], the fields of
// Source, then row, document, place of the first placeholder in the document,
// embeddings, patches down and across; "image.sha256", uint8 [images, 32], of the
// encoded images. sources has an entry for each image of rows. Ranks of the first
// pipeline stage get them.
func AppendSources(body []byte, rows []batch.Row, sources []Source) ([]byte, []batch.Tensor) {
	var from, digests []byte
	n := 0
	for r := range rows {
		for _, x := range rows[r].Images {
			s := sources[n]
			from = appendInts(from, s.Encoder, s.Ordinal, r, x.Document, x.At, x.Tokens, x.H, x.W)
			digests = append(digests, x.SHA[:]...)
			n++
		}
	}
	body, tensors := appendTensor(body, nil, batch.Tensor{Name: ImageSource, DType: batch.Int64, Shape: []int{n, sourceColumns}, Data: from})
	return appendTensor(body, tensors, batch.Tensor{Name: ImageDigests, DType: batch.Uint8, Shape: []int{n, 32}, Data: digests})
}

func appendInts(b []byte, values ...int) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func appendTensor(body []byte, tensors []batch.Tensor, t batch.Tensor) ([]byte, []batch.Tensor) {
	body = append(pad(body), t.Data...)
	return body, append(tensors, t)
}

// SplitImages parts a rank's tensors into those of images and all others.
func SplitImages(tensors []batch.Tensor) (others, images []batch.Tensor) {
	return split(tensors, func(name string) bool {
		return name == PixelValues || name == GridTHW || strings.HasPrefix(name, ImagePrefix)
	})
}

// ReadPixels is the inverse of AppendPixels: the images that a rank was given to
// encode, and their patches, which alias the tensors. No images are no error.
func ReadPixels(tensors []batch.Tensor) (images []Encoded, patches [][]byte, err error) {
	pixels, grids, bounds, dest := find(tensors, PixelValues), find(tensors, GridTHW), find(tensors, ImageBounds), find(tensors, ImageDest)
	if pixels == nil && grids == nil && bounds == nil && dest == nil {
		return nil, nil, nil
	}
	if err := checkForms(form{pixels, PixelValues, batch.Uint8, 2}, form{grids, GridTHW, batch.Int64, 2},
		form{bounds, ImageBounds, batch.Int32, 1}, form{dest, ImageDest, batch.Int64, 2}); err != nil {
		return nil, nil, err
	}
	n, size := grids.Shape[0], pixels.Shape[1]
	if grids.Shape[1] != 3 || bounds.Shape[0] != n+1 || dest.Shape[0] != n || dest.Shape[1] != destColumns {
		return nil, nil, fmt.Errorf("tensors of images have shapes %v, %v and %v", grids.Shape, bounds.Shape, dest.Shape)
	}
	at := 0
	for i := range n {
		g, d := ints(grids, i, 3), ints(dest, i, destColumns)
		end := int(int32(binary.LittleEndian.Uint32(bounds.Data[4*(i+1):])))
		if g[0] != 1 || g[1] < 1 || g[2] < 1 || end-at != g[1]*g[2] || end > pixels.Shape[0] {
			return nil, nil, fmt.Errorf("image %d has grid %v and patches %d to %d of %d", i, g, at, end, pixels.Shape[0])
		}
		images = append(images, Encoded{H: g[1], W: g[2], Rank: d[0], Row: d[1], Document: d[2], Number: d[3], Tokens: d[4]})
		patches = append(patches, pixels.Data[at*size:end*size])
		at = end
	}
	if at != pixels.Shape[0] {
		return nil, nil, fmt.Errorf("tensor %s has %d patches, its images have %d", PixelValues, pixels.Shape[0], at)
	}
	return images, patches, nil
}

// ReadSources is the inverse of AppendSources: the images of each of n rows,
// and where each comes from, in the order of rows.
func ReadSources(tensors []batch.Tensor, rows int) (images [][]batch.Image, sources []Source, err error) {
	images = make([][]batch.Image, rows)
	from, digests := find(tensors, ImageSource), find(tensors, ImageDigests)
	if from == nil && digests == nil {
		return images, nil, nil
	}
	if err := checkForms(form{from, ImageSource, batch.Int64, 2}, form{digests, ImageDigests, batch.Uint8, 2}); err != nil {
		return nil, nil, err
	}
	if from.Shape[1] != sourceColumns || digests.Shape[0] != from.Shape[0] || digests.Shape[1] != 32 {
		return nil, nil, fmt.Errorf("tensors of the images of rows have shapes %v and %v", from.Shape, digests.Shape)
	}
	for i := range from.Shape[0] {
		v := ints(from, i, sourceColumns)
		if v[2] < 0 || v[2] >= rows {
			return nil, nil, fmt.Errorf("tensor %s: image %d lies in row %d of %d", ImageSource, i, v[2], rows)
		}
		sources = append(sources, Source{v[0], v[1]})
		images[v[2]] = append(images[v[2]], batch.Image{
			Document: v[3], At: v[4], Tokens: v[5], H: v[6], W: v[7], SHA: [32]byte(digests.Data[32*i:]),
		})
	}
	return images, sources, nil
}

func find(tensors []batch.Tensor, name string) *batch.Tensor {
	for i := range tensors {
		if tensors[i].Name == name {
			return &tensors[i]
		}
	}
	return nil
}

// form is what a tensor must look like.
type form struct {
	tensor *batch.Tensor
	name   string
	dtype  batch.DType
	dims   int
}

func checkForms(forms ...form) error {
	for _, f := range forms {
		switch t := f.tensor; {
		case t == nil:
			return fmt.Errorf("tensor %s is missing", f.name)
		case t.DType != f.dtype || len(t.Shape) != f.dims:
			return fmt.Errorf("tensor %s is %s of shape %v, not %s of %d dimensions", f.name, t.DType, t.Shape, f.dtype, f.dims)
		default:
			if err := t.Check(); err != nil {
				return err
			}
		}
	}
	return nil
}

// ints returns row i of an int64 tensor of n columns.
func ints(t *batch.Tensor, i, n int) []int {
	row := make([]int, n)
	for k := range row {
		row[k] = int(int64(binary.LittleEndian.Uint64(t.Data[8*(i*n+k):])))
	}
	return row
}

// checkImages makes sure that a row's images lie in its documents.
func checkImages(row *batch.Row) error {
	for i, x := range row.Images {
		if x.Document < 0 || x.Document >= len(row.Segments) || x.At < 0 || x.Tokens < 1 || x.Tokens > len(row.Segments[x.Document])-x.At {
			return fmt.Errorf("image %d has %d placeholders from token %d of document %d, which are not there", i, x.Tokens, x.At, x.Document)
		}
	}
	return nil
}
