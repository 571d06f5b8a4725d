package cli

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// within runs a verb in a number of MiB of memory: the system gives it no more, and a program
// that asks for more ends in a crash.
func within(t *testing.T, dir string, mib int, args ...string) result {
	t.Helper()
	script := fmt.Sprintf(`ulimit -d %d && exec "$@"`, mib<<10)
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "sh", program}, args...)...)
	cmd.Dir = dir
	return runCommand(t, cmd)
}

// withLong are good lines around one whose text is repeated words of a number of bytes.
func withLong(bytes int) string {
	return lines(50) + `{"text": "` + strings.Repeat("long ", bytes/5) + `"}` + "\n" + lines(50)
}

// TestLongRecord: a line longer than max_record is refused by that name before it is held.
func TestLongRecord(t *testing.T) {
	t.Parallel()
	records := []byte(withLong(80 << 20))
	dir := folder(t, words("long.jsonl")...)
	put(t, dir, "long.jsonl", records)
	for _, verb := range []string{"run", "reference"} {
		within(t, dir, 500, verb, "job.yaml").expect(t, exitUser, "long.jsonl:51:", "longer than max_record allows (67108864 bytes)", "larger max_record")
	}
	dir = folder(t, words("long.jsonl.gz", "bad_records: skip")...)
	put(t, dir, "long.jsonl.gz", gzipped(records))
	// What a source without a limit of its own gives must not depend on the default.
	within(t, dir, 500, "run", "job.yaml").expect(t, exitUser, "long.jsonl.gz:51:", "max_record")
}

// TestLongRecordSkipped: a source that says both how long records may be and that it skips
// bad ones leaves it out.
func TestLongRecordSkipped(t *testing.T) {
	t.Parallel()
	short := folder(t, words("short.jsonl", "bad_records: skip", "max_record: 1MiB")...)
	put(t, short, "short.jsonl", lines(50)+lines(50))
	want := tokensOf(t, short)
	records := withLong(5 << 20)
	for name, data := range map[string][]byte{"long.jsonl": []byte(records), "long.jsonl.gz": gzipped([]byte(records))} {
		dir := folder(t, words(name, "bad_records: skip", "max_record: 1MiB")...)
		put(t, dir, name, data)
		got, reference := millrace(t, dir, "run", "job.yaml", "--steps", "3").digest(t), millrace(t, dir, "reference", "job.yaml", "--steps", "3").digest(t)
		if got != reference {
			t.Errorf("without the long line a run of %s ends with %s, the reference with %s", name, got, reference)
		}
		if got := tokensOf(t, dir); got != want {
			t.Errorf("without its long line %s has %d tokens in an epoch, want %d", name, got, want)
		}
	}
}

// TestLongText: a template that makes much of little is refused before the text is made.
func TestLongText(t *testing.T) {
	t.Parallel()
	records := fmt.Sprintf(`{"text": %q}`+"\n", strings.Repeat("much ", 1<<18))
	dir := withText(t, records, strings.Repeat("{text}", 150))
	for _, verb := range []string{"run", "plan", "reference"} {
		within(t, dir, 400, verb, "job.yaml").expect(t, exitUser, "transforms[0].text: the text of 196608000 bytes is longer than max_record allows (67108864 bytes)")
	}
	millrace(t, dir, "lint", "job.yaml", "--read", "1").expect(t, exitUser, "longer than max_record")
	dir = withText(t, records, "{text}{text}", "max_record: 2mb")
	millrace(t, dir, "run", "job.yaml").expect(t, exitUser, "the text of 2621440 bytes is longer than max_record allows (2000000 bytes)")
}

// TestBlankLines: a small file of very many blank lines is refused by the same limit.
func TestBlankLines(t *testing.T) {
	t.Parallel()
	var blank bytes.Buffer
	z := gzip.NewWriter(&blank)
	z.Write([]byte(lines(3)))
	for range 70 {
		z.Write(bytes.Repeat([]byte("\n"), 1<<20))
	}
	z.Close()
	dir := folder(t, words("blank.jsonl.gz")...)
	put(t, dir, "blank.jsonl.gz", blank.Bytes())
	for _, verb := range []string{"run", "plan", "reference"} {
		millrace(t, dir, verb, "job.yaml").expect(t, exitUser, "blank.jsonl.gz: ", "the blank lines from byte", "longer than max_record allows (67108864 bytes)")
	}
}

