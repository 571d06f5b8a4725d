package status

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// TestElsewhere: the page says which nodes are served from elsewhere, and shows no ranks that a constructor served
// once beside those that serve them now.
func TestElsewhere(t *testing.T) {
	x := control.Snapshot{
		Constructors: []control.Member{{Session: 1, Name: "c9", Buckets: []uint32{0}}, {Session: 2, Name: "s1", Buckets: []uint32{1}}, {Session: 3, Name: "s0"}, {Session: 4, Name: "s2", Buckets: []uint32{3, 4, 5, 6, 7, 8, 9}}},
		Misplaced:    []control.Misplaced{{Name: "s7", Node: 7, Nodes: 2, Ranks: 8}},
		Elsewhere:    []control.Elsewhere{{Node: 0, Buckets: []uint32{0}, Name: "c9", Seconds: 75}, {Node: 3, Buckets: []uint32{1}, Name: "s1", On: new(uint32(1)), Seconds: 61.5}},
	}
	says := map[control.Session]*pb.ConstructorUsage{
		1: {Ways: []*pb.Delivery{{Way: "stream", Ranks: 1, First: []*pb.Coordinates{{Dp: 0}}}}},
		2: {Ways: []*pb.Delivery{{Way: "shared", Ranks: 9, First: []*pb.Coordinates{{Dp: 0}, {Dp: 1}}}, {Way: "gone", Ranks: 1, First: []*pb.Coordinates{{Dp: 1, Tp: 1}}}}},
		3: {Ways: []*pb.Delivery{{Way: "shared", Ranks: 1, First: []*pb.Coordinates{{Dp: 1}}}}},
		4: {Ways: []*pb.Delivery{{Way: "calls", Ranks: 10, First: []*pb.Coordinates{{}, {Dp: 1}, {Dp: 2}}}, {Way: "stream", Ranks: 1, First: []*pb.Coordinates{{Dp: 1}}}}},
	}
	s := Of(x, func(control.Session) *pb.LoaderUsage { return nil }, func(of control.Session) *pb.ConstructorUsage { return says[of] }, since(nil))
	page := s.String()
	for _, want := range []string{
		"node 0: constructor c9, on no node, has served its dp ranks [0] for 1m15s, as none on the node does\n",
		"node 3: constructor s1, on node 1, has served its dp ranks [1] for 1m1s, as none on the node does\n",
		"constructor s7 is on node 7, as it says, which has no ranks: with --ranks-per-node 8 nodes 0 to 1 have; it serves what is left",
		"c9: ranks by a stream: 1: rank dp=0",
		"s1: ranks by shared memory: 8: rank dp=1",
		"s1: ranks that are gone: 1: rank dp=1 cp=0 pp=0 tp=1\n",
		"s2: ranks by a call for each step: 7\n", // those that it named are served elsewhere
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "s0: ranks") || strings.Contains(page, "s2: ranks by a stream") {
		t.Errorf("a constructor serves ranks that are another one's:\n%s", page)
	}
}
