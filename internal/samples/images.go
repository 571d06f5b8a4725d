package samples

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const imagesName = "images"

// imageFields are the fields of Image, in its order.
var imageFields = arrow.StructOf(
	arrow.Field{Name: "at", Type: arrow.PrimitiveTypes.Int32},
	arrow.Field{Name: "h", Type: arrow.PrimitiveTypes.Int32},
	arrow.Field{Name: "w", Type: arrow.PrimitiveTypes.Int32},
	arrow.Field{Name: "sha256", Type: &arrow.FixedSizeBinaryType{ByteWidth: 32}},
	arrow.Field{Name: "origin", Type: arrow.BinaryTypes.String},
	arrow.Field{Name: "data", Type: arrow.BinaryTypes.LargeBinary, Nullable: true},
	arrow.Field{Name: "decoded", Type: arrow.FixedWidthTypes.Boolean},
)

var imagesType = arrow.ListOfNonNullable(imageFields)

func imageColumn(s *Set) arrow.Array {
	b := array.NewListBuilderWithField(memory.DefaultAllocator, imagesType.ElemField())
	defer b.Release()
	images := b.ValueBuilder().(*array.StructBuilder)
	field := func(i int) array.Builder { return images.FieldBuilder(i) }
	var data [][]byte
	for i := range s.Len() {
		b.Append(true)
		if i >= len(s.Images) {
			continue
		}
		for k := range s.Images[i] {
			image := &s.Images[i][k]
			images.Append(true)
			for f, n := range []int32{image.At, image.H, image.W} {
				field(f).(*array.Int32Builder).Append(n)
			}
			field(3).(*array.FixedSizeBinaryBuilder).Append(image.SHA[:])
			field(4).(*array.StringBuilder).Append(image.Origin)
			field(dataField).AppendNull() // withData puts it there
			field(6).(*array.BooleanBuilder).Append(image.Decoded)
			data = append(data, image.Data)
		}
	}
	without := b.NewArray()
	defer without.Release()
	return withData(without.Data(), data)
}

// dataField is the number of the field that has the images' data.
const dataField = 5

// withData is a column of images with their data: nil is null.
func withData(column arrow.ArrayData, data [][]byte) arrow.Array {
	offsets, valid, nulls := make([]byte, 8, 8*(len(data)+1)), make([]byte, (len(data)+7)/8), 0
	end := uint64(0)
	for i, v := range data {
		end += uint64(len(v))
		offsets = binary.LittleEndian.AppendUint64(offsets, end)
		if v == nil {
			nulls++
		} else {
			valid[i/8] |= 1 << (i % 8)
		}
	}
	buffers := []*memory.Buffer{memory.NewBufferBytes(valid), memory.NewBufferBytes(offsets), memory.NewBufferBytes(joined(data))}
	field := array.NewData(arrow.BinaryTypes.LargeBinary, len(data), buffers, nil, nulls, 0)
	defer field.Release()
	images := column.Children()[0]
	fields := slices.Clone(images.Children())
	fields[dataField] = field
	filled := array.NewData(images.DataType(), images.Len(), images.Buffers(), fields, images.NullN(), 0)
	defer filled.Release()
	list := array.NewData(column.DataType(), column.Len(), column.Buffers(), []arrow.ArrayData{filled}, column.NullN(), 0)
	defer list.Release()
	return array.NewListData(list)
}

// joined are pieces as one: the memory that they lie in, if they lie there one after the other, and a
// copy otherwise.
func joined(pieces [][]byte) []byte {
	pieces = slices.DeleteFunc(slices.Clone(pieces), func(p []byte) bool { return len(p) == 0 })
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	if size == 0 {
		return nil
	}
	if whole := pieces[0]; cap(whole) >= size {
		whole, at := whole[:size], 0
		apart := slices.IndexFunc(pieces, func(p []byte) bool {
			here := &whole[at] == &p[0]
			at += len(p)
			return !here
		})
		if apart < 0 {
			return whole
		}
	}
	whole := make([]byte, 0, size)
	for _, p := range pieces {
		whole = append(whole, p...)
	}
	return whole
}

// viewImages reads a column that imageColumn made from n samples. Data is borrowed from it.
func viewImages(col arrow.Array, n int) ([][]Image, error) {
	if !arrow.TypeEqual(col.DataType(), imagesType) {
		return nil, fmt.Errorf("decoding samples: images are %s, not %s", col.DataType(), imagesType)
	}
	list := col.(*array.List)
	if list.Len() != n {
		return nil, fmt.Errorf("decoding samples: images of %d samples for %d", list.Len(), n)
	}
	fields := list.ListValues().(*array.Struct)
	var numbers [3]*array.Int32
	for f := range numbers {
		numbers[f] = fields.Field(f).(*array.Int32)
	}
	sha, origin := fields.Field(3).(*array.FixedSizeBinary), fields.Field(4).(*array.String)
	data, decoded := fields.Field(5).(*array.LargeBinary), fields.Field(6).(*array.Boolean)
	images := make([][]Image, n)
	for i := range images {
		first, end := list.ValueOffsets(i)
		if first < 0 || end > int64(fields.Len()) {
			return nil, fmt.Errorf("decoding samples: images %d to %d of %d", first, end, fields.Len())
		}
		for k := int(first); k < int(end); k++ {
			image := Image{
				At: numbers[0].Value(k), H: numbers[1].Value(k), W: numbers[2].Value(k),
				SHA: [32]byte(sha.Value(k)), Origin: origin.Value(k), Decoded: decoded.Value(k),
			}
			if !data.IsNull(k) {
				if image.Data = data.Value(k); image.Data == nil {
					image.Data = []byte{} // of no bytes, unlike one that was not asked for
				}
			}
			images[i] = append(images[i], image)
		}
	}
	return images, nil
}
