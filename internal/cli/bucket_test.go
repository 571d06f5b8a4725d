package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/object/objecttest"
)

// TestBucket runs a job on files in a bucket: the service delivers what the reference does, by
// the plans of the same files on a disk. The digests are others, as they are for any other
// names in the spec: the chain begins with what the spec says about the data.
func TestBucket(t *testing.T) {
	where := objecttest.Server(t)
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../checkpoint/testdata/v4")); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "data.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := object.Open(where)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "some/where/data.jsonl", data); err != nil {
		t.Fatal(err)
	}
	spec, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]string{"file.yaml": "s3://bucket/some/where/data.jsonl", "glob.yaml": "'s3://bucket/some/**/*.jsonl'", "none.yaml": "s3://bucket/none/*.jsonl"} {
		text := strings.Replace(string(spec), "files: data.jsonl", "files: "+files, 1)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	digest := func(args ...string) string {
		t.Helper()
		r := millrace(t, dir, append(args, "--steps", "20")...)
		r.expect(t, 0)
		return r.stdout[strings.LastIndex(r.stdout, "digest"):]
	}
	plans := func(job string) []string {
		t.Helper()
		r := millrace(t, dir, "plan", job, "--steps", "10", "--every", "--json")
		r.expect(t, 0)
		return regexp.MustCompile("[0-9a-f]{64}").FindAllString(r.stdout, -1)
	}
	want := plans("job.yaml")
	for _, job := range []string{"file.yaml", "glob.yaml"} {
		if ran, read := digest("run", job), digest("reference", job); ran != read {
			t.Errorf("%s: the service ends with %s, the reference with %s", job, ran, read)
		}
		if got := plans(job); len(got) < 10 || !slices.Equal(got, want) {
			t.Errorf("%s: the plans are %q, and of local files %q", job, got, want)
		}
		millrace(t, dir, "lint", job).expect(t, 0)
	}
	millrace(t, dir, "run", "none.yaml").expect(t, exitUser, "s3://bucket/none/*.jsonl", "no such file")
}
