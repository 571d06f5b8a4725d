package jobspec

import (
	"reflect"
	"testing"
)

// FuzzParse: no text makes Parse panic, and a job that it accepts prints and
// reads back as itself.
func FuzzParse(f *testing.F) {
	f.Add([]byte(base))
	f.Add([]byte(example))
	f.Add([]byte(shortForms))
	for i, row := range findingRows {
		if text := with(row.line, row.text); i%4 == 0 && len(text) < 1000 {
			f.Add([]byte(text))
		}
	}
	for _, text := range []string{
		"? a\n: b\n", "a: &a [*a]\n", "&a a: *a\n", "<<: *x\n", "a: |\n", "a: >+2\n x", "- - - -", "{", "[}", "%YAML 1.2\n---\n", "--- !x\n...\n---", "\xef\xbb\xbfname: x", "a: \"\\", "a: '", "*", "&", "!", "\r\r\r", "name:\t- x",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		job, findings := Parse("f", src, "/specs", Env(noEnv))
		for _, finding := range findings {
			if finding.Line < 1 || finding.Column < 1 || finding.Message == "" {
				t.Errorf("%+v has no place or no words", finding)
			}
		}
		if job == nil {
			if findings.Err() == nil {
				t.Error("neither a job nor an error")
			}
			return
		}
		back, findings := Parse("f", job.YAML(), "/specs", Env(noEnv))
		if !reflect.DeepEqual(back, written(job)) {
			t.Errorf("%v\n%s\n%s", findings, src, job.YAML())
		}
	})
}
