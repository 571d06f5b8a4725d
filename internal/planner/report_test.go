package planner

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/compile"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// feedbackJob is a planner whose policy decides at every step, for two DP ranks.
func feedbackJob(t *testing.T) *Planner {
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
	d, err := NewDry(job, compile.Registry{}, func(int, jobspec.Source) (*pb.SourceIndexed, error) {
		return &pb.SourceIndexed{Blocks: 1, Manifest: make([]byte, 32)}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d.p
}

func lossOf(step uint64, dp, tp uint32) *pb.ReportRequest {
	return &pb.ReportRequest{
		Step: step, Rank: &pb.Coordinates{Dp: dp, Tp: tp},
		Sources: []string{"web", "code"}, Losses: []float64{3, 1}, Tokens: []uint64{10, 10},
	}
}

// TestFeedbackDecidesOnce: a policy decides when every DP rank has reported a step,
// once, whichever ranks speak for them; and not at all when the data has ended.
func TestFeedbackDecidesOnce(t *testing.T) {
	p := feedbackJob(t)
	for i, r := range []struct {
		report *pb.ReportRequest
		made   int // changes after it
	}{
		{lossOf(0, 0, 0), 0}, {lossOf(0, 0, 1), 0}, {lossOf(0, 1, 0), 1}, {lossOf(0, 1, 1), 1},
		{lossOf(1, 1, 0), 1}, {lossOf(0, 0, 0), 1}, {lossOf(1, 0, 0), 2}, {lossOf(1, 1, 1), 2},
	} {
		if err := p.measured(r.report); err != nil {
			t.Fatal(err)
		}
		if len(p.journal) != r.made {
			t.Fatalf("after report %d there are %d changes, want %d", i, len(p.journal), r.made)
		}
	}
	if shares := p.journal[1].Shares; shares[0] <= shares[1] {
		t.Errorf("web is learned worse and has the shares %v", shares)
	}
	p.ended = 9
	for dp := range uint32(2) {
		if err := p.measured(lossOf(8, dp, 0)); err != nil || len(p.journal) != 2 {
			t.Errorf("after the last step was planned: %v, %d changes", err, len(p.journal))
		}
	}
}

func TestReportRefuses(t *testing.T) {
	p := feedbackJob(t)
	unknown, short := lossOf(0, 0, 0), lossOf(0, 0, 0)
	unknown.Sources[0] = "wbe"
	short.Tokens = short.Tokens[:1]
	for want, r := range map[string]*pb.ReportRequest{`did you mean "web"?`: unknown, "2 sources, 2 losses and 1": short} {
		if err := p.measured(r); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a user error with %q", err, want)
		}
	}
}
