package cli

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/testdata"
)

// TestOtherFormats names files that are not read, in the ways that people have them: lint
// and run refuse them alike, and say what can be done.
func TestOtherFormats(t *testing.T) {
	t.Parallel()
	index := []byte(`{"shards": [{"column_names": ["text"], "compression": "zstd", "format": "mds", "raw_data": {"basename": "shard.00000.mds", "bytes": 9, "hashes": {}}, "samples": 1, "version": 2}], "version": 2}`)
	lines := []byte(strings.ReplaceAll(string(index), `"mds"`, `"json"`))
	some := []byte("something")
	litData := map[string][]byte{
		"lit/chunk-0-0.bin": some, "lit/chunk-0-1.zstd.bin": some,
		"lit/index.json": []byte(`{"chunks": [{"chunk_bytes": 9, "chunk_size": 1, "dim": null, "filename": "chunk-0-0.bin"}], "config": {"compression": null}}`),
	}
	check(t, []badInput{
		{"folder of MDS", words("mds"), map[string][]byte{"mds/index.json": index, "mds/shard.00000.mds": some},
			[]string{`source "words"`, "shard.00000.mds is a shard of MosaicML Streaming (MDS)", "Parquet or JSON Lines", "docs/file-formats.md"}},
		{"folder of compressed MDS", words("mds"), map[string][]byte{"mds/index.json": index, "mds/shard.00000.mds.zstd": some},
			[]string{"shard.00000.mds.zstd is a shard of MosaicML Streaming (MDS)"}},
		{"index of MDS", words("mds/index.json"), map[string][]byte{"mds/index.json": index, "mds/shard.00000.mds": some},
			[]string{"mds/index.json is the index of a MosaicML Streaming dataset, whose shards (mds) are not read", "docs/file-formats.md"}},
		{"index of MDS, format said", words("mds", "format: json"), map[string][]byte{"mds/index.json": index, "mds/shard.00000.mds": some},
			[]string{"mds/index.json is the index of a MosaicML Streaming dataset"}},
		{"index of JSON shards", words("mds"), map[string][]byte{"mds/index.json": lines, "mds/shard.00000.json": []byte(`{"text": "a"}`)},
			[]string{"mds/index.json is the index of a MosaicML Streaming dataset, not data", "mds/shard.*.json"}},
		{"shards of MDS", words("mds/*.mds"), map[string][]byte{"mds/shard.00000.mds": some}, []string{"shard.00000.mds is a shard of MosaicML Streaming (MDS)"}},
		{"shards of MDS, format said", words("mds/*.mds", "format: jsonl"), map[string][]byte{"mds/shard.00000.mds": some}, []string{"shard.00000.mds is a shard of MosaicML Streaming (MDS)"}},
		{"folder of LitData", words("lit"), litData, []string{`source "words"`, "lit/chunk-0-0.bin is a chunk of a LitData dataset", "Parquet", "docs/file-formats.md"}},
		{"chunks of LitData", words("lit/*.bin"), litData, []string{"lit/chunk-0-0.bin is a chunk of a LitData dataset"}},
		{"compressed chunk of LitData", words("lit/chunk-0-1.zstd.bin"), litData, []string{"lit/chunk-0-1.zstd.bin is a chunk of a LitData dataset"}},
		{"chunks of LitData, format said", words("lit", "format: megatron"), litData, []string{"lit/chunk-0-0.bin is a chunk of a LitData dataset"}},
		{"index of LitData", words("lit/index.json"), litData, []string{"lit/index.json is the index of a LitData dataset, whose chunks (chunk-0-0.bin) are not read", "Parquet", "docs/file-formats.md"}},
		{"index of LitData, format said", words("lit", "format: json"), litData, []string{"lit/index.json is the index of a LitData dataset"}},
		{"TFRecord beside JSON", words("tf"), map[string][]byte{"tf/features.json": []byte("{}"), "tf/a.tfrecord-00000-of-00002": some},
			[]string{"a.tfrecord-00000-of-00002 is TFRecord, which is not read", "Parquet or JSON Lines"}},
		{"CSV", words("a.csv"), map[string][]byte{"a.csv": some}, []string{"a.csv is a table of text, which is not read", "Parquet"}},
		{"compressed CSV", words("a.csv.gz"), map[string][]byte{"a.csv.gz": some}, []string{"a.csv.gz is a table of text"}},
		{"images", words("img/*.heic"), map[string][]byte{"img/a.heic": some, "img/b.heic": some}, []string{"a.heic is an image that is not decoded, which is not read", "convert it to JPEG"}},
		{"bzip2", words("a.jsonl.bz2"), map[string][]byte{"a.jsonl.bz2": some}, []string{"a.jsonl.bz2 is compressed in another way", ".zst"}},
		{"GS", words("gs://bucket/data/a.parquet"), nil, []string{"only local files and buckets (s3://) are read", "gcloud storage rsync"}},
		{"Hugging Face", words("hf://datasets/allenai/c4"), nil, []string{"only local files and buckets (s3://) are read", "hf download --repo-type dataset"}},
		{"HTTP", words("https://example.com/a.jsonl"), nil, []string{"only local files and buckets (s3://) are read", "curl"}},
		{"a scheme of another kind", words("abfs://c@a/x.jsonl"), nil, []string{"only local files and buckets (s3://) are read, not abfs://", "copy the files to this machine"}},
	}, "lint", "run", "plan", "reference")
}

