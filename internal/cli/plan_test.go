package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/preview"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := millrace(t, dir, "plan", "job.yaml", "--steps", "4", "--every")
	r.expect(t, 0)
	if !regexp.MustCompile(`(?m)^ +step +documents +tokens +padding +fill +KiB +words +notes`).MatchString(r.stdout) || !strings.Contains(r.stdout, "\n4 steps: ") {
		t.Errorf("plan --every prints\n%s", r.stdout)
	}
	if one := millrace(t, dir, "plan", "job.yaml", "--steps", "1"); !strings.HasPrefix(one.stdout, "tiny: step 0, mesh ") || !strings.Contains(one.stdout, "\n1 step: ") {
		t.Errorf("plan of one step prints\n%s", one.stdout)
	}
	r = millrace(t, dir, "plan", "job.yaml", "--steps", "4", "--every", "--json")
	r.expect(t, 0)
	steps := strings.Split(strings.TrimSpace(r.stdout), "\n")
	for i, line := range steps {
		var l preview.Line
		decode(t, line, &l)
		if l.Step != int64(i) || l.Tokens+l.Padding != 4*128 || l.Drawn["words"] <= 0 || l.Scheduled["words"] != 0.75 || len(l.Plan) != 64 {
			t.Errorf("step %d: %s", i, line)
		}
	}
	if len(steps) != 4 {
		t.Errorf("%d lines for 4 steps", len(steps))
	}
}

