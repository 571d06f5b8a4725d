package handover_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/handover"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
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

// A constructor asks for the loaders of a placement, and does not see which of them are of
// its own process.
func ExampleDirectory() {
	exchange := new(handover.Exchange)
	withdraw := exchange.Offer("unix:/run/loader-0", loader{})
	directory := handover.NewDirectory(exchange, rpc.Security{})
	defer directory.Close()

	loaders := directory.Place([]string{"unix:/run/loader-0"})
	req := &pb.FetchRequest{Blocks: []*pb.BlockSamples{{Seq: 7}}}
	sets, err := loaders[0].Samples(context.Background(), req)
	fmt.Println(sets[0].Sample(0), err)

	withdraw()
	_, err = loaders[0].Samples(context.Background(), req)
	fmt.Println(err)
	// Output:
	// [7] <nil>
	// the loader at unix:/run/loader-0 has stopped
}