// TestLintRefusesWhatRunRefuses has jobs that stop at their start.
func TestLintRefusesWhatRunRefuses(t *testing.T) {
	t.Parallel()
	row := []byte(`{"text": "a b", "ids": [1, 2]}` + "\n")
	check(t, []badInput{
		{"several formats", words("mixed"), map[string][]byte{"mixed/a.jsonl": row, "mixed/b.txt": row}, []string{`source "words"`, "several formats", "a.jsonl is jsonl", "b.txt is text", "set `format:`"}},
		{"no format", words("mixed/*"), map[string][]byte{"mixed/a": row}, []string{`source "words"`, "its extension is not that of a format", "set the source's format"}},
		{"none of the format", words("words", "format: parquet"), nil, []string{"none of the files that", "is of format parquet", "set `format:`"}},
		{"empty files", words("empty"), map[string][]byte{"empty/a.jsonl": {}, "empty/b.jsonl": {}}, []string{`source "words" is empty`, "2 files"}},
		{"a folder without files", words("none"), map[string][]byte{"none/.hidden": row}, []string{"no such file", "none"}},
		{"no Parquet file", words("a.parquet"), map[string][]byte{"a.parquet": row}, []string{"a.parquet", "not a Parquet file"}},
		{"wrong column", words("a.parquet", `transforms: [{text: "{body}"}, {tokenize: bytes}, {append_eod: {}}]`), map[string][]byte{"a.parquet": parquetOf(t, 3)}, []string{"a.parquet", `no column "body"`, "number, text"}},
		{"a column that text has not", words("a.txt", `transforms: [{text: "{body}"}, {tokenize: bytes}, {append_eod: {}}]`), map[string][]byte{"a.txt": row}, []string{"a.txt", `no column "body"`, "text, path"}},
		{"tokens that are text", words("a.jsonl", "transforms: [{tokens: text}, {append_eod: 1}]"), map[string][]byte{"a.jsonl": row}, []string{"a.jsonl: byte 0", "transforms[0].tokens", "list of integers"}},
		{"a list that is kept", words("a.jsonl", "keep: ids"), map[string][]byte{"a.jsonl": row}, []string{"a.jsonl: byte 0", `keep: column "ids"`}},
		{"a filter by tokens before there are any", words("a.jsonl", `transforms: [{filter: "len(tokens) > 3"}, {tokenize: bytes}, {append_eod: {}}]`), map[string][]byte{"a.jsonl": row}, []string{"filter, column", "there are no tokens yet"}},
		{"a rank file that is none", words("a.jsonl", "transforms: [{tokenize: {encoding: cl100k_base, ranks: a.jsonl}}, {append_eod: {}}]"), map[string][]byte{"a.jsonl": row}, []string{"a.jsonl:1", "base64"}},
		{"a rank file on the network", words("a.jsonl", "transforms: [{tokenize: {encoding: cl100k_base, ranks: 's3://b/cl100k_base.tiktoken'}}, {append_eod: {}}]"), map[string][]byte{"a.jsonl": row}, []string{"s3://b/cl100k_base.tiktoken does not exist"}},
		{"a gzip file that is cut", words("a.jsonl.gz"), map[string][]byte{"a.jsonl.gz": gzipped(row)[:9]}, []string{"a.jsonl.gz", "cut off at byte 9"}},
		{"a column that is kept twice", words("a.jsonl", "keep: [ids, ids]"), map[string][]byte{"a.jsonl": row}, []string{"keep[1]", `"ids"`}},
	}, "lint", "run")
}

