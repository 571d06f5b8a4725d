package decoders_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	arrowlib "github.com/apache/arrow-go/v18/arrow"
	arrowarray "github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/arrow"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/format/parquet"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

type turn struct {
	Role    string `parquet:"role"`
	Content string `parquet:"content"`
}

type chat struct {
	Text     string  `parquet:"text"`
	Tokens   []int32 `parquet:"tokens,list"`
	Messages []turn  `parquet:"messages,list"`
	Lang     *string `parquet:"lang,optional"`
}

func parquetFile(t testing.TB, codec func(*pqgo.WriterConfig)) []byte {
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[chat](&b, pqgo.MaxRowsPerRowGroup(3), pqgo.WriterOption(option(codec)))
	for i := range 7 {
		row := chat{Text: fmt.Sprintf("text %d", i), Tokens: []int32{1, 2, 3}[:i%4]}
		for range i % 3 {
			row.Messages = append(row.Messages, turn{"user", "hello"})
		}
		if i%2 == 0 {
			row.Lang = new("en")
		}
		if _, err := w.Write([]chat{row}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type option func(*pqgo.WriterConfig)

func (o option) ConfigureWriter(c *pqgo.WriterConfig) { o(c) }

func arrowFile(t testing.TB, file bool, options ...ipc.Option) []byte {
	schema := arrowlib.NewSchema([]arrowlib.Field{
		{Name: "text", Type: arrowlib.BinaryTypes.String},
		{Name: "tokens", Type: arrowlib.ListOf(arrowlib.PrimitiveTypes.Int32), Nullable: true},
	}, nil)
	rec, _, err := arrowarray.RecordFromJSON(memory.DefaultAllocator, schema,
		strings.NewReader(`[{"text":"a","tokens":[1,2]},{"text":"b ü","tokens":null},{"text":"","tokens":[]}]`))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	var b bytes.Buffer
	options = append(options, ipc.WithSchema(schema))
	write := func(w interface {
		Write(arrowlib.RecordBatch) error
	}, close func() error) {
		for range 2 {
			if err := w.Write(rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := close(); err != nil {
			t.Fatal(err)
		}
	}
	if file {
		w, err := ipc.NewFileWriter(&b, options...)
		if err != nil {
			t.Fatal(err)
		}
		write(w, w.Close)
	} else {
		w := ipc.NewWriter(&b, options...)
		write(w, w.Close)
	}
	return b.Bytes()
}

func TestColumnarConformance(t *testing.T) {
	parquet := func(codec func(*pqgo.WriterConfig)) formattest.Case {
		return formattest.Case{
			Format: parquet.Format{}, File: "/a.parquet", Files: map[string][]byte{"/a.parquet": parquetFile(t, codec)},
			Columns: []string{"text", "tokens", "messages[].role", "lang"}, Records: 7, Missing: "title", MissingIsError: true,
		}
	}
	arrows := func(file bool, options ...ipc.Option) formattest.Case {
		return formattest.Case{
			Format: arrow.Format{}, File: "/a.arrow", Files: map[string][]byte{"/a.arrow": arrowFile(t, file, options...)},
			Columns: []string{"text", "tokens"}, Records: 6, Missing: "title", MissingIsError: true,
			// A stream may end without its end mark, after any batch.
			Unframed: !file,
		}
	}
	for name, c := range map[string]formattest.Case{
		"parquet":      parquet(func(*pqgo.WriterConfig) {}),
		"parquet.zstd": parquet(func(c *pqgo.WriterConfig) { c.Compression = &pqgo.Zstd }),
		"parquet.v1":   parquet(func(c *pqgo.WriterConfig) { c.DataPageVersion = 1 }),
		"arrow file":   arrows(true, ipc.WithLZ4()),
		"arrow stream": arrows(false),
	} {
		t.Run(name, func(t *testing.T) { formattest.Run(t, c) })
	}
}

// TestColumnarAgainstJSONL reads the same data set as columns and as JSON Lines.
func TestColumnarAgainstJSONL(t *testing.T) {
	dir := testdata.Dir(t)
	for _, c := range []struct {
		columnar, lines string
		columns         []string
		renamed         []string // in the lines, if other
	}{
		{"parquet/written-by-duckdb/songci-lz4raw-rg2048.parquet", "text/poetry-zh/songci.jsonl", []string{"text", "author", "rhythmic"}, nil},
		{"parquet/written-by-duckdb/stackexchange-zstd-v2.parquet", "text/redpajama-sample/stackexchange.jsonl", []string{"text"}, nil},
		{"parquet/written-by-duckdb/books-one-rowgroup-gzip.parquet", "text/books/books.jsonl.zst", []string{"text", "title", "author"}, nil},
		{"parquet/written-by-parquet-go/gsm8k-test-rg64-v2pages-zstd.parquet", "text/gsm8k/test.jsonl", []string{"question", "answer"}, nil},
		{"parquet/written-by-polars/c4-zstd.parquet", "text/redpajama-sample/c4-rp.jsonl", []string{"text", "url"}, []string{"text", "meta.url"}},
		{"arrow-ipc/written-by-polars/c4-400-lz4.arrow", "text/redpajama-sample/c4-rp.jsonl", []string{"text", "url"}, []string{"text", "meta.url"}},
		{"arrow-ipc/written-by-polars/c4-100-uncompressed.arrow", "text/redpajama-sample/c4-rp.jsonl", []string{"text", "url"}, []string{"text", "meta.url"}},
	} {
		if c.renamed == nil {
			c.renamed = c.columns
		}
		got, want := values(t, filepath.Join(dir, c.columnar), c.columns), values(t, filepath.Join(dir, c.lines), c.renamed)
		known := map[string]bool{}
		for _, v := range want {
			known[v] = true
		}
		for i, v := range got {
			if !known[v] {
				t.Errorf("%s: record %d is not in %s: %.100s", c.columnar, i, c.lines, v)
				break
			}
		}
		if len(got) == 0 {
			t.Errorf("%s: no records", c.columnar)
		}
		t.Logf("%s: %d records", c.columnar, len(got))
	}
}

// values prints the records of a file, by its extension.
func values(t *testing.T, path string, columns []string) (printed []string) {
	t.Helper()
	f, err := decoders.ByPath(path)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := store.Local{}.Stat(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	records, err := formattest.ReadAll(t.Context(), f, store.Local{}, obj, format.Options{Columns: columns})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		r.Row = 0
		printed = append(printed, formattest.Print(r))
	}
	return printed
}
