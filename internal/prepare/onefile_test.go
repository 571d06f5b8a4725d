package prepare

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/jobspec"
)

// several is how many workers read a file; they have room for 1.25 MiB of its records.
const several = 5

// oneFile writes a compressed file of records, some of them bad or long, and what a test adds at its end: more than several workers have
// room for, in all and in one record.
func oneFile(t *testing.T, dir, end string) {
	t.Helper()
	words(t, filepath.Join(dir, "plain"), 1, 1<<20)
	text, err := os.ReadFile(filepath.Join(dir, "plain", "0.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	long := fmt.Sprintf("{\"id\":-1,\"text\":%q}\n", strings.Repeat("a long record ", 100_000))
	for _, part := range []string{string(text), long, string(text[:1<<19]), "\n", end} {
		if _, err := w.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "web", "0.jsonl.gz"), out.String())
}

// TestOneFile has several workers on a file that only one can read, and holds what they make of it against one worker.
func TestOneFile(t *testing.T) {
	dir := t.TempDir()
	oneFile(t, dir, "")
	source := strings.Replace(web, "*.jsonl", "*.jsonl.gz", 1)
	chat := "name: web\nfiles: web/*.jsonl.gz\ntransforms: [chat: {messages: text, template: chat.jinja}, tokenize: bytes]\nbad_records: {policy: skip, limit: 100000}"
	put(t, filepath.Join(dir, "chat.jinja"), "{% for m in messages %}{{ m.content }}{% endfor %}")
	for name, job := range map[string]*jobspec.Job{
		"text":                  jobOf(t, dir, source),
		"cut":                   jobOf(t, dir, source+"long: {rule: truncate, max: 100}\n"),
		"no record is any good": jobOf(t, dir, chat),
	} {
		t.Run(name, func(t *testing.T) {
			var want map[string]string
			for _, workers := range []int{1, 2, several} {
				out := filepath.Join(t.TempDir(), "out")
				results, err := Run(t.Context(), Options{Job: job, Out: out, ShardBytes: leastShardBytes, Workers: workers})
				if none := job.Sources[0].Keep == nil; (err != nil) != none || none && !strings.Contains(err.Error(), "1923 bad; the bad records are in "+Ledger(filepath.Join(out, "web"))) {
					t.Fatal(err)
				}
				if got := files(t, filepath.Join(out, "web")); want == nil {
					want = got
				} else if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%d workers make other shards: %d files in place of %d; %+v", workers, len(got), len(want), results)
				}
			}
			if want[skippedName] == "" {
				t.Error("no record was left out")
			}
		})
	}
}

// TestOneFileEnds has a reading end in the middle: by a bad record, a damaged file, and who waits for it.
func TestOneFileEnds(t *testing.T) {
	dir := t.TempDir()
	oneFile(t, dir, "{\"id\":\n")
	strict := strings.Replace(strings.Replace(web, "*.jsonl", "*.jsonl.gz", 1), "policy: skip, limit: 100000", "policy: stop", 1)
	packed := filepath.Join(dir, "web", "0.jsonl.gz")
	whole, err := os.ReadFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	run := func(workers int, source string) string {
		_, err := Run(t.Context(), Options{Job: jobOf(t, dir, source), Out: filepath.Join(t.TempDir(), "out"), ShardBytes: leastShardBytes, Workers: workers})
		if err == nil {
			t.Fatalf("%d workers: no error", workers)
		}
		return err.Error()
	}
	before := runtime.NumGoroutine()
	for name, source := range map[string]string{"bad record": strict, "cut": strings.Replace(web, "*.jsonl", "*.jsonl.gz", 1)} {
		if name == "cut" {
			put(t, packed, string(whole[:len(whole)-4096]))
		}
		if one, more := run(1, source), run(several, source); one != more {
			t.Errorf("%s: one worker says\n%s\nand several\n%s", name, one, more)
		}
	}
	// One that has said it is done may still be on its way out.
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("more goroutines than the %d of before:\n%s", before, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
