package decoders_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/format/megatron"
	"github.com/millrace-data/millrace/internal/sourceloader/format/tar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/text"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

// generated is lines of prose with as many escapes as web text has.
func generated(lineBytes, total int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < total; i++ {
		text := strings.Repeat("The mill grinds what the \\\"river\\\" brings, day and night.\\n", lineBytes/60+1)
		fmt.Fprintf(&b, `{"id":%d,"url":"https://example.org/%d","text":"%s","meta":{"lang":"en","score":0.25}}`+"\n", i, i, text)
	}
	return b.Bytes()
}

func benchmark(b *testing.B, f format.Format, name string, data []byte, column string, chunk int64) {
	b.Helper()
	st, obj := stored(b, map[string][]byte{name: data}, name)
	opt := format.Options{Columns: []string{column}, ChunkBytes: chunk}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	records := 0
	for b.Loop() {
		good, bad, err := count(b.Context(), f, st, obj, opt)
		if err != nil || bad > 0 {
			b.Fatal(bad, err)
		}
		records += good
	}
	b.ReportMetric(float64(records)/b.Elapsed().Seconds(), "records/s")
}

// How fast does one core take one text field out of JSON Lines?
func BenchmarkJSONL(b *testing.B) {
	for _, size := range []int{300, 3000, 300_000} {
		data := generated(size, 16<<20)
		b.Run("generated/line="+strconv.Itoa(size), func(b *testing.B) {
			benchmark(b, json.Lines{}, "/a.jsonl", data, "text", 0)
		})
	}
	if _, ok := testdata.Find(); !ok {
		return
	}
	for _, set := range []struct{ name, file, column string }{
		{"c4", "text/redpajama-sample/c4-rp.jsonl", "text"},
		{"books", "text/books/books.jsonl.zst", "text"},
		{"songci", "text/poetry-zh/songci.jsonl", "text"},
		{"nested", "text/qmsum-meetings/committee_train.jsonl", "meeting_transcripts[].content"},
	} {
		_, obj := openData(b, set.file)
		records, err := formattest.ReadAll(b.Context(), text.Format{}, store.Local{}, obj, format.Options{Columns: []string{"text"}})
		if err != nil {
			b.Fatal(err)
		}
		data := records[0].Values[0].Bytes
		data = bytes.Repeat(append(data[:len(data):len(data)], '\n'), 1+(16<<20)/len(data))
		b.Run(set.name, func(b *testing.B) { benchmark(b, json.Lines{}, "/a.jsonl", data, set.column, 0) })
	}
}

// What does decompression leave of it?
func BenchmarkJSONLCompressed(b *testing.B) {
	data := generated(3000, 16<<20)
	// The repeated text compresses far better than real text; the figure is an upper bound.
	b.Run("gz", func(b *testing.B) { benchmark(b, json.Lines{}, "/a.jsonl.gz", gzipped(data), "text", 0) })
	b.Run("zst", func(b *testing.B) { benchmark(b, json.Lines{}, "/a.jsonl.zst", zstandard(data), "text", 0) })
}

func BenchmarkMegatron(b *testing.B) {
	docs := make([][][]int32, 4000)
	for i := range docs {
		docs[i] = [][]int32{make([]int32, 1000)}
	}
	idx, bin := pair(docs)
	st, obj := stored(b, map[string][]byte{"/a.idx": idx, "/a.bin": bin}, "/a.idx")
	b.SetBytes(int64(len(bin)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := count(b.Context(), megatron.Format{}, st, obj, format.Options{Columns: []string{"tokens"}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWebDataset(b *testing.B) {
	var members []member
	for i := range 300 {
		members = append(members, member{fmt.Sprintf("%06d.jpg", i), strings.Repeat("j", 50_000)}, member{fmt.Sprintf("%06d.txt", i), "a caption"})
	}
	data := tarOf(members)
	b.Run("both", func(b *testing.B) { benchmark(b, tar.Format{}, "/a.tar", data, "jpg", 0) })
	b.Run("captions", func(b *testing.B) { benchmark(b, tar.Format{}, "/a.tar", data, "txt", 0) })
}
