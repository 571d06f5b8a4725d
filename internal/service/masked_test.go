package service_test

import (
	"bytes"
	endian "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// indexed has the tokens of masked as Megatron pairs, with the masks in pairs beside them.
var indexed = strings.NewReplacer(
	"name: masked", "name: indexed", "masked/*.jsonl", "masked/*_text_document.idx", "    keep: [id]\n", "", "tokens: ids", "tokens: tokens",
	"loss_mask: loss", "loss_mask: loss_mask",
).Replace(masked)

// maskedRow is a record of writeMasked, as Parquet has it.
type maskedRow struct {
	IDs  []int32 `parquet:"ids,list"`
	Loss []int32 `parquet:"loss,list"`
}

// writeIndexed writes the records of writeMasked beside them as Parquet and as Megatron pairs.
func writeIndexed(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"0", "1"} {
		rows := readMasked(t, filepath.Join(dir, name+".jsonl"))
		var b bytes.Buffer
		w := parquet.NewGenericWriter[maskedRow](&b)
		_, err := w.Write(rows)
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name+".parquet"), b.String())
		var tokens, masks [][]int32
		for _, row := range rows {
			tokens, masks = append(tokens, row.IDs), append(masks, row.Loss)
		}
		writePair(t, filepath.Join(dir, name+"_text_document"), 2, tokens)
		writePair(t, filepath.Join(dir, name+"_loss_mask_document"), 1, masks)
	}
}

// readMasked reads records of writeMasked; no mask means that all tokens carry loss.
func readMasked(t testing.TB, path string) (rows []maskedRow) {
	t.Helper()
	lines, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(lines) {
		var record struct {
			IDs  []int32
			Loss []any
		}
		if err := json.Unmarshal(line, &record); err != nil {
			t.Fatal(err)
		}
		row := maskedRow{IDs: record.IDs, Loss: make([]int32, len(record.IDs))}
		for i := range row.Loss {
			if record.Loss == nil || record.Loss[i] == true || record.Loss[i] == 1.0 {
				row.Loss[i] = 1
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// writePair writes a Megatron dataset of numbers of one or two bytes, a sequence a document.
func writePair(t testing.TB, prefix string, width int, documents [][]int32) {
	t.Helper()
	var sizes, pointers, indices, bin []byte
	for i, doc := range documents {
		sizes = endian.LittleEndian.AppendUint32(sizes, uint32(len(doc)))
		pointers = endian.LittleEndian.AppendUint64(pointers, uint64(len(bin)))
		indices = endian.LittleEndian.AppendUint64(indices, uint64(i))
		for _, x := range doc {
			bin = append(bin, endian.LittleEndian.AppendUint16(nil, uint16(x))[:width]...)
		}
	}
	n := uint64(len(documents))
	idx := endian.LittleEndian.AppendUint64([]byte("MMIDIDX\x00\x00"), 1)
	idx = append(idx, map[int]byte{1: 1, 2: 8}[width])
	idx = endian.LittleEndian.AppendUint64(endian.LittleEndian.AppendUint64(idx, n), n+1)
	idx = endian.LittleEndian.AppendUint64(append(append(append(idx, sizes...), pointers...), indices...), n)
	write(t, prefix+".idx", string(idx))
	write(t, prefix+".bin", string(bin))
}

// TestMasksOfFormats runs a job over the same tokens and masks in each format, in file order:
// what it delivers is the same.
func TestMasksOfFormats(t *testing.T) {
	dir := writeSources(t)
	whole := strings.NewReplacer("chunk_bytes: 2000", "chunk_bytes: 1000000\n    shuffle: false", "    keep: [id]\n", "")
	var want answer
	for i, source := range []string{masked, strings.ReplaceAll(masked, "*.jsonl", "*.parquet"), indexed} {
		r := recipe{fmt.Sprint(t.Name(), i), "sources:" + whole.Replace(strings.ReplaceAll(source, "name: indexed", "name: masked")) + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
`, 10, ""}
		got := solve(t, dir, r)
		if i == 0 {
			want = got
		}
		if got.content != want.content || got.skips != 0 {
			t.Errorf("%s: %x with %d records left out, as JSON Lines %x", r.spec, got.content, got.skips, want.content)
		}
		check(t, dir, r, setting{loaders: 2, constructors: 2})
	}
}
