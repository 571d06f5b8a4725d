package tokenize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace-data/millrace/internal/testdata"
)

// corpusBytes bounds a benchmark corpus: more than the caches of a machine, and
// still a tenth of a second a pass.
const corpusBytes = 4 << 20

// corpora are the benchmark texts: kind, file and field of the data folder. A
// field of "" takes the longest string of each record.
var corpora = []struct{ kind, file, field string }{
	{"english-gsm8k", "text/gsm8k/train.jsonl", "question"},
	{"english-c4", "text/redpajama-sample/c4-rp.jsonl", "text"},
	{"english-books", "text/books/books.jsonl.zst", "text"},
	{"code", "text/redpajama-sample/github.jsonl", "text"},
	{"markdown", "text/redpajama-sample/stackexchange.jsonl", "text"},
	{"german", "text/law-de/gesetze.jsonl.gz", "text"},
	{"chinese", "text/poetry-zh/songci.jsonl", ""},
}

func corpus(b *testing.B, file, field string) [][]byte {
	path := filepath.Join(testdata.Dir(b), file)
	var texts [][]byte
	size := 0
	for _, record := range benchRecords(b, path) {
		text := longest(b, record)
		if field != "" {
			text = textOf(b, record, field)
		}
		texts = append(texts, []byte(text))
		if size += len(text); size > corpusBytes {
			break
		}
	}
	return texts
}

func benchRecords(b *testing.B, path string) []json.RawMessage {
	if !strings.HasSuffix(path, ".zst") {
		return records(b, path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	if data, err = d.DecodeAll(data, nil); err != nil {
		b.Fatal(err)
	}
	var lines []json.RawMessage
	for line := range bytes.Lines(data) {
		lines = append(lines, line)
	}
	return lines
}

// longest returns the longest string of a record's fields.
func longest(b *testing.B, record json.RawMessage) string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(record, &fields); err != nil {
		b.Fatal(err)
	}
	best := ""
	for _, f := range fields {
		var s string
		if json.Unmarshal(f, &s) == nil && len(s) > len(best) {
			best = s
		}
	}
	return best
}

func BenchmarkAppend(b *testing.B) {
	for _, name := range Names()[1:] {
		for _, c := range corpora {
			for _, slots := range []int{cacheSlots, 0} {
				b.Run(fmt.Sprintf("%s/%s/cache=%d", name, c.kind, slots), func(b *testing.B) {
					benchmarkAppend(b, load(b, name), corpus(b, c.file, c.field), slots)
				})
			}
		}
	}
}

func benchmarkAppend(b *testing.B, e *Encoding, texts [][]byte, slots int) {
	enc := e.newEncoder(slots)
	var ids []int32
	size, tokens := 0, 0
	for _, t := range texts { // warms the cache and grows ids
		ids = enc.Append(ids[:0], t)
		size += len(t)
		tokens += len(ids)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for _, t := range texts {
			ids = enc.Append(ids[:0], t)
		}
	}
	b.ReportMetric(float64(size)/float64(tokens), "bytes/token")
}

// BenchmarkSplit measures the splitters alone.
func BenchmarkSplit(b *testing.B) {
	needClasses()
	for _, spec := range encodingSpecs {
		for _, c := range corpora {
			b.Run(spec.name+"/"+c.kind, func(b *testing.B) {
				texts := corpus(b, c.file, c.field)
				size := 0
				for _, t := range texts {
					size += len(t)
				}
				b.SetBytes(int64(size))
				for b.Loop() {
					for _, t := range texts {
						for i := 0; i < len(t); {
							i = spec.split(t, i)
						}
					}
				}
			})
		}
	}
}

// BenchmarkOnePiece measures pieces without a split: the time for each byte
// must not grow with the length.
func BenchmarkOnePiece(b *testing.B) {
	e := load(b, "cl100k_base")
	for _, unit := range []string{"a", " ", "ab", "中"} {
		for _, n := range []int{64, 1 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("%q/%d", unit, n), func(b *testing.B) {
				benchmarkAppend(b, e, [][]byte{[]byte(strings.Repeat(unit, n/len(unit)))}, 0)
			})
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	dir := testdata.Dir(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load("cl100k_base", filepath.Join(dir, "tokenizers", "tiktoken", "cl100k_base.tiktoken"), ""); err != nil {
			b.Fatal(err)
		}
	}
}
