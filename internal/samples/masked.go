package samples

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const maskedName = "masked"

var maskedType = arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int32)

func maskedColumn(s *Set) arrow.Array {
	b := array.NewListBuilderWithField(memory.DefaultAllocator, maskedType.ElemField())
	defer b.Release()
	bounds := b.ValueBuilder().(*array.Int32Builder)
	for i := range s.Len() {
		b.Append(true)
		if i < len(s.Masked) {
			bounds.AppendValues(s.Masked[i], nil)
		}
	}
	return b.NewArray()
}

// viewMasked reads a column that maskedColumn made of the samples of s. Bounds are
// borrowed from it.
func viewMasked(col arrow.Array, s *Set) ([][]int32, error) {
	if !arrow.TypeEqual(col.DataType(), maskedType) {
		return nil, fmt.Errorf("decoding samples: loss masks are %s, not %s", col.DataType(), maskedType)
	}
	list := col.(*array.List)
	if list.Len() != s.Len() {
		return nil, fmt.Errorf("decoding samples: loss masks of %d samples for %d", list.Len(), s.Len())
	}
	values := list.ListValues().(*array.Int32).Int32Values()
	masked := make([][]int32, list.Len())
	for i := range masked {
		first, end := list.ValueOffsets(i)
		if first < 0 || first > end || end > int64(len(values)) {
			return nil, fmt.Errorf("decoding samples: bounds %d to %d of %d", first, end, len(values))
		}
		if first == end {
			continue
		}
		masked[i] = values[first:end:end]
		if err := CheckMasked(masked[i], len(s.Sample(i))); err != nil {
			return nil, fmt.Errorf("decoding samples: sample %d: %w", i, err)
		}
	}
	return masked, nil
}

// CheckMasked makes sure that bounds are those of runs of tokens without loss in a sample of
// n tokens: rising, not touching, without the first token.
func CheckMasked(bounds []int32, n int) error {
	last := int32(0)
	for _, at := range bounds {
		if at <= last || int(at) > n {
			last = -1
			break
		}
		last = at
	}
	if last < 0 || len(bounds)%2 != 0 {
		return fmt.Errorf("bounds %v are not those of runs within %d tokens", bounds[:min(len(bounds), 8)], n)
	}
	return nil
}
