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
		{"--step 1 --limit 64", "--limit is for --graph and --dot", exitUsage},
		{"--step 1 --graph --dot", "give one of them", exitUsage},
		{"--step 1 --dot --json", "--json is not for --graph and --dot", exitUsage},
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

// TestPlanBadFlags: a flag that would do nothing is refused.
func TestPlanBadFlags(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for args, says := range map[string]string{
		"--yaml":                     "are for --sizing",
		"--cores 4":                  "are for --sizing",
		"--memory 8GiB":              "are for --sizing",
		"--constructors 2":           "are for --sizing",
		"--processes":                "are for --sizing",
		"--profile p.json":           "are for --sizing",
		"--operators --profile p":    "are for --sizing",
		"--operators --sizing":       "give one of them",
		"--operators --every":        "are for plans",
		"--sizing --html x.html":     "are for plans",
		"--operators --step-time 2s": "--step-time is not for --operators",
		"--sizing --yaml --json":     "give one of them",
		"--step-time 0":              "--step-time is 0s, valid is more than 0, such as 2s",
		"--sizing --step-time 0s":    "--step-time is 0s, valid is more than 0, such as 2s",
	} {
		millrace(t, dir, append([]string{"plan", "job.yaml"}, strings.Fields(args)...)...).expect(t, exitUsage, says)
	}
}

// TestExplainLoss reads which tokens of a conversation carry loss.
func TestExplainLoss(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	for name, data := range map[string]string{
		"chat.jinja":  "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}",
		"chats.jsonl": `{"messages":[{"role":"user","content":"2 + 2?"},{"role":"assistant","content":"4"},{"role":"user","content":"And 3 + 3?"},{"role":"assistant","content":"That is 6."}]}` + "\n",
		"chat.yaml": `name: chat
sources: [{name: sft, files: chats.jsonl, transforms: [chat: {template: chat.jinja}, tokenize: bytes]}]
batch: {sequence_length: 128, sequences: 1}
topology: {dp: 1}
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := millrace(t, dir, "explain", "chat.yaml", "--step", "0")
	r.expect(t, 0)
	// "user: 2 + 2?\nassistant: " are 24 bytes and the answer, "4\n", two; 28 bytes are between it and the second.
	if !strings.Contains(r.stdout, " 0  loss on 13 of 65 tokens: 24-25, 54-64\n") {
		t.Errorf("explain prints\n%s", r.stdout)
	}
	var x preview.Explanation
	decode(t, millrace(t, dir, "explain", "chat.yaml", "--step", "0", "--json").stdout, &x)
	if got := fmt.Sprint(x.Samples[0].Masked); got != "[1 24 26 54]" {
		t.Errorf("runs without loss are %s", got)
	}
}

func TestLossWords(t *testing.T) {
	var many []int32
	for i := range int32(20) {
		many = append(many, 10*i+1, 10*i+3)
	}
	for want, got := range map[string]string{
		"loss on none of 7 tokens":        lossWords(nil, 7),
		"loss on 3 of 7 tokens: 2-2, 5-6": lossWords([]int32{2, 3, 5, 7}, 7),
		"loss on 16 of 99 tokens: 1-2, 11-12, 21-22, 31-32, 41-42, 51-52, 61-62, 71-72":             lossWords(many[:16], 99),
		"loss on 40 of 200 tokens: 1-2, 11-12, 21-22, 31-32, 41-42, 51-52, 61-62, 12 more, 191-192": lossWords(many, 200),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestProfileFolder makes the folder of a step log, as serve does, and keeps the profile there.
func TestProfileFolder(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	millrace(t, dir, "profile", "job.yaml", "--records", "5", "--log-dir", "state/log").expect(t, 0)
	millrace(t, dir, "plan", "job.yaml", "--sizing", "--profile", "state/log/profile.json").expect(t, 0)
	millrace(t, dir, "profile", "job.yaml", "--log-dir", "job.yaml/log").expect(t, exitUser, "job.yaml", "--log-dir")
}

// TestCounts: plan and run say which of their counts differ.
func TestCounts(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	if r := millrace(t, dir, "plan", "job.yaml", "--steps", "7"); !strings.Contains(r.stdout, "more tokens were drawn, which are in no row of these steps") {
		t.Error(r.stdout)
	}
	if r := millrace(t, dir, "run", "job.yaml", "--steps", "2"); !strings.Contains(r.stdout, "count what was read ahead of these steps") {
		t.Error(r.stdout)
	}
}
