package decoders_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	stdjson "encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/fieldpath"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/format/text"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/testdata"
)

// goodFiles are the files of the shared data set in these formats, with the
// records that its README counts.
var goodFiles = []struct {
	file    string
	columns string
	records int
}{
	{"text/gsm8k/train.jsonl", "question answer", 7473},
	{"text/gsm8k/test.jsonl", "question answer", 1319},
	{"text/redpajama-sample/arxiv.jsonl", "text meta.timestamp", 10},
	{"text/redpajama-sample/book.jsonl", "text meta", 2},
	{"text/redpajama-sample/c4-rp.jsonl", "text meta", 1000},
	{"text/redpajama-sample/cc.jsonl", "text meta", 10},
	{"text/redpajama-sample/github.jsonl", "text meta", 100},
	{"text/redpajama-sample/stackexchange.jsonl", "text meta", 1000},
	{"text/redpajama-sample/wiki.jsonl", "text meta", 10},
	{"text/qmsum-meetings/committee_train.jsonl", "meeting_transcripts[].content meeting_transcripts[].speaker", 24},
	{"text/hh-rlhf/harmless_base_test.jsonl.gz", "chosen rejected", 2312},
	{"text/human-eval/HumanEval.jsonl.gz", "prompt canonical_solution", 164},
	{"text/codexglue/concode_dev.jsonl", "nl code", 2000},
	{"text/llama-factory/c4_demo.jsonl", "text", 300},
	{"text/llama-factory/v1_sft_demo.jsonl", "messages[].content[].value", 500},
	{"text/llama-factory/alpaca_zh_demo.json", "instruction output", 1000},
	{"text/llama-factory/glaive_toolcall_en_demo.json", "conversations[].value tools", 300},
	{"text/llm-foundry/arxiv.jsonl", "text meta", 20},
	{"text/lost-in-the-middle/kv-retrieval-75_keys.jsonl.gz", "ordered_kv_records key value", 500},
	{"text/lost-in-the-middle/nq-open-oracle.jsonl.gz", "question answers", 2655},
	{"text/books/books.jsonl.zst", "text", 27},
	{"text/law-de/gesetze.jsonl.gz", "text", 451},
	{"text/xquad/xquad.jsonl.gz", "text lang", 1920},
	{"text/poetry-zh/songci.jsonl", "text", 5000},
	{"text/udhr/udhr.jsonl.gz", "text lang", 250},
	{"shards/olmo-c4/c4-sample.01.json.gz", "text", -1},
	{"shards/olmo-c4/c4-sample.02.json.gz", "text", -1},
	{"shards/olmo-c4/c4-sample.03.json.gz", "text", -1},
	{"shards/dolma-documents/documents/000.json.gz", "text id", -1},
	{"shards/dolma-documents/deduper/documents/000.json.gz", "text id", -1},
	{"shards/dolma-documents/deduper/pathnotd0cumentz/000.json.gz", "text id", -1},
	{"shards/dolma-documents/attributes/duplicate_paragraphs/000.json.gz", "attributes id", -1},
	{"shards/dolma-documents/attributes/pii/000.json.gz", "attributes id", -1},
	{"shards/dolma-documents/attributes/sample/000.json.gz", "attributes id", -1},
	{"shards/dolma-documents/attributes/toxicity/000.json.gz", "attributes id", -1},
	{"shards/webdataset/tendata.tar", "ten __key__", 100},
	{"shards/webdataset/mpdata.tar", "mp", 100},
	{"shards/webdataset/compressed.tar", "txt.gz", 3},
	{"shards/webdataset/sample.tgz", "cls png", 90},
	{"shards/webdataset-cc12m/cc12m-train-0000.tar", "jpg txt json json.url json.width", 32},
	{"shards/webdataset-clip/image1.tar", "jpg", 4},
	{"shards/webdataset-clip/image2.tar", "jpg", 3},
	{"shards/torchdata/bytes.tar", "bt", 3},
	{"shards/torchdata/csv.tar.gz", "csv", 3},
	{"shards/torchdata/json.tar", "json", 3},
	{"shards/torchdata/txt.tar", "txt", 3},
	{"shards/lhotse-shar/cuts.000000.jsonl.gz", "id", 2},
	{"shards/lhotse-shar/features.000000.tar", "npy json", 2},
	{"shards/lhotse-shar/recording.000000.tar", "nodata nometa", 2},
	{"shards/megatron-gpt2/meg-gpt2-openwebtext_text_document.idx", "tokens", 1000},
	{"shards/megatron-lm-builder/gsm8k_test_gpt2_u16.idx", "tokens", 1319},
}

