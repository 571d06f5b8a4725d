package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
)

// badInput is a job that cannot run, and what must be said about it.
type badInput struct {
	name  string
	edits []string          // of the good job
	files map[string][]byte // added to the good data
	want  []string
}

// words edits the first source of the good job.
func words(files string, more ...string) []string {
	return []string{"    files: words/*.jsonl\n", "    files: " + files + "\n    " + strings.Join(more, "\n    ") + "\n"}
}

func TestBadSpecs(t *testing.T) {
	t.Parallel()
	check(t, []badInput{
		{"missing file", words("words/nope.jsonl"), nil, []string{"job.yaml:5: sources[0].files[0]", "no file or directory", "nope.jsonl", "name a file"}},
		{"glob without a match", words("words/*.nothing", "format: jsonl"), nil, []string{"job.yaml:5: sources[0].files[0]", "no file matches", "*.nothing", "at least one match"}},
		{"unknown field", []string{"seed:", "sead:"}, nil, []string{"job.yaml:2: sead", "unknown", "seed"}},
		{"unknown field below", []string{"sequences: 4", "sequences: 4, packin: true"}, nil, []string{"job.yaml:10: batch.packin", "packing"}},
		{"wrong type", []string{"sequences: 4", "sequences: four"}, nil, []string{"job.yaml:10: batch.sequences", "four", "valid"}},
		{"list for a text", []string{"name: tiny", "name: [tiny]"}, nil, []string{"job.yaml:1: name", "list"}},
		{"not YAML", []string{"mix:\n", "mix: [\n"}, nil, []string{"job.yaml:"}},
		{"negative weight", []string{"words: 0.75", "words: -0.75"}, nil, []string{"job.yaml:9: mix.weights", "-0.75", "negative", "valid is a number from 0 on"}},
		{"weights all zero", []string{"words: 0.75, notes: 0.25", "words: 0, notes: 0"}, nil, []string{"job.yaml:9: mix.weights", "all weights are 0", "above 0"}},
		{"weight of a stranger", []string{"notes: 0.25", "note: 0.25"}, nil, []string{"job.yaml:9: mix.weights", "note", "notes"}},
		{"sequence length 0", []string{"sequence_length: 128", "sequence_length: 0"}, nil, []string{"job.yaml:10: batch.sequence_length", "0 is too small", "1 or more"}},
		{"topology that does not divide", []string{"dp: 2", "dp: 3"}, nil, []string{"batch.sequences", "4", "dp", "3"}},
		{"context parallel that does not divide", []string{"dp: 2", "dp: 2, cp: 3"}, nil, []string{"sequence_length", "128", "cp"}},
		{"encoding without ranks", words("words/*.jsonl", "transforms: [{tokenize: cl100k_base}, {append_eod: {}}]"), nil, []string{"job.yaml:6: sources[0].transforms[0].tokenize.ranks", "missing", "rank file"}},
		{"missing rank file", words("words/*.jsonl", "transforms: [{tokenize: {encoding: cl100k_base, ranks: cl100k_base.tiktoken}}, {append_eod: {}}]"), nil,
			[]string{"job.yaml:6: sources[0].transforms[0].tokenize.ranks", "no file", "cl100k_base.tiktoken", "name the .tiktoken file"}},
		{"variable that is not set", words("${MILLRACE_NOT_SET}/*.jsonl"), nil, []string{"job.yaml:5", "MILLRACE_NOT_SET"}},
		{"filter that does not compile", words("words/*.jsonl", `transforms: [{filter: "len(text >"}, {tokenize: bytes}, {append_eod: {}}]`), nil, []string{"job.yaml:6: sources[0].transforms[0].filter"}},
	}, "lint", "run", "serve", "plan", "reference")
	t.Run("missing spec", func(t *testing.T) {
		t.Parallel()
		millrace(t, t.TempDir(), "run", "nope.yaml").expect(t, exitUser, "nope.yaml", "no such file")
	})
}

