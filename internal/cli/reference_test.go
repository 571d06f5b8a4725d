package cli

import (
	"fmt"
	"path/filepath"
	"testing"
)

// TestNoEnd: data without epochs has no end to go to.
func TestNoEnd(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for _, verb := range []string{"run", "plan", "reference"} {
		millrace(t, dir, verb, "job.yaml", "--steps", "0").expect(t, exitUser, "no end without mix.epochs", "give --steps")
	}
}

// TestReferenceRefuses: a change that run refuses is refused by the verbs of the reference, with its place.
func TestReferenceRefuses(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for i, c := range []struct{ changes, line, says string }{
		{`{"step":3,"pause":"words"}` + "\n" + `{"step":3,"pause":"notes"}`, "2", "no source with a weight is left"},
		{`{"step":2,"sequences":7}`, "1", "7 rows are not a multiple"},
		{`{"step":2,"ban":{"source":"words","file":"9.jsonl","row":3}}`, "1", `no file "9.jsonl"`},
		{`{"step":2,"topology":{"dp":3}}`, "1", "dp 3"},
	} {
		t.Run(c.says, func(t *testing.T) {
			t.Parallel()
			file := fmt.Sprintf("%d.jsonl", i)
			put(t, dir, file, c.changes+"\n")
			for _, args := range [][]string{{"run", "job.yaml", "--steps", "5"}, {"reference", "job.yaml", "--steps", "5"},
				{"verify", "job.yaml", "--steps", "5", "--digest", fmt.Sprintf("%064d", 0)}} {
				millrace(t, dir, append(args, "--changes", file)...).expect(t, exitUser, filepath.Join(dir, file)+":"+c.line+": the change ", c.says)
			}
		})
	}
}