// openData returns a file of the shared data set and its format.
func openData(t testing.TB, file string) (format.Format, store.Object) {
	t.Helper()
	obj, err := store.Local{}.Stat(t.Context(), filepath.Join(testdata.Dir(t), file))
	if err != nil {
		t.Fatal(err)
	}
	f, err := decoders.ByPath(file)
	if err != nil {
		t.Fatal(err)
	}
	return f, obj
}

func TestGoodFiles(t *testing.T) {
	listed := map[string]bool{}
	for _, c := range goodFiles {
		listed[c.file] = true
		f, obj := openData(t, c.file)
		opt := format.Options{Columns: strings.Fields(c.columns)}
		records, err := formattest.ReadAll(t.Context(), f, store.Local{}, obj, opt)
		if err != nil || c.records >= 0 && len(records) != c.records || len(records) == 0 {
			t.Errorf("%s: %d records, want %d: %v", c.file, len(records), c.records, err)
			continue
		}
		there := make([]bool, len(opt.Columns))
		for _, r := range records {
			if r.Err != nil {
				t.Errorf("%s: %v", c.file, r.Err)
				break
			}
			for i, v := range r.Values {
				there[i] = there[i] || v.Kind != format.Null
			}
		}
		for i, ok := range there {
			if !ok && opt.Columns[i] != "meta" {
				t.Errorf("%s: column %s is null in all records", c.file, opt.Columns[i])
			}
		}
		if strings.Contains(c.file, ".json") {
			checkAgainstStandard(t, c.file, f, obj)
		}
	}
	checkAllListed(t, listed)
}

// TestResumeGoodFiles stops each file of the data set at a few records and goes on.
func TestResumeGoodFiles(t *testing.T) {
	for _, c := range goodFiles {
		f, obj := openData(t, c.file)
		if obj.Size > 1<<20 {
			continue // as others of its format
		}
		opt := format.Options{Columns: strings.Fields(c.columns), ChunkBytes: 1 << 40}
		if err := formattest.Resume(t.Context(), f, store.Local{}, obj, opt, 1+max(c.records, 100)/3); err != nil {
			t.Errorf("%s: %v", c.file, err)
		}
	}
}