// TestOtherLongRecords: every format has the limit.
func TestOtherLongRecords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3<<10)
	array := `[{"text": "a"}, {"text": "` + long + `"}]`
	idx, bin := megatronOf(make([]int32, 10), make([]int32, 1<<10))
	check(t, []badInput{
		{"element", words("a.json", "max_record: 2Ki"), map[string][]byte{"a.json": []byte(array)}, []string{"element 1 (byte 16) is longer than max_record allows (2048 bytes)"}},
		{"object", words("a.json", "max_record: 2Ki"), map[string][]byte{"a.json": []byte(`{"text": "` + long + `"}`)}, []string{"its first line is longer than max_record"}},
		{"space", words("a.json", "max_record: 2Ki"), map[string][]byte{"a.json": []byte(strings.Repeat(" ", 3<<10) + array)}, []string{"white space", "longer than max_record"}},
		{"text", words("a.txt", "max_record: 2Ki"), map[string][]byte{"a.txt": []byte(long)}, []string{"a.txt: the text is longer than max_record"}},
		{"member", words("a.tar", "max_record: 10"), map[string][]byte{"a.tar": tarOf(t, 3)}, []string{".txt is longer than max_record allows (10 bytes)"}},
		{"document", words("m.bin", "max_record: 2Ki"), map[string][]byte{"m.idx": idx, "m.bin": bin}, []string{"document 1 is longer than max_record"}},
		{"column", words("a.parquet", "max_record: 3"), map[string][]byte{"a.parquet": parquetOf(t, 50)}, []string{"a.parquet: row 0", "bytes is longer than max_record allows (3 bytes)"}},
		{"nonsense", words("words/*.jsonl", "max_record: 2GiB"), nil, []string{"job.yaml:6: sources[0].max_record", "at most 1073741824"}},
	}, "run")
}

// TestCompressedFile: a compressed file is one chunk, however much is in it. What is held
// of it while it is read is the loader's budget, and the batches are what they are.
func TestCompressedFile(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("some words of a text ", 60)
	var thousand strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&thousand, `{"id": %d, "text": "%d %s"}`+"\n", i, i, text[:1000+i%200])
	}
	edits := append(words("big.jsonl.gz", "keep: [id]"), "topology: {dp: 2}\n", "topology: {dp: 2}\nresources: {loader_buffer: 16MiB, constructor_buffer: 16MiB}\n")
	dir := folder(t, edits...)
	put(t, dir, "big.jsonl.gz", bytes.Repeat(gzipped([]byte(thousand.String())), 100))
	got := within(t, dir, 400, "run", "job.yaml", "--steps", "20").digest(t)
	if want := millrace(t, dir, "reference", "job.yaml", "--steps", "20").digest(t); got != want {
		t.Errorf("a run in little memory ends with %s, the reference with %s", got, want)
	}
}

// TestLongList: a list of very many elements, which take more memory than their bytes,
// is refused by a name of its own before it is held.
func TestLongList(t *testing.T) {
	t.Parallel()
	list := `{"text": [` + strings.Repeat(`"",`, 8<<20) + `""]}` + "\n"
	dir := folder(t, words("list.jsonl", "bad_records: skip")...)
	put(t, dir, "list.jsonl", lines(50)+list+lines(50))
	for _, verb := range []string{"run", "reference", "plan"} {
		within(t, dir, 800, verb, "job.yaml").expect(t, exitUser, "list.jsonl:51:", "field \"text\": it has more list elements than max_elements allows (1048576)", "larger max_elements")
	}
}

// TestLongListSkipped: a source that says both how many elements a record may have and that
// it skips bad ones leaves it out; every format counts them alike.
func TestLongListSkipped(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("list.jsonl", "bad_records: skip", "max_elements: 3")...)
	put(t, dir, "list.jsonl", lines(50)+`{"text": ["a", "b", "c", "d"]}`+"\n"+`{"text": [["a", "b"], "c"]}`+"\n"+lines(50))
	same := folder(t, words("list.jsonl", "bad_records: skip", "max_elements: 3")...)
	put(t, same, "list.jsonl", lines(50)+lines(50))
	if got, want := tokensOf(t, dir), tokensOf(t, same); got != want {
		t.Errorf("without its long lists the source has %d tokens, want %d", got, want)
	}
	got, reference := millrace(t, dir, "run", "job.yaml", "--steps", "3").digest(t), millrace(t, dir, "reference", "job.yaml", "--steps", "3").digest(t)
	if got != reference {
		t.Errorf("without the long lists a run ends with %s, the reference with %s", got, reference)
	}
	check(t, []badInput{
		{"element", words("a.json", "max_elements: 3"), map[string][]byte{"a.json": []byte(`[{"text": "a"}, {"text": ["a", "b", "c", "d"]}]`)}, []string{"element 1 (byte 16): field \"text\": it has more list elements than max_elements allows (3)"}},
		{"member", words("a.tar", "transforms: [text: \"{json.a}\", tokenize: bytes]", "max_elements: 3"), map[string][]byte{"a.tar": tarOfFiles(t, "1.json", `{"a": ["a", "b", "c", "d"]}`)}, []string{"sample 0 (1): the member .json: field \"a\": it has more list elements than max_elements allows (3)"}},
		{"nonsense", words("words/*.jsonl", "max_elements: 2Gi"), nil, []string{"job.yaml:6: sources[0].max_elements", "at most 1073741824"}},
	}, "run")
}
