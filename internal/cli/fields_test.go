package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/planner/status"
	"github.com/millrace-data/millrace/internal/preview"
)

// questions are JSON Lines of questions with answers; every without-th has no answer.
func questions(n, without int) string {
	var b strings.Builder
	for i := range n {
		if without > 0 && i%without == without-1 {
			fmt.Fprintf(&b, `{"id": %d, "question": "what is %d?"}`+"\n", i, i)
		} else {
			fmt.Fprintf(&b, `{"id": %d, "question": "what is %d?", "answer": "it is %d"}`+"\n", i, i, i)
		}
	}
	return b.String()
}

// withText is the good job with another source: these records, this template.
func withText(t *testing.T, records, template string, more ...string) (dir string) {
	transforms := fmt.Sprintf(`transforms: [{text: "%s"}, {tokenize: bytes}, {append_eod: {}}]`, template)
	dir = folder(t, words("qa.jsonl", append([]string{transforms}, more...)...)...)
	put(t, dir, "qa.jsonl", records)
	return dir
}

// TestFieldThatNoRecordHas: a field that is spelled wrong is found before a token is
// trained on, by every verb, with the fields of the records.
func TestFieldThatNoRecordHas(t *testing.T) {
	t.Parallel()
	want := []string{`"anwser"`, `did you mean "answer"?`, "answer, id, question"}
	stops := withText(t, questions(200, 0), "{question} {anwser}")
	skips := withText(t, questions(200, 0), "{question} {anwser}", "bad_records: {policy: skip, limit: 1000000}")
	for _, args := range [][]string{{"run", "job.yaml"}, {"plan", "job.yaml"}, {"lint", "job.yaml", "--read", "10"}} {
		millrace(t, stops, args...).expect(t, exitUser, want...)
		millrace(t, skips, args...).expect(t, exitUser, want...) // none is left
	}
	millrace(t, stops, "reference", "job.yaml").expect(t, exitUser, want...)
	// Alone, lint reads one record: it finds what would stop the job.
	millrace(t, stops, "lint", "job.yaml").expect(t, exitUser, want...)
	millrace(t, skips, "lint", "job.yaml").expect(t, 0)
	millrace(t, skips, "lint", "job.yaml", "--read", "5").expect(t, exitUser, "sources[0].transforms[0].text: none of the 5 records read has a field")
}

// TestFieldThatSomeRecordsLack: the source's policy decides, and what it leaves out is
// counted; a question mark makes the field an optional one.
func TestFieldThatSomeRecordsLack(t *testing.T) {
	t.Parallel()
	records := questions(200, 20)
	dir := withText(t, records, "{question} {answer}")
	for _, verb := range []string{"run", "plan", "reference"} {
		millrace(t, dir, verb, "job.yaml").expect(t, exitUser, `no field "answer"`, "its fields are id, question", "{answer?}")
	}
	millrace(t, dir, "lint", "job.yaml", "--read", "100").expect(t, exitUser, `5 of the 100 records read have no field "answer"`)

	dir = withText(t, records, "{question} {answer}", "bad_records: skip")
	complete := withText(t, filterLines(records, `"answer"`), "{question} {answer}", "bad_records: skip")
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "3").digest(t)
	if got := millrace(t, dir, "run", "job.yaml", "--steps", "3").digest(t); got != want {
		t.Errorf("a run that skips ends with %s, the reference with %s", got, want)
	}
	if got := tokensOf(t, dir); got != tokensOf(t, complete) {
		t.Errorf("an epoch with records that lack a field has %d tokens, without them %d", got, tokensOf(t, complete))
	}
	millrace(t, dir, "lint", "job.yaml", "--read", "100").expect(t, 0, `warning: sources[0].transforms[0].text: 5 of the 100 records read have no field "answer"`)
	if r := millrace(t, dir, "plan", "job.yaml", "--steps", "3"); !strings.Contains(r.stdout, ` records read have no field "answer"`) { // of as many epochs as were read ahead
		t.Errorf("the plan does not count the records:\n%s", r.stdout)
	}

	// What a filter leaves out before need not have the field.
	dir = withText(t, records, "{question} {answer}")
	spec, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "job.yaml", strings.Replace(string(spec), "[{text:", "[{filter: answer != null}, {text:", 1))
	if r := millrace(t, dir, "lint", "job.yaml", "--read", "100"); r.code != 0 || r.stderr != "" {
		t.Errorf("records that a filter leaves out are findings: %s", r.stderr)
	}
	millrace(t, dir, "run", "job.yaml", "--steps", "3").digest(t)

	dir = withText(t, records, "{question} {answer?}")
	millrace(t, dir, "lint", "job.yaml", "--read", "100").expect(t, 0)
	if got, want := millrace(t, dir, "run", "job.yaml", "--steps", "3").digest(t), millrace(t, dir, "reference", "job.yaml", "--steps", "3").digest(t); got != want {
		t.Errorf("with an optional field the run ends with %s, the reference with %s", got, want)
	}
}

// filterLines are the lines that have a word.
func filterLines(text, word string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// tokensOf is what one epoch of the source words has.
func tokensOf(t *testing.T, dir string) (tokens int64) {
	spec, err := os.ReadFile(filepath.Join(dir, "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "epoch.yaml", strings.NewReplacer("{words: 0.75, notes: 0.25}", "{words: 1}\n  epochs: 1").Replace(string(spec)))
	var r preview.Report
	decode(t, millrace(t, dir, "plan", "epoch.yaml", "--steps", "0", "--json").stdout, &r)
	if r.Tokens == 0 {
		t.Fatal("the plan of an epoch has no token")
	}
	return r.Tokens
}

// TestAbsentFieldsInStatus: a service counts them, and says when a field is in no record,
// also one that may be absent: here that of a filter, which lets everything pass.
func TestAbsentFieldsInStatus(t *testing.T) {
	t.Parallel()
	dir := folder(t, words("qa.jsonl", `transforms: [{filter: "langg != 'fr'"}, {text: "{question} {answer?}"}, {tokenize: bytes}]`)...)
	put(t, dir, "qa.jsonl", strings.ReplaceAll(questions(200, 20), `"id"`, `"lang": "fr", "id"`))
	millrace(t, dir, "lint", "job.yaml", "--read", "100").expect(t, 0, "job.yaml:6: warning: sources[0].transforms[0].filter: none of the 100 records read has a field \"langg\"; did you mean \"lang\"?")
	if r := millrace(t, dir, "run", "job.yaml", "--steps", "2"); !strings.Contains(r.stdout, `records read has a field "langg"; did you mean "lang"?`) {
		t.Errorf("a run does not say that a field is nowhere:\n%s", r.stdout)
	}
	s := serve(t, dir)
	deadline := time.Now().Add(hangs)
	for {
		var said status.Service
		decode(t, millrace(t, dir, "status", s.address, "--json").stdout, &said)
		if len(said.Sources) > 0 && len(said.Sources[0].Absent) == 2 {
			got := said.Sources[0].Absent
			if got[0].Field != "answer" || got[0].Records*20 != got[0].Of || got[1].Field != "langg" || !got[1].Nowhere() { // several epochs are read ahead
				t.Errorf("the status has %+v", got)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the status does not count absent fields: %+v", said.Sources)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if r := millrace(t, dir, "status", s.address); !strings.Contains(r.stdout, `records read have no field "answer"`) {
		t.Errorf("the status does not print them:\n%s", r.stdout)
	}
}
