package cli

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// within runs a verb in so many MiB of memory: the system gives it no more, and a program
// that asks for more ends in a crash.
func within(t *testing.T, dir string, mib int, args ...string) result {
	t.Helper()
	script := fmt.Sprintf(`ulimit -d %d && exec "$@"`, mib<<10)
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, "sh", program}, args...)...)
	cmd.Dir = dir
	return runCommand(t, cmd)
}

// withLong are good lines around one whose text is repeated words of so many bytes.
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
