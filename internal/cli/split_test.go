package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/preview"
)

// splitEdits make rows of the good job up to four ranks wide.
func splitEdits(t *testing.T, topology string) []string {
	t.Helper()
	at := strings.Index(good, "batch:")
	return []string{good[at:], "batch: {sequence_length: 32, sequences: 16, context_split: 4}\n" +
		"topology: {" + topology + "}\noutput: {format: megatron-thd}\n" +
		"strategy: [{distribute: cp}, {cost: quadratic}, {balance: auto}]\n"}
}

// TestContextSplit: what is run on two meshes is what the reference computes, and plan
// and explain tell of the same rows.
func TestContextSplit(t *testing.T) {
	t.Parallel()
	dir := folder(t, splitEdits(t, "dp: 2, cp: 2")...)
	other := folder(t, splitEdits(t, "dp: 8, pp: 2")...)
	want := millrace(t, dir, "reference", "job.yaml", "--steps", "8").digest(t)
	for _, d := range []string{dir, other} {
		if got := millrace(t, d, "run", "job.yaml", "--steps", "8").digest(t); got != want {
			t.Errorf("run ends with %s, the reference with %s", got, want)
		}
	}
	raw := millrace(t, dir, "plan", "job.yaml", "--steps", "8", "--json")
	raw.expect(t, 0)
	var r preview.Report
	decode(t, raw.stdout, &r)
	if r.Tokens+r.Padding != 8*16*32 || len(r.Modules) != 3 || r.Modules[0].Axis != "cp" || r.Modules[2].Mean >= r.Modules[2].Lockstep {
		t.Errorf("the report is %s", raw.stdout)
	}
	widest := explainSplit(t, dir)
	text := millrace(t, dir, "explain", "job.yaml", "--step", "3", "--rank", "dp=1,cp=1", "--microbatch", fmt.Sprint(widest.Microbatch))
	text.expect(t, 0)
	for _, says := range []string{fmt.Sprintf("4 ranks from dp=0 cp=0 on, microbatch %d, row %d:", widest.Microbatch, widest.Row), "of 128 tokens", "up to 4 times as many tokens"} {
		if !strings.Contains(text.stdout, says) {
			t.Errorf("explain does not say %q:\n%s", says, text.stdout)
		}
	}
}

// explainSplit returns a sample of a row that four ranks share, after it checked the
// rows of a step.
func explainSplit(t *testing.T, dir string) preview.Sample {
	t.Helper()
	raw := millrace(t, dir, "explain", "job.yaml", "--step", "3", "--json")
	raw.expect(t, 0)
	var x preview.Explanation
	decode(t, raw.stdout, &x)
	var widest preview.Sample
	for _, s := range x.Samples {
		if s.Ranks < 1 || s.Offset+s.Tokens > 32*s.Ranks || (2*s.DP+s.CP)%s.Ranks != 0 {
			t.Errorf("%+v is not within its ranks", s)
		}
		if s.Ranks == 4 {
			widest = s
		}
	}
	if widest.Ranks == 0 || x.Rows >= 16 {
		t.Fatalf("no row is four ranks wide in %s", raw.stdout)
	}
	return widest
}

func TestContextSplitBadInput(t *testing.T) {
	t.Parallel()
	edits := func(old, new string) []string {
		all := splitEdits(t, "dp: 2, cp: 2")
		return []string{all[0], strings.Replace(all[1], old, new, 1)}
	}
	check(t, []badInput{
		{"no power of two", edits("context_split: 4", "context_split: 6"), nil, []string{"job.yaml:10: batch.context_split", "6 is not a power of two", "valid are 4 and 8"}},
		{"more ranks than there are", edits("context_split: 4", "context_split: 8"), nil, []string{"job.yaml:10: batch.context_split", "8 does not divide the pool of dp 2 * cp 2 ranks"}},
		{"a format that cuts rows", edits("megatron-thd", "hf"), nil, []string{"job.yaml:12: output.format", "hf has no rows of several widths", "valid is megatron-thd"}},
		{"rows over dp", edits("distribute: cp", "distribute: dp"), nil, []string{"job.yaml:13: strategy[0].distribute", "rows are distributed at cp, not at dp"}},
		{"a batch that does not fill the pool", edits("sequences: 16", "sequences: 6"), nil, []string{"job.yaml:10: batch.sequences", "not a multiple of the pool", "valid are 4 and 8"}},
	}, "lint", "run", "plan", "reference")
}
