package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/internal/testdata"
	"github.com/millrace-data/millrace/jobspec"
)

// The recipe of the inputs. Documents are those of the real text sets below, in
// that order, repeated as needed; without the shared
// data set they are synthetic English. Tokens are these documents' cl100k_base
// ids (bytes without a rank file).
const (
	textBytes    = 48 << 20 // in textFiles files
	textFiles    = 6
	tokenCount   = 32 << 20 // 128 MiB of int32, in tokenFiles files
	tokenFiles   = 4
	groupTokens  = 1 << 20 // in a row group: 4 MiB
	corpusTokens = 4 << 20 // distinct tokens; the rest repeats them
)

// textSets are English and code, as in the tokenizer ceiling.
var textSets = []string{
	"text/redpajama-sample/c4-rp.jsonl", "text/redpajama-sample/github.jsonl", "text/redpajama-sample/stackexchange.jsonl",
	"text/redpajama-sample/arxiv.jsonl", "text/redpajama-sample/wiki.jsonl", "text/redpajama-sample/book.jsonl",
	"text/books/books.jsonl.zst", "text/llama-factory/c4_demo.jsonl",
}

// corpus holds the documents of the inputs.
type corpus struct {
	documents [][]byte
	origin    string // description for the report
	tokenize  jobspec.Tokenize
}

func readCorpus(ctx context.Context) (*corpus, error) {
	data, ok := testdata.Find()
	if !ok {
		return synthetic(), nil
	}
	c := &corpus{origin: "real text (RedPajama sample, books, C4)"}
	c.tokenize = jobspec.Tokenize{Encoding: "cl100k_base", Ranks: filepath.Join(data, "tokenizers/tiktoken/cl100k_base.tiktoken")}
	if _, err := os.Stat(c.tokenize.Ranks); err != nil {
		c.tokenize = jobspec.Tokenize{Encoding: "bytes"}
	}
	for _, set := range textSets {
		err := eachRecord(ctx, filepath.Join(data, set), []string{"text"}, func(rec *format.Record) error {
			if rec.Err == nil && rec.Values[0].Kind == format.String {
				c.documents = append(c.documents, bytes.Clone(rec.Values[0].Bytes))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// tokenizeStep is the corpus's tokenizer as a transform of a job spec.
func (c *corpus) tokenizeStep() string {
	if c.tokenize.Ranks == "" {
		return "tokenize: " + c.tokenize.Encoding
	}
	return fmt.Sprintf("tokenize: {encoding: %s, ranks: %q}", c.tokenize.Encoding, c.tokenize.Ranks)
}

// eachRecord reads one file with the reader of its format.
func eachRecord(ctx context.Context, path string, columns []string, fn func(*format.Record) error) error {
	st := store.Local{}
	f, err := decoders.ByPath(path)
	if err != nil {
		return err
	}
	obj, err := st.Stat(ctx, path)
	if err != nil {
		return err
	}
	opt := format.Options{Columns: columns}
	chunks, err := f.Chunks(ctx, st, obj, opt)
	if err != nil {
		return err
	}
	for c := range chunks {
		if err := format.Read(ctx, f, st, obj, c, opt, fn); err != nil {
			return err
		}
	}
	return nil
}

// synthetic is text with English word lengths and a Zipf law of words.
func synthetic() *corpus {
	c := &corpus{origin: "synthetic English (no shared data set)", tokenize: jobspec.Tokenize{Encoding: "bytes"}}
	rng := rand.New(rand.NewPCG(1, 2))
	words := make([][]byte, 20000)
	for i := range words {
		for range 1 + rng.IntN(5) + rng.IntN(6) {
			words[i] = append(words[i], "etaoinshrdlucmfwypvbgkjqxz"[rng.IntN(1+rng.IntN(26))])
		}
	}
	zipf := rand.NewZipf(rng, 1.1, 2, uint64(len(words)-1))
	for range 4000 {
		var doc []byte
		for range 50 + rng.IntN(1500) {
			doc = append(append(doc, words[zipf.Uint64()]...), ' ')
		}
		c.documents = append(c.documents, doc)
	}
	return c
}

// writeText writes textBytes of the corpus as JSONL.
func (c *corpus) writeText(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	next := 0
	for i := range textFiles {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("part-%d.jsonl", i)))
		if err != nil {
			return err
		}
		w := bufio.NewWriterSize(file, 1<<20)
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		for size := 0; size < textBytes/textFiles; next++ {
			doc := c.documents[next%len(c.documents)]
			if err := enc.Encode(map[string]any{"id": next, "text": string(doc)}); err != nil {
				return err
			}
			size += len(doc)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// tokenRow is a row of the tokenized files.
type tokenRow struct {
	InputIDs []int32 `parquet:"input_ids,list"`
}

// tokens are the documents' ids, up to corpusTokens.
func (c *corpus) tokens() ([]tokenRow, error) {
	enc, err := transform.NewTokenizers().Load(c.tokenize)
	if err != nil {
		return nil, err
	}
	encoder := enc.NewEncoder()
	var rows []tokenRow
	n := 0
	for _, doc := range c.documents {
		ids := encoder.Append(nil, doc)
		if len(ids) == 0 {
			continue
		}
		rows = append(rows, tokenRow{ids})
		if n += len(ids); n >= corpusTokens {
			break
		}
	}
	return rows, nil
}

// writePlainTokens writes the corpus as tokens in Parquet without compression, and returns the folder.
func writePlainTokens(ctx context.Context, cfg *config) (dir string, err error) {
	c, err := readCorpus(ctx)
	if err != nil {
		return "", err
	}
	rows, err := c.tokens()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cfg.dir, "plain")
	_, err = writeTokens(dir, rows, false)
	return dir, err
}

// writeTokens writes rows, repeated as needed, until tokenCount tokens are reached,
// and returns their number.
func writeTokens(dir string, rows []tokenRow, compress bool) (tokens int64, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	options := []parquet.WriterOption{parquet.PageBufferSize(1 << 20)}
	if compress {
		options = append(options, parquet.Compression(&zstd.Codec{Level: zstd.DefaultLevel}))
	}
	next := 0
	for i := range tokenFiles {
		path := filepath.Join(dir, fmt.Sprintf("part-%d.parquet", i))
		n, read, err := writeTokenFile(path, rows, next, options)
		if err != nil {
			return 0, err
		}
		tokens, next = tokens+n, read
	}
	return tokens, nil
}

// writeTokenFile writes one file of row groups, from rows[next] on.
func writeTokenFile(path string, rows []tokenRow, next int, options []parquet.WriterOption) (tokens int64, end int, err error) {
	file, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	w := parquet.NewGenericWriter[tokenRow](file, options...)
	for group := 0; tokens < tokenCount/tokenFiles; next++ {
		row := rows[next%len(rows)]
		if _, err := w.Write([]tokenRow{row}); err != nil {
			return 0, 0, err
		}
		tokens, group = tokens+int64(len(row.InputIDs)), group+len(row.InputIDs)
		if group >= groupTokens {
			if err := w.Flush(); err != nil {
				return 0, 0, err
			}
			group = 0
		}
	}
	return tokens, next, w.Close()
}