// TestLintAtItsLine sees that what a source's files say has a place in the spec, and
// that one source's findings do not keep back another's.
func TestLintAtItsLine(t *testing.T) {
	t.Parallel()
	dir := folder(t, "words/*.jsonl", "gs://bucket/a.jsonl", "notes/*.txt", "a.csv", "sequences: 4", "sequences: 5")
	put(t, dir, "a.csv", "1,2")
	millrace(t, dir, "lint", "job.yaml").expect(t, exitUser, "job.yaml:5: sources[0].files: ", "job.yaml:7: sources[1].files: ", "job.yaml:10: batch.sequences: ")
}

// TestLintAtItsStep sees that what does not compile is at its own step, also where the spec leaves one out.
func TestLintAtItsStep(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("words/*.jsonl", "transforms:\n      - filter: len(text) > 0\n      - filter: len(tokens) > 3\n      - tokenize: bytes")...)
	millrace(t, dir, "lint", "job.yaml").expect(t, exitUser, "job.yaml:8: sources[0].transforms[1].filter: filter, column", "there are no tokens yet")
	dir = folder(t, words("words/*.jsonl", "transforms:\n      - text: '{bodi}'\n      - tokenize: bytes")...)
	millrace(t, dir, "lint", "job.yaml").expect(t, exitUser, `job.yaml:7: sources[0].transforms[0].text: `, `has no field "bodi"`)
}

// TestLeftOut says which files of a folder are not read.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	dir := folder(t, "words/*.jsonl", "words")
	put(t, dir, "words/more.csv", "1,2")
	put(t, dir, "words/README.md", "about the data")
	for _, args := range [][]string{{"lint", "job.yaml"}, {"run", "job.yaml", "--steps", "2", "--log-level", "warn"}} {
		r := millrace(t, dir, args...)
		r.expect(t, 0, "1 of the files there are left out", "not jsonl", "words/more.csv")
	}
}

// TestPathsThatTheReaderTakes runs jobs whose paths have lists in lists and brackets in
// names.
func TestPathsThatTheReaderTakes(t *testing.T) {
	t.Parallel()
	data := []byte(`{"test": [[{"key": "a"}, {"key": "b"}], [{"key": "c"}]], "ts[ms]": 17, "a}b": "x"}` + "\n")
	for _, path := range []string{"test[][].key", `ts\[ms\]`, `a\}b`} {
		dir := folder(t, words("a.jsonl", fmt.Sprintf("transforms: [{text: '{%s}'}, {tokenize: bytes}, {append_eod: {}}]", path), "keep: ['ts\\[ms\\]']")...)
		put(t, dir, "a.jsonl", data)
		millrace(t, dir, "lint", "job.yaml").expect(t, 0)
		got := millrace(t, dir, "run", "job.yaml", "--steps", "2").digest(t)
		if want := millrace(t, dir, "reference", "job.yaml", "--steps", "2").digest(t); got != want {
			t.Errorf("%s: run ends with %s, reference with %s", path, got, want)
		}
	}
}

// TestGzipEnds cuts a file inside its header, and one inside the header of its second
// member, and adds zeros to a whole one.
func TestGzipEnds(t *testing.T) {
	t.Parallel()
	named := func(text string) []byte {
		return append([]byte("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03story.txt\x00"), gzipped([]byte(text))[10:]...)
	}
	whole := append(named("Once upon a time "), named("there was a mill.")...)
	second := len(named("Once upon a time "))
	check(t, []badInput{
		{"cut in its name", words("a.txt.gz"), map[string][]byte{"a.txt.gz": whole[:15]}, []string{`source "words"`, "a.txt.gz", "cut off at byte 15", "copy the file again"}},
		{"second member cut in its name", words("a.txt.gz"), map[string][]byte{"a.txt.gz": whole[:second+15]}, []string{`source "words"`, "a.txt.gz", fmt.Sprintf("cut off at byte %d", second+15)}},
	}, "run", "reference", "lint")
	dir := folder(t, words("a.txt.gz")...)
	put(t, dir, "a.txt.gz", append(whole, make([]byte, 512)...))
	millrace(t, dir, "lint", "job.yaml").expect(t, 0)
	got := millrace(t, dir, "run", "job.yaml", "--steps", "4").digest(t)
	if want := millrace(t, dir, "reference", "job.yaml", "--steps", "4").digest(t); got != want {
		t.Errorf("with zeros after the last member run ends with %s, reference with %s", got, want)
	}
}