func TestBadData(t *testing.T) {
	t.Parallel()
	text := []byte(lines(400))
	gz, zst, tarred, pq := gzipped(text), zstandard(t, text), tarOf(t, 40), parquetOf(t, 500)
	idx, bin := megatronOf([]int32{1, 2, 3}, []int32{4, 5}, []int32{6})
	cutLine := strings.Replace(lines(50), `{"id": 20, "text": `, `{"id": 20, "text" `, 1)
	badByte := strings.Replace(lines(50), "w30 ", "w\xff0 ", 1)
	rows := []byte(`{"ids": [1, 2, 3]}` + "\n" + `{"ids": [4, -5]}` + "\n")
	large := []byte(`{"ids": [1, 2, 3]}` + "\n" + `{"ids": [4, 5000000000]}` + "\n")
	check(t, []badInput{
		{"empty source", words("empty.jsonl"), map[string][]byte{"empty.jsonl": {}}, []string{`source "words" is empty`, "empty.jsonl", "name files with data"}},
		{"cut gzip", words("cut.jsonl.gz"), map[string][]byte{"cut.jsonl.gz": half(gz)}, []string{`source "words"`, "cut.jsonl.gz", "cut off at byte", "copy the file again"}},
		{"cut zstd", words("cut.jsonl.zst"), map[string][]byte{"cut.jsonl.zst": half(zst)}, []string{`source "words"`, "cut.jsonl.zst", "cut off", "copy the file again"}},
		{"cut tar", words("cut.tar"), map[string][]byte{"cut.tar": tarred[:len(tarred)/2+100]}, []string{`source "words"`, "cut.tar", "cut off at byte", "copy the file again"}},
		{"cut parquet", words("cut.parquet"), map[string][]byte{"cut.parquet": half(pq)}, []string{`source "words"`, "cut.parquet"}},
		{"cut idx", words("cut.bin"), map[string][]byte{"cut.idx": idx[:len(idx)-9], "cut.bin": bin}, []string{`source "words"`, "cut.idx"}},
		{"cut bin", words("cut.bin"), map[string][]byte{"cut.idx": idx, "cut.bin": bin[:len(bin)-2]}, []string{`source "words"`, "cut.bin"}},
		{"bin without idx", words("cut.bin"), map[string][]byte{"cut.bin": bin}, []string{`source "words"`, "cut", ".idx"}},
		{"invalid JSON", words("bad.jsonl"), map[string][]byte{"bad.jsonl": []byte(cutLine)}, []string{`source "words"`, "bad.jsonl:21:", "not valid JSON", "bad_records.policy: skip"}},
		{"invalid UTF-8", words("bad.jsonl"), map[string][]byte{"bad.jsonl": []byte(badByte)}, []string{`source "words"`, "bad.jsonl:31:", "not valid UTF-8", "bad_records.policy: skip"}},
		{"wrong column", words("ok.parquet", `transforms: [{text: "{body}"}, {tokenize: bytes}, {append_eod: {}}]`), map[string][]byte{"ok.parquet": pq},
			[]string{`source "words"`, "ok.parquet", "body", "text", "number"}},
		{"wrong column of JSON", words("words/*.jsonl", `transforms: [{text: "{body}"}, {tokenize: bytes}, {append_eod: {}}]`), nil, []string{`source "words"`, `the record has no field "body"`, "its fields are id, text"}},
		{"wrong type of JSON", words("words/*.jsonl", "transforms: [{tokens: text}, {append_eod: 1}]"), nil, []string{`source "words"`, "words/", "transforms[0].tokens", `"text"`, "list of integers"}},
		{"wrong type of column", words("ok.parquet", "transforms: [{tokens: text}, {append_eod: 1}]"), map[string][]byte{"ok.parquet": pq}, []string{`source "words"`, "ok.parquet", "text"}},
		{"token below 0", words("ids.jsonl", "transforms: [{tokens: ids}, {append_eod: 1}]"), map[string][]byte{"ids.jsonl": rows}, []string{`source "words"`, "ids.jsonl: byte 19", `"ids"`, "-5", "0 to 2147483647"}},
		{"token beyond 31 bits", words("ids.jsonl", "transforms: [{tokens: ids}, {append_eod: 1}]"), map[string][]byte{"ids.jsonl": large}, []string{`source "words"`, "ids.jsonl: byte 19", `"ids"`, "5000000000", "0 to 2147483647"}},
		{"one bad record too many", words("bad.jsonl", "bad_records: {policy: skip, limit: 0}"), map[string][]byte{"bad.jsonl": []byte(cutLine)},
			[]string{`source "words"`, "more than bad_records.limit 0 allows", "bad.jsonl", "fix the line; mend them, or raise the limit"}},
		{"rank file that is none", words("words/*.jsonl", "transforms: [{tokenize: {encoding: cl100k_base, ranks: notes/01.txt}}, {append_eod: {}}]"), nil, []string{`source "words"`, "01.txt"}},
	}, "run")
}

