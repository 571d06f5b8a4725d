package formattest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// BenchRows is enough for row groups of some 20 MB, beyond any cache.
const BenchRows = 5000

// Random is what rows are made from, a *rand.Rand of a fixed seed.
type Random interface {
	IntN(n int) int
	Int32N(n int32) int32
}

// TokenRows returns lists of token ids, most of them small, as words are.
func TokenRows(rng Random) [][]int32 {
	rows := make([][]int32, BenchRows)
	for i := range rows {
		for range 512 + rng.IntN(1024) {
			rows[i] = append(rows[i], rng.Int32N(1+rng.Int32N(100_000)))
		}
	}
	return rows
}

// TextRows returns texts of made-up words.
func TextRows(rng Random) []string {
	words := make([]string, 4000)
	for i := range words {
		words[i] = strings.Repeat(string(rune('a'+rng.IntN(26))), 1+rng.IntN(3)) + fmt.Sprint(rng.IntN(1000))
	}
	rows := make([]string, BenchRows)
	for i := range rows {
		var b strings.Builder
		for range 200 + rng.IntN(600) {
			b.WriteString(words[rng.IntN(1+rng.IntN(len(words)))] + " ")
		}
		rows[i] = b.String()
	}
	return rows
}

// Bench reads all chunks and copies the values of the column out, which is the least
// that a caller does; bytes are those of the decoded column.
func Bench(b *testing.B, f format.Format, obj store.Object, column string) {
	b.Helper()
	ctx, opt := context.Background(), format.Options{Columns: []string{column}}
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
			err := format.Read(ctx, f, store.Local{}, obj, chunk, opt, func(r *format.Record) error {
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
