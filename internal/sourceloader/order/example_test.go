package order_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// A source of three small files and a larger one: the small files share a chunk,
// and every epoch reads the chunks in another order.
func ExampleIndex() {
	var files store.Memory
	for _, name := range []string{"a", "b", "c"} {
		files.Put(name+".jsonl", []byte(`{"text":"short"}`+"\n"))
	}
	files.Put("d.jsonl", make([]byte, 250))

	spec := &jobspec.Source{
		Name: "demo", Files: []string{"/*.jsonl"}, ChunkBytes: 60,
		Shuffle: jobspec.Shuffle{Enabled: true, Block: 2},
	}
	src, err := order.Index(context.Background(), &files, spec, 42, []string{"text"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for c := range src.Order.Layout.Chunks() {
		fmt.Println("chunk", c, src.Order.Layout.Units(c))
	}
	for seq := range 2 * src.Order.Blocks() {
		epoch, block := src.Order.Position(seq)
		fmt.Println("epoch", epoch, "block", block, "chunks", src.Order.Chunks(seq))
	}
	// Output:
	// chunk 0 [{0 0} {1 0} {2 0}]
	// chunk 1 [{3 0}]
	// chunk 2 [{3 1}]
	// chunk 3 [{3 2}]
	// chunk 4 [{3 3}]
	// chunk 5 [{3 4}]
	// epoch 0 block 0 chunks [4 3]
	// epoch 0 block 1 chunks [1 0]
	// epoch 0 block 2 chunks [5 2]
	// epoch 1 block 0 chunks [0 5]
	// epoch 1 block 1 chunks [1 3]
	// epoch 1 block 2 chunks [2 4]
}

// A permutation takes no memory, so any place of a billion can be computed.
func ExamplePermutation() {
	p := order.NewPermutation(1_000_000_000, order.NewKey(42, "web", "chunks", 3))
	fmt.Println(p.At(0), p.At(1), p.At(999_999_999))
	// Output: 421764564 168557506 918614612
}
