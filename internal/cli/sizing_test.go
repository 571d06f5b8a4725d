package cli

import (
	"path/filepath"
	"testing"
)

// TestSizingRefuses: numbers that no machine has, and sources of which nothing is known, are refused with what to do.
func TestSizingRefuses(t *testing.T) {
	t.Parallel()
	dir := folder(t, "    files: notes/*.txt\n", "    files: notes/*.txt\n    transforms: [{text: \"{text}\"}, {filter: \"contains(text, 'nowhere')\"}, {tokenize: bytes}]\n")
	for _, cores := range []string{"NaN", "Inf", "1e300", "-1"} {
		millrace(t, dir, "plan", "job.yaml", "--sizing", "--cores="+cores).expect(t, exitUsage, "--cores is", "valid is more than 0, up to")
	}
	millrace(t, dir, "plan", "job.yaml", "--sizing").expect(t, exitUser, `source "notes": none of the 30 records that were measured gave a sample`, "--records", "what its steps leave out")
	millrace(t, dir, "profile", "job.yaml", "--records", "5", "--out", "p.json").expect(t, 0)
	millrace(t, dir, "plan", "job.yaml", "--sizing", "--profile", ".").expect(t, exitUser, "is a folder: give the file in it, such as "+filepath.Join(dir, "profile.json"))
	millrace(t, dir, "plan", "job.yaml", "--sizing", "--profile", "p.json").expect(t, exitUser, `source "notes": none of the 5 records`)
	dir = folder(t)
	millrace(t, dir, "plan", "job.yaml", "--sizing", "--steps", "100000000000").expect(t, 0)
	millrace(t, dir, "profile", "job.yaml", "--records", "5", "--out", "p.json").expect(t, 0)
	other := folder(t, "  - name: notes\n", "  - name: papers\n", "notes: 0.25", "papers: 0.25")
	millrace(t, other, "plan", "job.yaml", "--sizing", "--profile", dir+"/p.json").expect(t, exitUser, `the profile lacks source "papers"`)
}
