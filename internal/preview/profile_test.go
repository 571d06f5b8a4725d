package preview_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/preview"
	"github.com/millrace-data/millrace/internal/profile"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
	"github.com/millrace-data/millrace/jobspec"
)

// counts are what of a source does not depend on the machine.
func counts(s *profile.Source) string {
	text := fmt.Sprintf("%s %s records=%d skipped=%d samples=%d tokens=%d bytes=%d block=%d blocks=%d:", s.Name, s.Recipe[:4], s.Records, s.Skipped, s.Samples, s.Tokens, s.Bytes, s.BlockBytes, s.Blocks)
	for _, st := range s.Stages {
		text += fmt.Sprintf(" %s=%d", st.Name, st.Bytes)
	}
	return text
}

// TestProfile: the same records are measured each time, one source after the other or all at once; a record
// counts once, whatever became of it; and the time of a source is that of its stages.
func TestProfile(t *testing.T) {
	t.Parallel()
	var st store.Memory
	for f := range 5 {
		var data []byte
		for i := range 300 {
			data = fmt.Appendf(data, `{"n":%d,"text":%q}`+"\n", i, strings.Repeat("ab ", f+1))
		}
		st.Put(fmt.Sprintf("d/%d.jsonl", f), append(data, "no JSON\n"...))
	}
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources:
  - {name: native, files: /d, chunk_bytes: 1KiB, bad_records: skip, transforms: [{filter: n < 200}, {tokenize: bytes}, {append_eod: {}}]}
  - {name: functions, files: /d, bad_records: skip, transforms: [{filter: n < 200}, {python: "m:twice"}, {replace: {pattern: a, with: A}}, {tokenize: bytes}]}
  - {name: small, files: /d/0.jsonl, bad_records: skip, transforms: [{tokenize: bytes}]}
mix: {weights: {native: 1, functions: 1, small: 1}}
batch: {sequence_length: 16, sequences: 1}
`), "/")
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	var before []string
	for _, workers := range []int{1, 3, 1} {
		p, err := preview.Profile(t.Context(), &st, doubling, job, preview.ProfileOptions{Records: 400, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		if !p.Covers(job.Sources) {
			t.Fatalf("the profile lacks a source:\n%v", p)
		}
		var now []string
		for i := range p.Sources {
			s := &p.Sources[i]
			now = append(now, counts(s))
			seconds := 0.0
			for _, stage := range s.Stages {
				seconds += stage.Seconds
			}
			if math.Abs(seconds-s.Seconds) > 1e-9 || seconds <= 0 || s.CPU > s.Seconds {
				t.Errorf("source %s: %v s, its stages %v s, CPU %v s", s.Name, s.Seconds, seconds, s.CPU)
			}
		}
		if before == nil {
			before = now
		}
		if text := strings.Join(now, "\n"); text != strings.Join(before, "\n") {
			t.Errorf("workers %d: measured\n%s\nbefore\n%s", workers, text, strings.Join(before, "\n"))
		}
	}
	want := []string{
		"functions records=400 open= read= decode= transforms[0].filter= python transforms[3].replace= transforms[4].tokenize= samples=",
		"native records=400 open= read= decode= transforms[1].filter= transforms[2].tokenize= transforms[3].append_eod= samples=",
		"small records=301 skipped=1 open= read= decode= transforms[1].tokenize= samples=",
	}
	for i, line := range before {
		for _, word := range strings.Fields(want[i]) {
			if !strings.Contains(line, word) {
				t.Errorf("%q is not in %s", word, line)
			}
		}
	}
	if strings.Contains(before[1], "samples=400") {
		t.Errorf("a filter took out a third: %s", before[1])
	}
}

// TestProfileBad: a record on which the job stops stops the measurement with the words of a loader, whichever step it comes to.
func TestProfileBad(t *testing.T) {
	t.Parallel()
	var st store.Memory
	st.Put("d/json.jsonl", []byte(`{"n":1,"text":"ab"}`+"\nno JSON\n"))
	st.Put("d/type.jsonl", []byte(`{"n":1,"text":"ab"}`+"\n"+`{"n":"x","text":"ab"}`+"\n"))
	for _, file := range []string{"json", "type"} {
		for _, step := range []string{"", `{python: "m:twice"}, `} {
			job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources: [{name: s, files: /d/`+file+`.jsonl, transforms: [{filter: n < 200}, `+step+`{tokenize: bytes}]}]
batch: {sequence_length: 16, sequences: 1}
`), "/")
			if err := findings.Err(); err != nil {
				t.Fatal(err)
			}
			src, err := sourceloader.Open(t.Context(), &st, job, 0, transform.NewShared(job.Seed, doubling))
			if err != nil {
				t.Fatal(err)
			}
			_, want := src.Read(t.Context(), &st, src.Chain.Worker(), 0, sourceloader.Bans{})
			_, err = preview.Profile(t.Context(), &st, doubling, job, preview.ProfileOptions{Records: 400, Workers: 1})
			if want == nil || err == nil || fault.ClassOf(err) != fault.User || err.Error() != want.Error() {
				t.Errorf("%s, %s: %v, a loader says %v", file, step, err, want)
			}
		}
	}
}
