package control_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/plan"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/feedback"
)

// feedbackJob is a job whose policy decides at every step, for two DP ranks. ask reports a
// loss, and returns the error and the changes made so far.
func feedbackJob(t *testing.T) (core *control.Core, ask func(control.Report) (changes []string, err error)) {
	t.Helper()
	job, findings := jobspec.Parse("job.yaml", []byte(`
name: losses
sources: [{name: web, files: web/*.txt}, {name: code, files: code/*.txt}]
mix: {weights: {web: 0.5, code: 0.5}, feedback: {policy: exponential, every: 1}}
batch: {sequence_length: 64, sequences: 4}
topology: {dp: 2, tp: 2}
`), t.TempDir())
	if err := findings.Err(); err != nil {
		t.Fatal(err)
	}
	cfg, err := compile.Plan(job, compile.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := compile.Registry{}.Policies.New(job.Mix.Feedback.Policy, feedback.Options{Rate: float64(job.Mix.Feedback.Rate) / 1000, Floor: float64(job.Mix.Feedback.Floor) / 1000})
	if err != nil {
		t.Fatal(err)
	}
	core = control.New(control.Config{Job: job, Plan: cfg, Loaders: 1, AllowRoots: job.Roots(), Policy: policy})
	core.Apply(control.LoaderJoined{Session: 1})
	for i := range 2 {
		core.Apply(control.Indexed{Session: 1, Source: i, Blocks: 1, Manifest: bytes.Repeat([]byte{7}, 32)})
	}
	core.Apply(control.Begin{})
	for i := range 2 { // enough for two steps
		core.Apply(control.BlockRead{Session: 1, Block: plan.BlockRead{Source: int32(i), Lengths: slices.Repeat([]int32{32}, 40)}})
	}
	asked := uint64(0)
	return core, func(r control.Report) ([]string, error) {
		asked++
		var err error
		for _, e := range core.Apply(control.Ask{ID: asked, Question: r}) {
			if a, ok := e.(control.Answer); ok {
				err = a.Err
			}
		}
		return core.Snapshot().Changes, err
	}
}

func lossOf(step int64, dp, tp uint32) control.Report {
	return control.Report{
		Step: step, Rank: control.Rank{DP: dp, TP: tp},
		Sources: []string{"web", "code"}, Losses: []float64{3, 1}, Tokens: []uint64{10, 10},
	}
}

// TestFeedbackDecidesOnce: a policy decides when every DP rank has reported a step,
// once, whichever ranks speak for them; web, which is learned worse, gets more.
func TestFeedbackDecidesOnce(t *testing.T) {
	core, ask := feedbackJob(t)
	for i, r := range []struct {
		report control.Report
		made   int // changes after it
	}{
		{lossOf(0, 0, 0), 0}, {lossOf(0, 0, 1), 0}, {lossOf(0, 1, 0), 1}, {lossOf(0, 1, 1), 1},
		{lossOf(1, 1, 0), 1}, {lossOf(0, 0, 0), 1}, {lossOf(1, 0, 0), 2}, {lossOf(1, 1, 1), 2},
	} {
		made, err := ask(r.report)
		if err != nil {
			t.Fatal(err)
		}
		if len(made) != r.made {
			t.Fatalf("after report %d there are %d changes, want %d", i, len(made), r.made)
		}
	}
	state, _ := core.Plan().State(0)
	if shares := state.Pending[1].Shares; shares[0] <= shares[1] {
		t.Errorf("web is learned worse and has the shares %v", shares)
	}
}

// TestReportOfAnotherMesh: a rank that the mesh does not have speaks for none of those that it has.
func TestReportOfAnotherMesh(t *testing.T) {
	_, ask := feedbackJob(t)
	for _, r := range []control.Report{lossOf(0, 0, 0), lossOf(0, 1000, 0), lossOf(0, 1, 2)} {
		if made, err := ask(r); err != nil || len(made) > 0 {
			t.Errorf("changes %v, %v", made, err)
		}
	}
	if made, err := ask(lossOf(0, 1, 0)); err != nil || len(made) != 1 {
		t.Errorf("changes %v, %v", made, err)
	}
}

func TestReportRefuses(t *testing.T) {
	_, ask := feedbackJob(t)
	unknown, short, large, far := lossOf(0, 0, 0), lossOf(0, 0, 0), lossOf(0, 0, 0), lossOf(1<<40, 0, 0)
	unknown.Sources[0] = "wbe"
	short.Tokens = short.Tokens[:1]
	large.Losses[0], large.Tokens[0] = 1.7e308, 1<<60
	for want, r := range map[string]control.Report{"more than there are numbers for": large, "is of step 1099511627776": far, `did you mean "web"?`: unknown, "2 sources, 2 losses and 1": short} {
		if _, err := ask(r); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a user error with %q", err, want)
		}
	}
}
