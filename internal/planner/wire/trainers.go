package wire

import (
	"math"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/cut"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// JoinQuestion is what a rank that joins asks. A rank that names two positions, or one that
// cannot be, is refused.
func JoinQuestion(req *pb.JoinRequest) (control.Join, error) {
	if err := checkStart(req); err != nil {
		return control.Join{}, err
	}
	m := req.Mesh
	join := control.Join{
		Rank: Rank(req.Rank), Token: req.Token, Beginning: req.Start == pb.Start_START_BEGINNING, Silent: req.Silent,
		Sizes: control.Rank{DP: m.GetDp(), CP: m.GetCp(), PP: m.GetPp(), TP: m.GetTp()},
	}
	if at := req.At; at != nil {
		join.At = &control.Position{Generation: at.Generation, Step: int64(at.Step)}
	}
	return join, nil
}

// checkStart refuses a rank that names two positions, or one that cannot be.
func checkStart(req *pb.JoinRequest) error {
	if at := req.At; at != nil && (req.Start == pb.Start_START_BEGINNING || at.Step > math.MaxInt64) {
		return fault.Userf("%s joins at step %d, where it stands, and says that it begins at the first step: leave one of both out", req.Rank.Name(), at.Step)
	}
	if req.Start == pb.Start_START_BEGINNING && len(req.Token) > 0 {
		return fault.Userf("%s joins with a resume token and says that it begins at the first step: leave one of both out", req.Rank.Name())
	}
	return nil
}

// JoinReply says to a rank where its batches are, which job this is, and which version of the protocol is spoken by the
// planner of which epoch; nil if the core's answer is no reply, as the rank was refused.
func JoinReply(answer control.Reply, job *jobspec.Job, identity []byte, version uint32, epoch uint64) *pb.JoinReply {
	r, ok := answer.(control.JoinReply)
	if !ok {
		return nil
	}
	return &pb.JoinReply{
		Job: job.Name, Identity: identity, Generation: r.Generation, NextStep: uint64(r.NextStep),
		Constructor: r.Constructor, Fetches: r.Fetches, Microbatches: uint32(r.Microbatches),
		Format: job.Output.Format, Sources: r.Sources, Mesh: cut.Mesh(r.Mesh),
		Token: r.Token, Join: r.Join, Protocol: version, Epoch: epoch,
	}
}

// StateQuestion is what a request for a resume token asks: for that of a position which ranks come to, or of one that the
// job holds already.
func StateQuestion(req *pb.StateRequest) control.Question {
	if req.Past {
		return control.Past{Step: int64(min(req.Step, math.MaxInt64))}
	}
	return control.Save{Step: int64(req.Step)}
}

// ReportQuestion is what a rank measured at a step.
func ReportQuestion(req *pb.ReportRequest) control.Report {
	return control.Report{
		Step: int64(req.Step), Rank: Rank(req.Rank), Sources: req.Sources, Losses: req.Losses, Tokens: req.Tokens, StepSeconds: req.StepSeconds,
	}
}
