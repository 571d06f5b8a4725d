package samples

import (
	"fmt"

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
	size := 0
	for _, list := range s.Images {
		for i := range list {
			size += len(list[i].Data)
		}
	}
	field(5).(*array.BinaryBuilder).ReserveData(size)
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
			if image.Data == nil {
				field(5).AppendNull()
			} else {
				field(5).(*array.BinaryBuilder).Append(image.Data)
			}
			field(6).(*array.BooleanBuilder).Append(image.Decoded)
		}
	}
	return b.NewArray()
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
				image.Data = data.Value(k)
			}
			images[i] = append(images[i], image)
		}
	}
	return images, nil
}
