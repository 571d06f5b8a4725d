package sourceloader

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/compile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// TestDataRoots: no file of a source that joins is read from the folders of Python code, also where a link leads there, and
// its functions may be there. A planner of a version before sends one list for both.
func TestDataRoots(t *testing.T) {
	dir := t.TempDir()
	data, code := filepath.Join(dir, "data"), filepath.Join(dir, "code")
	for _, folder := range []string{data, code} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "a.jsonl"), []byte(`{"text": "a"}`+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(code, "a.jsonl"), filepath.Join(data, "link.jsonl")); err != nil {
		t.Fatal(err)
	}
	python := func(folder string) string {
		return ", transforms: [{python: {function: 'm:f', path: " + folder + "}}, {tokenize: bytes}]"
	}
	const outside, noWorkers = "is outside of the folders", "this program opens none"
	both := []string{code, data}
	for _, c := range []struct {
		source string
		data   []string
		want   string // of the error; "": there is none
	}{
		{"files: " + data + "/a.jsonl", []string{data}, ""},
		{"files: " + data + "/link.jsonl", []string{data}, outside},
		{"files: " + code + "/a.jsonl", []string{data}, outside},
		{"files: " + code + "/a.jsonl", nil, ""},
		{"files: " + data + "/a.jsonl" + python(code), []string{data}, noWorkers},
		{"files: " + data + "/a.jsonl" + python(dir), []string{data}, outside},
	} {
		job, findings := jobspec.Parse("job.yaml", []byte("name: j\nsources: [{name: s, "+c.source+"}]\nbatch: {sequence_length: 64, sequences: 2}\n"), dir)
		if err := findings.Err(); err != nil {
			t.Fatal(err)
		}
		a := compile.Assignment(job, 1, job.Sources[0])
		a.Roots, a.DataRoots = both, c.data
		l := &Loader{store: store.NewMetered(store.Local{}), shared: transform.NewShared(0, nil)}
		_, err := l.openAssigned(t.Context(), &pb.LoaderJob{LongestSample: 64}, a)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with roots of data %v: %v, want %q", c.source, c.data, err, c.want)
		}
	}
}
