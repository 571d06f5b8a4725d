package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestLintAsksNobody: lint sends nothing to a model server, and says how far it looked; a command that asks one which is
// away ends, with the exit code of what is lost.
func TestLintAsksNobody(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"score": 1}`)
	}))
	defer model.Close()
	dir := t.TempDir()
	put(t, dir, "a.jsonl", strings.Repeat(`{"text": "some words of a record"}`+"\n", 20))
	job := fmt.Sprintf(`name: scored
sources:
  - name: web
    files: a.jsonl
    transforms:
      - filter: len(text) > 3
      - call: {url: %q, request: '{"inputs": "{text}"}', give: {column: q, type: float, at: score}, answers: answers}
      - filter: q > 0.5
      - tokenize: bytes
batch: {sequence_length: 64, sequences: 2}
`, model.URL)
	put(t, dir, "job.yaml", job)
	put(t, dir, "bad.yaml", strings.Replace(job, "{text}", "{txet}", 1))
	for _, args := range [][]string{{"lint", "job.yaml"}, {"lint", "job.yaml", "--read", "5"}, {"lint", "job.yaml", "--print"}} {
		r := millrace(t, dir, args...)
		r.expect(t, 0)
		if !strings.Contains(r.stderr, `source "web": no model server was asked, so records went as far as the first call step`) || strings.Contains(r.stderr, "warning") {
			t.Errorf("%v says %s", args, r.stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "answers")); err == nil || asked.Load() != 0 {
		t.Errorf("lint asked %d times; its answers are there: %v", asked.Load(), err == nil)
	}
	millrace(t, dir, "lint", "bad.yaml").expect(t, exitUser, `"txet"`)
	model.Close()
	millrace(t, dir, "plan", "job.yaml", "--steps", "1").expect(t, exitLost, "asking "+model.URL, "something was lost")
}

// TestLintOfWhatIsAway: a store that is away says nothing of the spec, unless something else is wrong with it.
func TestLintOfWhatIsAway(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://nobody.invalid:9")
	t.Setenv("AWS_ACCESS_KEY_ID", "k")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	dir := t.TempDir()
	job := "name: away\nsources:\n  - {name: far, files: 's3://bucket/a.jsonl'}\nbatch: {sequence_length: 64, sequences: 2}\n"
	put(t, dir, "job.yaml", job)
	r := millrace(t, dir, "lint", "job.yaml")
	r.expect(t, exitLost, "job.yaml:3: sources[0].files: ", "(AWS_ENDPOINT_URL_S3)", "something was lost")
	put(t, dir, "both.yaml", strings.Replace(job, "\nbatch", "\n  - {name: near, files: nothing.jsonl}\nbatch", 1))
	r = millrace(t, dir, "lint", "both.yaml")
	r.expect(t, exitUser, "sources[0].files", "sources[1].files")
	put(t, dir, "query.yaml", strings.Replace(job, "a.jsonl", "a.jsonl?endpoint=http://127.0.0.1:9000", 1))
	millrace(t, dir, "lint", "query.yaml").expect(t, exitUser, "the URL of a source's files takes no endpoint=", "AWS_ENDPOINT_URL_S3")
}