// TestReferenceNamesFiles sees that an error of the transforms says which file and record
// it is about, as in a run.
func TestReferenceNamesFiles(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("ids.jsonl", "transforms: [{tokens: ids}, {append_eod: 1}]")...)
	put(t, dir, "ids.jsonl", `{"ids": [1, 2, 3]}`+"\n"+`{"ids": [4, -5]}`+"\n")
	for _, verb := range []string{"reference", "run", "plan"} {
		millrace(t, dir, verb, "job.yaml").expect(t, exitUser, `source "words"`, filepath.Join(dir, "ids.jsonl")+": byte 19", `"ids"`, "-5")
	}
	millrace(t, dir, "verify", "job.yaml", "--steps", "2", "--digest", strings.Repeat("0", 64)).expect(t, exitUser, filepath.Join(dir, "ids.jsonl")+": byte 19")
}

// TestRankFileOfAnother has rank files that read well and are not what the spec means.
func TestRankFileOfAnother(t *testing.T) {
	t.Parallel()
	published, err := os.ReadFile(filepath.Join(testdata.Dir(t), "tokenizers", "tiktoken", "r50k_base.tiktoken"))
	if err != nil {
		t.Fatal(err)
	}
	swapped := strings.NewReplacer(" 1000\n", " 2000\n", " 2000\n", " 1000\n").Replace(string(published))
	spec := func(more string) []string {
		return words("words/*.jsonl", "transforms: [{tokenize: {encoding: r50k_base, ranks: r50k_base.tiktoken"+more+"}}, {append_eod: {}}]")
	}
	dir := folder(t, spec("")...)
	put(t, dir, "r50k_base.tiktoken", swapped)
	const known = "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"
	own := fmt.Sprintf("%x", sha256.Sum256([]byte(swapped)))
	for _, verb := range []string{"lint", "run", "reference", "plan"} {
		millrace(t, dir, verb, "job.yaml").expect(t, exitUser, "r50k_base.tiktoken is not the published rank file", known, own, "sha256: "+own)
	}
	dir = folder(t, spec(", sha256: "+own)...)
	put(t, dir, "r50k_base.tiktoken", swapped)
	token := filepath.Join(dir, "token")
	millrace(t, dir, "run", "job.yaml", "--steps", "2", "--save-token", token).digest(t)
	put(t, dir, "r50k_base.tiktoken", published)
	millrace(t, dir, "run", "job.yaml", "--steps", "2", "--resume", token).expect(t, exitUser, "declared is sha256: "+own, known)
	other := folder(t, spec("")...)
	put(t, other, "r50k_base.tiktoken", published)
	millrace(t, other, "run", "job.yaml", "--steps", "2", "--resume", token).expect(t, exitUser, "resume token is of job", "spec")
}

// TestBitFieldPictures trains on a BMP whose pixels have masks of their own, and sees
// that one with run lengths is refused by the reference as by a run.
func TestBitFieldPictures(t *testing.T) {
	t.Parallel()
	with := func(picture string) string {
		data, err := os.ReadFile(filepath.Join(testdata.Dir(t), "images", "odd-formats", picture))
		if err != nil {
			t.Fatal(err)
		}
		dir := folder(t, words("pictures.tar", `transforms: [{text: "{txt}"}, {tokenize: bytes}, {image: {columns: bmp, token: 300, max_pixels: 3136}}, {append_eod: {}}]`)...)
		put(t, dir, "pictures.tar", tarOfFiles(t, "1.bmp", string(data), "1.txt", "a picture"))
		return dir
	}
	dir := with("rgb32bf-rgba.bmp")
	got := millrace(t, dir, "run", "job.yaml", "--steps", "2").digest(t)
	if want := millrace(t, dir, "reference", "job.yaml", "--steps", "2").digest(t); got != want {
		t.Errorf("run ends with %s, reference with %s", got, want)
	}
	dir = with("hopper_rle8.bmp")
	for _, verb := range []string{"lint", "run", "reference", "plan"} {
		millrace(t, dir, verb, "job.yaml").expect(t, exitUser, "pictures.tar: row 0", `column "bmp"`, "compression 1", "write it without compression, or as PNG")
	}
}

// tarOfFiles makes a tar of pairs of names and contents.
func tarOfFiles(t testing.TB, files ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: files[i], Size: int64(len(files[i+1])), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		w.Write([]byte(files[i+1]))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