// checkAllListed: no file of these sets is left out of the table above.
func checkAllListed(t *testing.T, listed map[string]bool) {
	root := testdata.Dir(t)
	for _, set := range []string{"text", "shards/webdataset", "shards/webdataset-cc12m", "shards/webdataset-clip", "shards/torchdata",
		"shards/lhotse-shar", "shards/olmo-c4", "shards/dolma-documents", "shards/megatron-gpt2", "shards/megatron-lm-builder"} {
		err := filepath.WalkDir(filepath.Join(root, set), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			file, _ := filepath.Rel(root, path)
			switch ext := filepath.Ext(file); {
			case ext == ".bin", ext == ".md", strings.HasPrefix(entry.Name(), "gpt2-tiny-"): // the pair's other half, notes, a vocabulary
			case !listed[file]:
				t.Errorf("%s is in no table", file)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// checkAgainstStandard holds the top-level strings of JSON records to what
// encoding/json reads from the very bytes of the file.
func checkAgainstStandard(t *testing.T, file string, f format.Format, obj store.Object) {
	t.Helper()
	documents := standardDocuments(t, f, obj)
	keys := map[string]bool{}
	for _, doc := range documents {
		for key, value := range doc {
			if _, ok := value.(string); ok {
				keys[key] = true
			}
		}
	}
	names := slices.Sorted(maps.Keys(keys))
	opt := format.Options{ChunkBytes: 100_000}
	for _, name := range names {
		opt.Columns = append(opt.Columns, fieldpath.Path{{Key: name}}.String())
	}
	row := 0
	chunks, err := f.Chunks(t.Context(), store.Local{}, obj, opt)
	for chunk := 0; chunk < chunks && err == nil; chunk++ {
		err = format.Read(t.Context(), f, store.Local{}, obj, chunk, opt, func(r *format.Record) error {
			for i, v := range r.Values {
				if want, ok := documents[row][names[i]].(string); ok && (v.Kind != format.String || string(v.Bytes) != want) {
					return fmt.Errorf("record %d: %s differs from encoding/json", row, names[i])
				}
			}
			row++
			return r.Err
		})
	}
	if err != nil || row != len(documents) {
		t.Errorf("%s: %d records, encoding/json has %d: %v", file, row, len(documents), err)
	}
}

// standardDocuments decodes a file with the text reader (which decompresses)
// and encoding/json.
func standardDocuments(t *testing.T, f format.Format, obj store.Object) (documents []map[string]any) {
	t.Helper()
	records, err := formattest.ReadAll(t.Context(), text.Format{}, store.Local{}, obj, format.Options{Columns: []string{"text"}})
	if err != nil || len(records) != 1 || records[0].Err != nil {
		t.Fatalf("reading %s as text: %v", obj.URI, err)
	}
	data := records[0].Values[0].Bytes
	if bytes.HasPrefix(data, []byte("[")) {
		if err := stdjson.Unmarshal(data, &documents); err != nil {
			t.Fatal(err)
		}
		return documents
	}
	for decoder := stdjson.NewDecoder(bytes.NewReader(data)); decoder.More(); {
		var doc map[string]any
		if err := decoder.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		documents = append(documents, doc)
	}
	return documents
}

// TestMegatronGolden holds tokens to the counts of the README and to the token
// ids that two other tokenizers gave for the same questions.
func TestMegatronGolden(t *testing.T) {
	for file, want := range map[string]int{
		"shards/megatron-gpt2/meg-gpt2-openwebtext_text_document.idx": 1_361_845,
		"shards/megatron-lm-builder/gsm8k_test_gpt2_u16.idx":          203_924,
	} {
		f, obj := openData(t, file)
		for _, chunk := range []int64{4096, 1 << 20} {
			tokens := 0
			records, err := formattest.ReadAll(t.Context(), f, store.Local{}, obj, format.Options{Columns: []string{"tokens"}, ChunkBytes: chunk})
			for _, r := range records {
				tokens += len(r.Values[0].Tokens)
			}
			if err != nil || tokens != want {
				t.Errorf("%s: %d tokens, want %d: %v", file, tokens, want, err)
			}
		}
	}
	f, obj := openData(t, "shards/megatron-lm-builder/gsm8k_test_gpt2_u16.idx")
	records, err := formattest.ReadAll(t.Context(), f, store.Local{}, obj, format.Options{Columns: []string{"tokens"}})
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, g := range goldenQuestions(t) {
		tokens := records[g.Line].Values[0].Tokens
		if len(tokens) < g.R50k.N || digest(tokens[:g.R50k.N]) != g.R50k.Sum {
			t.Errorf("document %d does not begin with the question's tokens", g.Line)
		}
		checked++
	}
	if checked < 10 {
		t.Errorf("only %d documents have goldens", checked)
	}
}

type golden struct {
	File  string
	Field string
	Line  int
	R50k  struct {
		N   int
		Sum string `json:"sha256_u32le"`
	} `json:"r50k_base"`
}

func goldenQuestions(t *testing.T) (goldens []golden) {
	file, err := os.Open(filepath.Join(testdata.Dir(t), "tokenizers/golden/doc-encodings.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for scan := bufio.NewScanner(file); scan.Scan(); {
		var g golden
		if err := stdjson.Unmarshal(scan.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		if g.File == "text/gsm8k/test.jsonl" && g.Field == "question" && g.R50k.N > 0 {
			goldens = append(goldens, g)
		}
	}
	return goldens
}

func digest(tokens []int32) string {
	hash := sha256.New()
	for _, token := range tokens {
		hash.Write(binary.LittleEndian.AppendUint32(nil, uint32(token)))
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// TestCorruptFiles reads every broken file in every way that its bytes could
// be taken: no panic, no hang, and only errors of class User.
func TestCorruptFiles(t *testing.T) {
	root := testdata.Dir(t)
	suffixes := map[string][]string{
		"corrupt/json": {".json", ".jsonl", ".txt"}, "corrupt/go-fuzz/json": {".json", ".jsonl"},
		"corrupt/gzip": {".jsonl.gz", ".json.gz", ".tar.gz", ".txt.gz"}, "corrupt/go-fuzz/gzip": {".jsonl.gz", ".json.gz", ".tar.gz", ".txt.gz"},
		"corrupt/zstd": {".jsonl.zst", ".json.zst", ".tar.zst", ".txt.zst"},
		"corrupt/tar":  {".tar"}, "corrupt/go-fuzz/tar": {".tar"},
	}
	files := 0
	for set, endings := range suffixes {
		err := filepath.WalkDir(filepath.Join(root, set), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			files++
			for _, ending := range endings {
				readCorrupt(t, data, "/"+entry.Name()+ending)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 580 {
		t.Errorf("only %d corrupt files were there", files)
	}
}

func readCorrupt(t *testing.T, data []byte, name string) {
	t.Helper()
	f, err := decoders.ByPath(name)
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{"a", "text"}
	switch f.Name() {
	case "text":
		columns = []string{"text"}
	case "webdataset":
		columns = []string{"txt", "__key__", "sparse", "c"}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	st, obj := stored(t, map[string][]byte{name: data}, name)
	chunks, err := f.Chunks(ctx, st, obj, format.Options{})
	for chunk := 0; chunk < chunks && err == nil; chunk++ {
		err = format.Read(ctx, f, st, obj, chunk, format.Options{Columns: columns}, func(r *format.Record) error {
			if r.Err != nil && fault.ClassOf(r.Err) != fault.User {
				t.Errorf("%s: record error not of class user: %v", name, r.Err)
			}
			return nil
		})
	}
	if err != nil && fault.ClassOf(err) != fault.User {
		t.Errorf("%s: not a user error: %v", name, err)
	}
	if err != nil && !strings.Contains(err.Error(), strings.TrimPrefix(name, "/")) {
		t.Errorf("%s: the error does not name the file: %v", name, err)
	}
}

// TestZstdVerdicts: damaged frames fail, and sound ones with odd headers do not.
func TestZstdVerdicts(t *testing.T) {
	root := testdata.Dir(t)
	for set, sound := range map[string]bool{"golden-decompression": true, "golden-decompression-errors": false, "klauspost-bad": false} {
		files, err := filepath.Glob(filepath.Join(root, "corrupt/zstd", set, "*.zst"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", set, len(files), err)
		}
		for _, file := range files {
			obj, err := store.Local{}.Stat(t.Context(), file)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = count(t.Context(), text.Format{}, store.Local{}, obj, format.Options{Columns: []string{"text"}})
			if (err == nil) != sound && filepath.Base(file) != "off0.bin.zst" { // the decoder takes an offset of 0
				t.Errorf("%s/%s: %v, want sound %v", set, filepath.Base(file), err, sound)
			}
		}
	}
}
