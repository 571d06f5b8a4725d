package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
)

// TestUnreadableSource: a job that ends because of a source that joined goes on without it by the line that its error
// names, though steps with the source are logged.
func TestUnreadableSource(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	put(t, dir, "late/0.jsonl", lines(4000)+"{\"id\": 1}\n"+lines(50))
	put(t, dir, "add.jsonl", `{"step":3,"add":{"source":{"name":"late","files":"late/0.jsonl","chunk_bytes":16384,"shuffle":false,"transforms":[{"text":"{text}"},{"tokenize":"bytes"}]},"weight":0.5}}`+"\n")
	r := millrace(t, dir, "run", "job.yaml", "--changes", "add.jsonl", "--log-dir", "log", "--steps", "1000")
	r.expect(t, exitUser, "late/0.jsonl", "it joined at step 3: to go on without it")
	line := regexp.MustCompile(`\{"step": (\d+), "drop": "late"\}`).FindStringSubmatch(r.stderr)
	if line == nil {
		t.Fatalf("no line to go on with:\n%s", r.stderr)
	}
	step, _ := strconv.Atoi(line[1])
	if step < 5 {
		t.Fatalf("the job ended before steps with the source: %s", line[0])
	}
	drop := fmt.Sprintf(`{"step":%d,"drop":"late"}`, step+10) // so that it comes where the block is looked ahead to for sure
	steps := strconv.Itoa(step + 15)
	put(t, dir, "drop.jsonl", drop+"\n")
	add, err := os.ReadFile(filepath.Join(dir, "add.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "all.jsonl", string(add)+drop+"\n")
	want := millrace(t, dir, "reference", "job.yaml", "--changes", "all.jsonl", "--steps", steps).digest(t)
	for _, args := range [][]string{{"--changes", "drop.jsonl"}, nil} { // the second time the log has it
		if got := millrace(t, dir, append([]string{"run", "job.yaml", "--log-dir", "log", "--steps", steps}, args...)...).digest(t); got != want {
			t.Errorf("%v: it ends with %s, want %s", args, got, want)
		}
	}
}