func TestPlanReport(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	args := []string{"plan", "job.yaml", "--steps", "50", "--step-time", "500ms"}
	text := millrace(t, dir, append(args, "--html", "page.html")...)
	text.expect(t, 0)
	raw := millrace(t, dir, append(args, "--json")...)
	raw.expect(t, 0)
	var r preview.Report
	decode(t, raw.stdout, &r)
	if r.Steps != 50 || r.Job != "tiny" || r.Tokens+r.Padding != 50*4*128 || len(r.Sources) != 2 || r.Speed.StepTime != 0.5 {
		t.Errorf("the report is %s", raw.stdout)
	}
	html, err := os.ReadFile(filepath.Join(dir, "page.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{fmt.Sprintf("%d documents, %d tokens, %d of padding", r.Documents, r.Tokens, r.Padding), "at 500ms a step", "words", "notes"} {
		if !strings.Contains(text.stdout, says) {
			t.Errorf("plan does not say %q:\n%s", says, text.stdout)
		}
	}
	if !strings.Contains(string(html), "<title>tiny: preflight</title>") || !strings.HasSuffix(string(html), "</html>\n") {
		t.Errorf("the page is %.300s", html)
	}
	nowhere := millrace(t, dir, append(args, "--every", "--json", "--html", "nowhere/page.html")...)
	nowhere.expect(t, exitUser, "writing the page", "nowhere", "--html")
	if nowhere.stdout != "" {
		t.Errorf("steps were planned before the page's path was found wrong:\n%s", nowhere.stdout)
	}
	millrace(t, dir, "plan", "job.yaml", "--step-time=-1s").expect(t, exitUsage, "500ms")
	put(t, dir, "changes.jsonl", `{"step":2,"weights":{"notes":1}}`)
	changed := millrace(t, dir, append(args, "--changes", "changes.jsonl", "--json")...)
	changed.expect(t, 0)
	decode(t, changed.stdout, &r)
	if notes := r.Sources[1]; notes.Scheduled < 0.9 || notes.Share < 0.9 {
		t.Errorf("with all weight on notes from step 2 on: %+v", notes)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	r := millrace(t, dir, "explain", "job.yaml", "--step", "6", "--json")
	r.expect(t, 0)
	var x preview.Explanation
	decode(t, r.stdout, &x)
	if x.Step != 6 || x.Rows != 4 || len(x.Samples) < 4 {
		t.Fatalf("explain prints %s", r.stdout)
	}
	for _, s := range x.Samples {
		if want := map[string]string{"words": "byte", "notes": "row"}[s.Source]; s.RecordUnit != want {
			t.Errorf("a record of %s is at %s %d, want a %s", s.Source, s.RecordUnit, s.Record, want)
		}
	}
	s := x.Samples[len(x.Samples)-1]
	text := millrace(t, dir, "explain", "job.yaml", "--step", "6", "--rank", fmt.Sprintf("dp=%d", s.DP), "--microbatch", fmt.Sprint(s.Microbatch))
	text.expect(t, 0)
	if !strings.Contains(text.stdout, fmt.Sprintf("dp=%d microbatch %d, row %d: ", s.DP, s.Microbatch, s.Row)) || !strings.Contains(text.stdout, s.File) || !strings.Contains(text.stdout, fmt.Sprintf("%s %d", s.RecordUnit, s.Record)) || strings.Contains(text.stdout, fmt.Sprintf("dp=%d ", 1-s.DP)) {
		t.Errorf("explain prints\n%s", text.stdout)
	}
	back := millrace(t, dir, "explain", "job.yaml", "--file", s.File, "--row", fmt.Sprint(s.Record), "--source", s.Source, "--steps", "6..6", "--json")
	back.expect(t, 0)
	var trace preview.Trace
	decode(t, back.stdout, &trace)
	found := false
	for _, b := range trace.Samples {
		found = found || fmt.Sprint(b) == fmt.Sprint(s)
	}
	if !found {
		t.Errorf("%+v is in step 6, but its file leads to %s", s, back.stdout)
	}
	dot := millrace(t, dir, "explain", "job.yaml", "--step", "6", "--dot", "--limit", "5")
	dot.expect(t, 0)
	if !strings.HasPrefix(dot.stdout, "digraph") {
		t.Errorf("explain --dot prints %.80s", dot.stdout)
	}
}

// TestExplainFromCheckpoints explains a step from a token and from a log.
func TestExplainFromCheckpoints(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	millrace(t, dir, "run", "job.yaml", "--steps", "10", "--log-dir", "log", "--save-token", "token.json").digest(t)
	want := millrace(t, dir, "explain", "job.yaml", "--step", "12")
	want.expect(t, 0)
	for _, args := range [][]string{{"--resume", "token.json"}, {"--log-dir", "log"}} {
		if got := millrace(t, dir, append([]string{"explain", "job.yaml", "--step", "12"}, args...)...); got.stdout != want.stdout {
			t.Errorf("%v explains step 12 as\n%s%s\nwant\n%s", args, got.stdout, got.stderr, want.stdout)
		}
	}
	millrace(t, dir, "explain", "job.yaml", "--step", "3", "--resume", "token.json").expect(t, exitUser, "step 10, where the plan begins")
}

func TestExplainBadInput(t *testing.T) {
	t.Parallel()
	dir := folder(t, "  weights:", "  epochs: 1\n  weights:")
	for _, c := range []struct {
		args, says string
		code       int
	}{
		{"", "give --step N", exitUsage},
		{"--step 1 --file a", "give --step N", exitUsage},
		{"--step 1 --rank pd=0", `did you mean`, exitUsage},
		{"--step 1 --rank dp=x", "an index from 0", exitUsage},
		{"--step 1 --row 3", "are for --file", exitUsage},
		{"--file a --steps 5..2", "0..100", exitUsage},
		{"--file a", "0..100", exitUsage},
		{"--step 1 --images", "--graph", exitUsage},
		{"--step 1 --log-dir x --changes y", "--log-dir says", exitUsage},
		{"--step 1 --rank dp=2", "goes from 0 to 1", exitUser},
		{"--step 1 --microbatch 9", "valid are 0 to 1", exitUser},
		{"--step 99999", "there is no step 99999: the data ends after", exitUser},
		{"--file 1.jsonll --steps 0..1", `did you mean "1.jsonl"?`, exitUser},
		{"--file 1.jsonl --source word --steps 0..1", `did you mean "words"?`, exitUser},
		{"--step 1 --graph --images", "no graph of images", exitUser},
		{"--step 1 --resume job.yaml", "is not a resume token", exitUser},
	} {
		millrace(t, dir, append([]string{"explain", "job.yaml"}, strings.Fields(c.args)...)...).expect(t, c.code, c.says)
	}
}
