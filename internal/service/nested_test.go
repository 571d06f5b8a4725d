package service_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"
)

// nested has the conversations of talks as structs in Parquet files, with weights of messages.
var nested = strings.NewReplacer("name: talks", "name: nested", "talks/*.jsonl", "talks/*.parquet", "tools: tools", "tools: tools, loss: weight").Replace(talks)

type (
	nestedTalk struct {
		Messages []nestedTurn `parquet:"messages,list" json:"messages"`
		Tools    []nestedTool `parquet:"tools,list" json:"tools"`
	}
	// nestedTurn has every field that a message of any record has.
	nestedTurn struct {
		From    *string `parquet:"from,optional,dict" json:"from"`
		Role    *string `parquet:"role,optional,dict" json:"role"`
		Content *string `parquet:"content,optional" json:"content"`
		Loss    *bool   `parquet:"loss,optional" json:"loss"`
		Value   *string `parquet:"value,optional" json:"value"`
		// Weight is 0 where Loss is false.
		Weight *float64 `parquet:"weight,optional"`
	}
	nestedTool struct {
		Name   string `parquet:"name" json:"name"`
		Number int64  `parquet:"number" json:"number"`
	}
)

// writeNested writes the conversations of writeTalks beside them as Parquet, in row groups that end
// anywhere; and in the folder whole in each format, every file one chunk.
func writeNested(t testing.TB, dir string) {
	t.Helper()
	for _, name := range []string{"0", "1"} {
		lines, err := os.ReadFile(filepath.Join(dir, name+".jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var rows []nestedTalk
		for line := range bytes.Lines(lines) {
			var row nestedTalk
			if err := json.Unmarshal(line, &row); err != nil {
				t.Fatal(err)
			}
			for i := range row.Messages {
				if m := &row.Messages[i]; m.Loss != nil && !*m.Loss {
					m.Weight = new(0.0)
				}
			}
			rows = append(rows, row)
		}
		write(t, filepath.Join(dir, name+".parquet"), nestedParquet(t, rows, parquet.MaxRowsPerRowGroup(17), parquet.PageBufferSize(100)))
		write(t, filepath.Join(dir, "whole", name+".jsonl"), string(lines))
		write(t, filepath.Join(dir, "whole", name+".parquet"), nestedParquet(t, rows, parquet.Compression(&parquet.Zstd)))
		write(t, filepath.Join(dir, "whole", name+".arrow"), nestedArrow(t, lines))
	}
}

func nestedParquet(t testing.TB, rows []nestedTalk, options ...parquet.WriterOption) string {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[nestedTalk](&b, options...)
	_, err := w.Write(rows)
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func nestedArrow(t testing.TB, lines []byte) string {
	t.Helper()
	text := func(name string) arrow.Field {
		return arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true}
	}
	turn := arrow.StructOf(text("from"), text("role"), text("content"), arrow.Field{Name: "loss", Type: arrow.FixedWidthTypes.Boolean, Nullable: true}, text("value"))
	tool := arrow.StructOf(text("name"), arrow.Field{Name: "number", Type: arrow.PrimitiveTypes.Int32})
	schema := arrow.NewSchema([]arrow.Field{{Name: "messages", Type: arrow.LargeListOf(turn)}, {Name: "tools", Type: arrow.ListOf(tool)}}, nil)
	list := "[" + strings.ReplaceAll(strings.TrimSpace(string(lines)), "\n", ",") + "]"
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(list))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(schema))
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestNested runs a job over the same conversations in each format, in file order, since chance
// goes by the places of records, which differ: what it delivers is the same.
func TestNested(t *testing.T) {
	dir := writeSources(t)
	var want answer
	for _, format := range []string{"jsonl", "parquet", "arrow"} {
		source := strings.NewReplacer("talks/*.jsonl", "talks/whole/*."+format, "chunk_bytes: 2000", "chunk_bytes: 1000000\n    shuffle: false").Replace(talks)
		r := recipe{t.Name() + format, "sources:" + source + `
batch: {sequence_length: 512, sequences: 8, microbatch_size: 2}
topology: {dp: 2, cp: 2}
`, 20, ""}
		got := solve(t, dir, r)
		if format == "jsonl" {
			want = got
		}
		if got.content != want.content || got.skips != want.skips {
			t.Errorf("%s: %x with %d records left out, as JSON Lines %x with %d", format, got.content, got.skips, want.content, want.skips)
		}
		check(t, dir, r, setting{loaders: 2, constructors: 2})
	}
	if want.skips == 0 {
		t.Error("no record was left out")
	}
}
