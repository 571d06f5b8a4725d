package parquet

import (
	"os"
	"path/filepath"
	"testing"

	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

type tokenRow struct {
	Tokens []int32 `parquet:"tokens,list"`
}

type wideRow struct {
	Tokens []int64 `parquet:"tokens,list"`
}

type textRow struct {
	Text string `parquet:"text"`
}

func tokenRows() (rows []tokenRow) {
	for _, tokens := range formattest.TokenRows(newRand(1)) {
		rows = append(rows, tokenRow{tokens})
	}
	return rows
}

func textRows() (rows []textRow) {
	for _, text := range formattest.TextRows(newRand(2)) {
		rows = append(rows, textRow{text})
	}
	return rows
}

// writeBench writes rows to a temporary file.
func writeBench[T any](b *testing.B, rows []T, options ...pqgo.WriterOption) store.Object {
	b.Helper()
	path := filepath.Join(b.TempDir(), "bench.parquet")
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	w := pqgo.NewGenericWriter[T](file, append([]pqgo.WriterOption{pqgo.PageBufferSize(1 << 20)}, options...)...)
	if _, err := w.Write(rows); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return formattest.Stat(b, path)
}

func BenchmarkTokens(b *testing.B) {
	rows := tokenRows()
	wide := make([]wideRow, len(rows))
	for i, r := range rows {
		for _, id := range r.Tokens {
			wide[i].Tokens = append(wide[i].Tokens, int64(id))
		}
	}
	dict := pqgo.DefaultEncodingFor(pqgo.Int32, &pqgo.RLEDictionary)
	delta := pqgo.DefaultEncodingFor(pqgo.Int32, &pqgo.DeltaBinaryPacked)
	for _, c := range []struct {
		name    string
		options []pqgo.WriterOption
	}{
		{"plain", nil},
		{"plain-zstd", []pqgo.WriterOption{pqgo.Compression(&pqgo.Zstd)}},
		{"dict-snappy", []pqgo.WriterOption{pqgo.Compression(&pqgo.Snappy), dict}},
		{"delta", []pqgo.WriterOption{delta}},
	} {
		b.Run(c.name, func(b *testing.B) { formattest.Bench(b, Format{}, writeBench(b, rows, c.options...), "tokens") })
	}
	b.Run("int64-plain", func(b *testing.B) { formattest.Bench(b, Format{}, writeBench(b, wide), "tokens") })
}

func BenchmarkText(b *testing.B) {
	rows := textRows()
	delta := pqgo.DefaultEncodingFor(pqgo.ByteArray, &pqgo.DeltaLengthByteArray)
	for _, c := range []struct {
		name    string
		options []pqgo.WriterOption
	}{
		{"plain", nil},
		{"zstd", []pqgo.WriterOption{pqgo.Compression(&pqgo.Zstd)}},
		{"snappy", []pqgo.WriterOption{pqgo.Compression(&pqgo.Snappy)}},
		{"delta-zstd", []pqgo.WriterOption{pqgo.Compression(&pqgo.Zstd), delta}},
	} {
		b.Run(c.name, func(b *testing.B) { formattest.Bench(b, Format{}, writeBench(b, rows, c.options...), "text") })
	}
}
