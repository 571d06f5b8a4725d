package jobspec

import (
	"strings"
	"testing"
)

// TestMissingFile: a path is named as a whole, and what is written in other tools is known.
func TestMissingFile(t *testing.T) {
	dir := t.TempDir()
	job := &Job{Dir: dir, Sources: []Source{{}}}
	long := strings.Repeat("folder/", 20) + "part-7.jsonl"
	for file, want := range map[string]string{
		long: dir + "/" + long + `", name a file`, long + "*": dir + "/" + long + `*", valid is a glob`,
		"$HOME/x": "$HOME is no variable here, write ${HOME} for it", "s3:/b/x": "s3:/ begins no URL, write s3:// with two slashes",
	} {
		job.Sources[0].Files = []string{file}
		if findings := CheckFiles(job); len(findings) != 1 || !strings.Contains(findings.Error(), want) {
			t.Errorf("%s: %v, want %q", file, findings, want)
		}
	}
}
