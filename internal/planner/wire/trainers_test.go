package wire

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
	"github.com/millrace-data/millrace/planner/mesh"
)

// TestJoinQuestion: a rank that joins names one position at most, which is one that can be.
func TestJoinQuestion(t *testing.T) {
	rank, place := &pb.Coordinates{Dp: 1, Cp: 2, Pp: 3, Tp: 4}, control.Rank{DP: 1, CP: 2, PP: 3, TP: 4}
	at := func(step uint64) *pb.Position { return &pb.Position{Generation: 5, Step: step} }
	for name, c := range map[string]struct {
		req  *pb.JoinRequest
		want control.Join
		says string // why it is refused
	}{
		"nothing": {&pb.JoinRequest{}, control.Join{}, ""},
		"a token": {&pb.JoinRequest{Rank: rank, Token: []byte{7}, Mesh: &pb.Mesh{Dp: 2, Cp: 3, Pp: 4, Tp: 5}, Silent: "10.0.0.3:1"},
			control.Join{Rank: place, Token: []byte{7}, Sizes: control.Rank{DP: 2, CP: 3, PP: 4, TP: 5}, Silent: "10.0.0.3:1"}, ""},
		"where it stands": {&pb.JoinRequest{Rank: rank, Token: []byte{7}, At: at(9)}, control.Join{Rank: place, Token: []byte{7}, At: &control.Position{Generation: 5, Step: 9}}, ""},
		"the last step":   {&pb.JoinRequest{Rank: rank, At: at(math.MaxInt64)}, control.Join{Rank: place, At: &control.Position{Generation: 5, Step: math.MaxInt64}}, ""},
		"the first step":  {&pb.JoinRequest{Rank: rank, Start: pb.Start_START_BEGINNING}, control.Join{Rank: place, Beginning: true}, ""},
		"no step":         {&pb.JoinRequest{Rank: rank, At: at(math.MaxInt64 + 1)}, control.Join{}, "rank dp=1 cp=2 pp=3 tp=4 joins at step 9223372036854775808"},
		"two steps":       {&pb.JoinRequest{Rank: rank, At: at(9), Start: pb.Start_START_BEGINNING}, control.Join{}, "joins at step 9, where it stands, and says that it begins at the first step"},
		"a token and the first step": {&pb.JoinRequest{Rank: rank, Token: []byte{7}, Start: pb.Start_START_BEGINNING}, control.Join{},
			"rank dp=1 cp=2 pp=3 tp=4 joins with a resume token and says that it begins at the first step"},
	} {
		got, err := JoinQuestion(c.req)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
		if (err != nil) != (c.says != "") || err != nil && (fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// TestJoinReply: a rank that is taken gets all that it has to know of the job, and one that is refused nothing.
func TestJoinReply(t *testing.T) {
	job := &jobspec.Job{Name: "demo"}
	job.Output.Format = "packed"
	if got := JoinReply(nil, job, []byte{1}, 5, 6); got != nil {
		t.Errorf("a rank that is refused gets %v", got)
	}
	got := JoinReply(control.JoinReply{
		Generation: 2, NextStep: 7, Constructor: "10.0.0.3:1", Fetches: true, Mesh: mesh.Single(), Sources: []string{"web"},
		Microbatches: 4, Token: []byte{8}, Join: 9,
	}, job, []byte{1, 2}, 5, 6)
	want := &pb.JoinReply{
		Job: "demo", Identity: []byte{1, 2}, Generation: 2, NextStep: 7, Constructor: "10.0.0.3:1", Fetches: true, Microbatches: 4,
		Format: "packed", Sources: []string{"web"}, Mesh: &pb.Mesh{Dp: 1, Cp: 1, Pp: 1, Tp: 1, Vpp: 1, Stride: []uint32{0, 0, 0, 0}},
		Token: []byte{8}, Join: 9, Protocol: 5, Epoch: 6,
	}
	if !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestStateQuestion: a step that no job comes to is not one below zero.
func TestStateQuestion(t *testing.T) {
	for _, c := range []struct {
		req  *pb.StateRequest
		want control.Question
	}{
		{&pb.StateRequest{Step: 8}, control.Save{Step: 8}},
		{&pb.StateRequest{Step: 8, Past: true}, control.Past{Step: 8}},
		{&pb.StateRequest{Step: math.MaxUint64, Past: true}, control.Past{Step: math.MaxInt64}},
	} {
		if got := StateQuestion(c.req); got != c.want {
			t.Errorf("%v: %#v, want %#v", c.req, got, c.want)
		}
	}
}

// TestReportQuestion: all that a rank measured comes to the core.
func TestReportQuestion(t *testing.T) {
	got := ReportQuestion(&pb.ReportRequest{
		Step: 8, Rank: &pb.Coordinates{Dp: 1, Tp: 2}, Sources: []string{"web"}, Losses: []float64{2.5}, Tokens: []uint64{64}, StepSeconds: 0.25,
	})
	want := control.Report{Step: 8, Rank: control.Rank{DP: 1, TP: 2}, Sources: []string{"web"}, Losses: []float64{2.5}, Tokens: []uint64{64}, StepSeconds: 0.25}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
