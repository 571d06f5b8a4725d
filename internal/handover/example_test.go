package handover_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/handover"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

// loader has one sample in every block.
type loader struct{}

func (loader) Samples(_ context.Context, req *pb.FetchRequest) ([]samples.Set, error) {
	sets := make([]samples.Set, len(req.Blocks))
	for i, block := range req.Blocks {
		sets[i] = samples.Set{Tokens: []int32{int32(block.Seq)}, Offsets: []int32{0, 1}}
	}
	return sets, nil
}

func ExampleExchange() {
	exchange := new(handover.Exchange)
	withdraw := exchange.Offer("unix:/run/loader-0", loader{})
	sets, err := exchange.At("unix:/run/loader-0").Samples(context.Background(), &pb.FetchRequest{Blocks: []*pb.BlockSamples{{Seq: 7}}})
	fmt.Println(sets[0].Sample(0), err)
	fmt.Println("elsewhere:", exchange.At("loader-1:7070"))
	withdraw()
	fmt.Println("withdrawn:", exchange.At("unix:/run/loader-0"))
	// Output:
	// [7] <nil>
	// elsewhere: <nil>
	// withdrawn: <nil>
}
