package decoders_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	arrowlib "github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"
	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// heap is the memory in use, once nothing is left to collect or to use again.
func heap() int64 {
	for range 3 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// noise returns text that does not compress to nothing.
func noise(n int) string {
	b := make([]byte, n)
	x := uint32(1)
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = 'a' + byte(x>>24)%26
	}
	return string(b)
}

// TestHeld compares what a reader says it holds with the heap, in the middle of large
// inputs of every format: the figure is what a budget of bytes will go by.
func TestHeld(t *testing.T) {
	text := noise(12 << 20)
	line := `{"text":"` + text + `\n"}` + "\n"
	tokens := make([]int32, 4<<20)
	for name, c := range map[string]struct {
		files   map[string][]byte
		columns string
	}{
		"a.txt":       {map[string][]byte{"/a.txt": []byte(text)}, "text"},
		"a.txt.gz":    {map[string][]byte{"/a.txt.gz": gzipped([]byte(text))}, "text"},
		"a.jsonl":     {map[string][]byte{"/a.jsonl": []byte(line + line)}, "text"},
		"a.jsonl.zst": {map[string][]byte{"/a.jsonl.zst": wideZstd(t, strings.Repeat(`{"text":"`+text[:1000]+`"}`+"\n", 20000))}, "text"},
		"a.json":      {map[string][]byte{"/a.json": []byte("[" + line + "," + line + "]")}, "text"},
		"lists.jsonl": {map[string][]byte{"/lists.jsonl": []byte(`{"l":["a"` + strings.Repeat(`,"b"`, 200_000) + "]}\n")}, "l"},
		"a.tar":       {map[string][]byte{"/a.tar": tarOf([]member{{"1.jpg", text}, {"1.txt", text}, {"2.jpg", "x"}})}, "jpg txt"},
		"a.idx":       {megatronFiles([][][]int32{{tokens}, {tokens}}), "tokens"},
		"text.parquet": {map[string][]byte{"/text.parquet": parquetOf(t, []heldRow{{Text: text[:3<<20], Tokens: tokens}, {Text: text[:3<<20]}})},
			"text tokens"},
		"lists.parquet": {map[string][]byte{"/lists.parquet": parquetOf(t, []heldRow{{Words: strings.Split(text[:1<<20], "a")}})}, "words"},
		"a.arrow":       {map[string][]byte{"/a.arrow": arrowOf(t, text)}, "text"},
		"zstd.arrow":    {map[string][]byte{"/zstd.arrow": arrowOf(t, text, ipc.WithZstd())}, "text"},
	} {
		st, obj := stored(t, c.files, "/"+name)
		f, err := decoders.ByPath(name)
		if err != nil {
			t.Fatal(err)
		}
		held, used, err := heldAndUsed(t.Context(), f, st, obj, strings.Fields(c.columns))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Logf("%s: %d bytes, of the heap %d", name, held, used)
		if held < used/2 || held > 2*used {
			t.Errorf("%s: the reader says that it holds %d bytes, and takes %d", name, held, used)
		}
	}
}

func heldAndUsed(ctx context.Context, f format.Format, st store.Store, obj store.Object, columns []string) (held, used int64, err error) {
	before := heap()
	r, err := f.Open(ctx, st, obj, 0, 0, format.Options{Columns: columns, ChunkBytes: 1 << 40})
	if err != nil {
		return 0, 0, err
	}
	defer r.Close()
	rec, err := r.Next()
	if err != nil || rec.Err != nil {
		return 0, 0, fmt.Errorf("%v %w", rec, err)
	}
	used = heap() - before
	held = r.Held()
	runtime.KeepAlive(rec)
	return held, used, nil
}

// wideZstd compresses with a window of 8 MiB, as zstd -19 does.
func wideZstd(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, zstd.WithWindowSize(8<<20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func megatronFiles(documents [][][]int32) map[string][]byte {
	idx, bin := pair(documents)
	return map[string][]byte{"/a.idx": idx, "/a.bin": bin}
}

type heldRow struct {
	Text   string   `parquet:"text,zstd"`
	Tokens []int32  `parquet:"tokens,list"`
	Words  []string `parquet:"words,list,dict"`
}

func parquetOf(t *testing.T, rows []heldRow) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[heldRow](&b)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func arrowOf(t *testing.T, text string, options ...ipc.Option) []byte {
	t.Helper()
	schema := arrowlib.NewSchema([]arrowlib.Field{{Name: "text", Type: arrowlib.BinaryTypes.String}}, nil)
	column := array.NewStringBuilder(memory.DefaultAllocator)
	column.AppendValues([]string{text, text}, nil)
	var b bytes.Buffer
	w, err := ipc.NewFileWriter(&b, append(options, ipc.WithSchema(schema))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(array.NewRecordBatch(schema, []arrowlib.Array{column.NewArray()}, 2)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
