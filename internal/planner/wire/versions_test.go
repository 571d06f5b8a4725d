package wire

import (
	"slices"
	"testing"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestOrdersOfOlderRoles: a role of the version before sessions had epochs gets no order that
// it does not know, and every other one in its order.
func TestOrdersOfOlderRoles(t *testing.T) {
	loader := []*pb.LoaderOrder{
		{Order: &pb.LoaderOrder_Epoch{Epoch: 3}}, {Order: &pb.LoaderOrder_Job{}}, {Order: &pb.LoaderOrder_Beat{}}, {Order: &pb.LoaderOrder_Read{}},
	}
	constructor := []*pb.ConstructorOrder{
		{Order: &pb.ConstructorOrder_Epoch{Epoch: 3}}, {Order: &pb.ConstructorOrder_Job{}}, {Order: &pb.ConstructorOrder_Beat{}}, {Order: &pb.ConstructorOrder_Plan{}},
	}
	for version, known := range map[uint32][]int{rpc.Sessions - 1: {1, 3}, rpc.Sessions: {0, 1, 2, 3}} {
		var toL []*pb.LoaderOrder
		sendL := ToLoader(version, func(o *pb.LoaderOrder) error { toL = append(toL, o); return nil })
		var toC []*pb.ConstructorOrder
		sendC := ToConstructor(version, func(o *pb.ConstructorOrder) error { toC = append(toC, o); return nil })
		for i := range loader {
			if err := sendL(loader[i]); err != nil {
				t.Fatal(err)
			}
			if err := sendC(constructor[i]); err != nil {
				t.Fatal(err)
			}
		}
		var wantL []*pb.LoaderOrder
		var wantC []*pb.ConstructorOrder
		for _, i := range known {
			wantL, wantC = append(wantL, loader[i]), append(wantC, constructor[i])
		}
		if !slices.Equal(toL, wantL) || !slices.Equal(toC, wantC) {
			t.Errorf("version %d: a loader gets %v, a constructor %v", version, toL, toC)
		}
	}
}
