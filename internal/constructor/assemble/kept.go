package assemble

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/batch"
)

// KeptPrefix begins the names of the tensors that carry kept columns. They stand
// beside the model's keys, never among them: a client hands them out apart.
const KeptPrefix = "keep."

// indexSuffix ends the name of the tensor that says where each value lies.
const indexSuffix = ".index"

// AppendKept appends two tensors for each column, whether any row has a value or
// not: "keep.COLUMN", uint8 [bytes], all values end to end, and
// "keep.COLUMN.index", int64 [values, 4]: the row in the microbatch, the document
// in the row, offset and length in bytes. Tensors begin at aligned offsets, and
// Data aliases the body returned. Ranks of the first pipeline stage get them.
func AppendKept(body []byte, rows []batch.Row, columns []string) ([]byte, []batch.Tensor) {
	type extent struct{ values, index, end int }
	extents := make([]extent, len(columns))
	for c, column := range columns {
		body = pad(body)
		e := extent{values: len(body)}
		var index []byte
		for r, row := range rows {
			for _, k := range row.Kept {
				if k.Column != column {
					continue
				}
				for _, v := range []int{r, k.Document, len(body) - e.values, len(k.Data)} {
					index = binary.LittleEndian.AppendUint64(index, uint64(v))
				}
				body = append(body, k.Data...)
			}
		}
		e.index = len(body)
		body = append(pad(body), index...)
		e.end = len(body)
		extents[c] = e
	}
	var tensors []batch.Tensor
	for c, e := range extents { // body has its final place only now
		values, index := body[e.values:e.index:e.index], body[batch.Aligned(e.index):e.end:e.end]
		tensors = append(tensors,
			batch.Tensor{Name: KeptPrefix + columns[c], DType: batch.Uint8, Shape: []int{len(values)}, Data: values},
			batch.Tensor{Name: KeptPrefix + columns[c] + indexSuffix, DType: batch.Int64, Shape: []int{len(index) / 32, 4}, Data: index})
	}
	return body, tensors
}

func pad(body []byte) []byte {
	return append(body, make([]byte, batch.Aligned(len(body))-len(body))...)
}

// SplitKept parts a rank's tensors into the model's and those of kept columns.
func SplitKept(tensors []batch.Tensor) (model, kept []batch.Tensor) {
	return split(tensors, func(name string) bool { return strings.HasPrefix(name, KeptPrefix) })
}

// split parts tensors by their names. If no name is among those, others are tensors itself.
func split(tensors []batch.Tensor, among func(name string) bool) (others, those []batch.Tensor) {
	first := slices.IndexFunc(tensors, func(t batch.Tensor) bool { return among(t.Name) })
	if first < 0 {
		return tensors, nil
	}
	others = slices.Clone(tensors[:first])
	for _, t := range tensors[first:] {
		if among(t.Name) {
			those = append(those, t)
		} else {
			others = append(others, t)
		}
	}
	return others, those
}

// ReadKept is the inverse of AppendKept: it gives rows the values that tensors
// carry. Values alias the tensors.
func ReadKept(tensors []batch.Tensor, rows []batch.Row) error {
	for i := 0; i+1 < len(tensors); i += 2 {
		values, index := tensors[i], tensors[i+1]
		column := strings.TrimPrefix(values.Name, KeptPrefix)
		if index.Name != values.Name+indexSuffix || len(index.Data)%32 != 0 {
			return fmt.Errorf("tensor %s is not followed by its index but by %s", values.Name, index.Name)
		}
		for at := 0; at < len(index.Data); at += 32 {
			var v [4]uint64
			for k := range v {
				v[k] = binary.LittleEndian.Uint64(index.Data[at+8*k:])
			}
			size := uint64(len(values.Data))
			if v[0] >= uint64(len(rows)) || v[2] > size || v[3] > size-v[2] || v[1] >= uint64(len(rows[v[0]].Segments)) {
				return fmt.Errorf("tensor %s: value %d lies at row %d, document %d, bytes %d+%d, which is outside the microbatch",
					values.Name, at/32, v[0], v[1], v[2], v[3])
			}
			row := &rows[v[0]]
			row.Kept = append(row.Kept, batch.Kept{Document: int(v[1]), Column: column, Data: values.Data[v[2] : v[2]+v[3]]})
		}
	}
	for r := range rows {
		slices.SortStableFunc(rows[r].Kept, func(a, b batch.Kept) int { return a.Document - b.Document })
	}
	return nil
}