// check runs a verb on each bad input: exit code 3, the words, no hang, no panic.
func check(t *testing.T, inputs []badInput, verbs ...string) {
	for _, in := range inputs {
		for _, verb := range verbs {
			t.Run(in.name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				dir := folder(t, in.edits...)
				for name, data := range in.files {
					put(t, dir, name, data)
				}
				args := []string{verb, "job.yaml"}
				if verb == "serve" {
					args = append(args, "--listen", "127.0.0.1:0")
				}
				millrace(t, dir, args...).expect(t, exitUser, in.want...)
			})
		}
	}
}

// TestBadDataEverywhere sees that the reference reader and processes of their own
// say what one process says.
func TestBadDataEverywhere(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("cut.jsonl.gz")...)
	put(t, dir, "cut.jsonl.gz", half(gzipped([]byte(lines(400)))))
	for _, args := range [][]string{
		{"reference", "job.yaml"}, {"plan", "job.yaml"}, {"run", "job.yaml", "--json"},
		{"run", "job.yaml", "--loaders", "2", "--constructors", "2"}, {"run", "job.yaml", "--processes"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			millrace(t, dir, args...).expect(t, exitUser, `source "words"`, "cut.jsonl.gz", "cut off at byte", "copy the file again")
		})
	}
}

// TestLongSamples has samples longer than a row under each rule, in the service
// and in the reference.
func TestLongSamples(t *testing.T) {
	t.Parallel()
	digests := map[string]string{}
	for _, rule := range []string{"split", "truncate", "drop"} {
		dir := folder(t, words("long.jsonl", "long: "+rule)...)
		put(t, dir, "long.jsonl", lines(20)+fmt.Sprintf(`{"text": %q}`, strings.Repeat("long ", 200))+"\n"+lines(20))
		got := millrace(t, dir, "run", "job.yaml", "--steps", "8")
		want := millrace(t, dir, "reference", "job.yaml", "--steps", "8").digest(t)
		if got.digest(t) != want {
			t.Errorf("long: %s: run ends with %s, reference with %s", rule, got.digest(t), want)
		}
		digests[want] = rule
		if dropped := strings.Contains(row(got.stdout, "words"), " 0         0      0        0"); dropped == (rule == "drop") {
			t.Errorf("long: %s: the summary counts otherwise:\n%s", rule, got.stdout)
		}
	}
	if len(digests) != 3 {
		t.Errorf("three rules give %d different jobs: %v", len(digests), digests)
	}
}

// row is the row of a table that begins with a name.
func row(table, name string) string {
	for line := range strings.Lines(table) {
		if strings.HasPrefix(strings.TrimSpace(line), name+" ") {
			return line
		}
	}
	return ""
}

// TestSkips leaves bad records out within the limit: the ledger names them, and
// the reference comes to the same batches.
func TestSkips(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("bad.jsonl", "bad_records: {policy: skip, limit: 2}")...)
	put(t, dir, "bad.jsonl", strings.Replace(lines(100), "w30 ", "w\xff0 ", 1)+"{}}\n")
	r := millrace(t, dir, "run", "job.yaml", "--steps", "6")
	if want := millrace(t, dir, "reference", "job.yaml", "--steps", "6").digest(t); r.digest(t) != want {
		t.Errorf("run ends with %s, reference with %s", r.digest(t), want)
	}
	if !strings.Contains(r.stdout, "bad records skipped") || !strings.Contains(r.stdout, "bad.jsonl:101:") {
		t.Errorf("the summary does not name the skipped records:\n%s", r.stdout)
	}
}

// TestOldNames: members of a tar whose names are in an encoding of before UTF-8 are read, and bad records among them are
// skipped: what is said of them travels as text.
func TestOldNames(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("old.tar", "bad_records: {policy: skip, limit: 2}", `transforms: [{text: "{txt}"}, {tokenize: bytes}, {append_eod: {}}]`)...)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 60 {
		data := []byte("some words of text")
		if i == 7 {
			data[3] = 0xff
		}
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("\xd6\xd0%d.txt", i), Size: int64(len(data)), Format: tar.FormatGNU}); err != nil {
			t.Fatal(err)
		}
		w.Write(data)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "old.tar", b.Bytes())
	r := millrace(t, dir, "run", "job.yaml", "--steps", "3")
	if want := millrace(t, dir, "reference", "job.yaml", "--steps", "3").digest(t); r.digest(t) != want {
		t.Errorf("run ends with %s, reference with %s", r.digest(t), want)
	}
}

