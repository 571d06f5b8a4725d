package wire_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/planner/wire"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/jobspec"
)

// A report of a loader is an event of the core, and an effect of the core an order to a loader.
func Example() {
	report := &pb.LoaderReport{Report: &pb.LoaderReport_Block{Block: &pb.BlockRead{Seq: 7, Lengths: []uint32{5, 8, 3}}}}
	read := wire.LoaderEvent(1, report).(control.BlockRead)
	fmt.Println("block", read.Block.Seq, "has samples of", read.Block.Lengths, "tokens")

	orders := wire.NewOrders(&jobspec.Job{}, 4, 0)
	to, order, mayWait := orders.Loader(control.Read{To: 1, Seq: 8})
	fmt.Println("session", to, "is to read block", order.GetRead().Seq, mayWait)
	// Output:
	// block 7 has samples of [5 8 3] tokens
	// session 1 is to read block 8 true
}
