package format

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// benchRows is enough for row groups of some 20 MB, beyond any cache.
const benchRows = 5000

type tokenRow struct {
	Tokens []int32 `parquet:"tokens,list"`
}

type wideRow struct {
	Tokens []int64 `parquet:"tokens,list"`
}

type textRow struct {
	Text string `parquet:"text"`
}

func tokenRows() []tokenRow {
	rng := newRand(1)
	rows := make([]tokenRow, benchRows)
	for i := range rows {
		for range 512 + rng.IntN(1024) {
			// Ids fall off as words do: most are small.
			rows[i].Tokens = append(rows[i].Tokens, rng.Int32N(1+rng.Int32N(100_000)))
		}
	}
	return rows
}

func textRows() []textRow {
	rng := newRand(2)
	words := make([]string, 4000)
	for i := range words {
		words[i] = strings.Repeat(string(rune('a'+rng.IntN(26))), 1+rng.IntN(3)) + fmt.Sprint(rng.IntN(1000))
	}
	rows := make([]textRow, benchRows)
	for i := range rows {
		var b strings.Builder
		for range 200 + rng.IntN(600) {
			b.WriteString(words[rng.IntN(1+rng.IntN(len(words)))] + " ")
		}
		rows[i].Text = b.String()
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
	return statObject(b, path)
}

// benchRead reads all chunks and copies the values of the column out, which is
// the least that a caller does; bytes are those of the decoded column.
func benchRead(b *testing.B, f Format, obj store.Object, column string) {
	b.Helper()
	ctx, opt := context.Background(), Options{Columns: []string{column}}
	var tokens []int32
	var text []byte
	var offsets []int
	bytes, sum := 0, int64(0)
	b.ReportAllocs()
	for b.Loop() {
		bytes = 0
		chunks, err := f.Chunks(ctx, store.Local{}, obj, opt)
		if err != nil {
			b.Fatal(err)
		}
		for chunk := range chunks {
			tokens, text, offsets = tokens[:0], text[:0], offsets[:0]
			err := f.Read(ctx, store.Local{}, obj, chunk, opt, func(r *Record) error {
				v := &r.Values[0]
				tokens, text = append(tokens, v.Tokens...), append(text, v.Bytes...)
				offsets = append(offsets, len(tokens)+len(text))
				return r.Err
			})
			if err != nil {
				b.Fatal(err)
			}
			bytes += 4*len(tokens) + len(text)
		}
		sum += int64(len(offsets))
	}
	b.SetBytes(int64(bytes))
	if sum == 0 {
		b.Fatal("nothing was read")
	}
}

func BenchmarkParquetTokens(b *testing.B) {
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
		b.Run(c.name, func(b *testing.B) { benchRead(b, Parquet{}, writeBench(b, rows, c.options...), "tokens") })
	}
	b.Run("int64-plain", func(b *testing.B) { benchRead(b, Parquet{}, writeBench(b, wide), "tokens") })
}

func BenchmarkParquetText(b *testing.B) {
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
		b.Run(c.name, func(b *testing.B) { benchRead(b, Parquet{}, writeBench(b, rows, c.options...), "text") })
	}
}