// TestAllBanned: a source of which all samples are banned that its limit leaves ends the job, and the reference, which
// both looked for another one without end.
func TestAllBanned(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("few.jsonl", "limit: 2", "shuffle: false")...)
	put(t, dir, "few.jsonl", "{\"text\": \"a b c\"}\n{\"text\": \"d e f\"}\n{\"text\": \"g h i\"}\n")
	put(t, dir, "bans.jsonl", `{"step": 1, "ban": {"source": "words", "file": "few.jsonl", "row": 0}}
{"step": 1, "ban": {"source": "words", "file": "few.jsonl", "row": 18}}
`)
	for command, said := range map[string]string{"run": " 0 bad, and the samples of others are banned up to its limit of 2; cancel bans", "reference": "no sample that is not banned"} {
		millrace(t, dir, command, "job.yaml", "--steps", "9", "--changes", "bans.jsonl").expect(t, exitUser, said)
	}
}

// TestRunNamesBadRecords: a run prints no log, so that what ends it says itself which
// records were bad: those beyond the limit, and those of a source that has no others.
func TestRunNamesBadRecords(t *testing.T) {
	t.Parallel()
	bad := strings.Repeat("{\"text\": 17,\n", 9)
	for name, c := range map[string]struct {
		limit string
		data  string
		want  []string
	}{
		"more than the limit": {"4", lines(20) + bad, []string{"9 bad records", "bad_records.limit 4", "bad.jsonl", "; and 6 more"}},
		"nothing else":        {"90", bad, []string{"gave no sample in a whole epoch", "9 bad; the bad records: ", "bad.jsonl", "; and 6 more"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t, words("bad.jsonl", "bad_records: {policy: skip, limit: "+c.limit+"}")...)
			put(t, dir, "bad.jsonl", c.data)
			r := millrace(t, dir, "run", "job.yaml", "--steps", "6")
			r.expect(t, exitUser, c.want...)
			if strings.Count(r.stderr, "bad.jsonl") < 3 {
				t.Errorf("it does not name three records:\n%s", r.stderr)
			}
		})
	}
}

// TestRunRate: the built-in trainer computes nothing, so that what it waits says nothing.
func TestRunRate(t *testing.T) {
	t.Parallel()
	r := millrace(t, folder(t), "run", "job.yaml", "--steps", "6")
	r.digest(t)
	if strings.Contains(r.stdout, "% of the time") || !strings.Contains(r.stdout, "as fast as the service goes") {
		t.Errorf("it says\n%s", r.stdout)
	}
}

func half(data []byte) []byte { return data[:len(data)/2] }

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(data) // a buffer takes everything
	w.Close()
	return b.Bytes()
}

func zstandard(t testing.TB, data []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

func tarOf(t testing.TB, members int) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range members {
		data := []byte(strings.Repeat("text ", i+1))
		if err := w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%03d.txt", i), Size: int64(len(data)), Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		w.Write(data)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type parquetRow struct {
	Number int64  `parquet:"number"`
	Text   string `parquet:"text"`
}

func parquetOf(t testing.TB, rows int) []byte {
	var b bytes.Buffer
	w := parquet.NewGenericWriter[parquetRow](&b)
	for i := range rows {
		if _, err := w.Write([]parquetRow{{int64(i), fmt.Sprintf("text number %d", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// megatronOf makes an .idx and a .bin file with a document for each list.
func megatronOf(docs ...[]int32) (idx, bin []byte) {
	idx = append(idx, "MMIDIDX\x00\x00"...)
	idx = binary.LittleEndian.AppendUint64(idx, 1) // version
	idx = append(idx, 4)                           // int32
	idx = binary.LittleEndian.AppendUint64(idx, uint64(len(docs)))
	idx = binary.LittleEndian.AppendUint64(idx, uint64(len(docs)+1))
	for _, d := range docs {
		idx = binary.LittleEndian.AppendUint32(idx, uint32(len(d)))
	}
	for _, d := range docs {
		idx = binary.LittleEndian.AppendUint64(idx, uint64(len(bin)))
		for _, id := range d {
			bin = binary.LittleEndian.AppendUint32(bin, uint32(id))
		}
	}
	for i := range len(docs) + 1 {
		idx = binary.LittleEndian.AppendUint64(idx, uint64(i))
	}
	return idx, bin
}
