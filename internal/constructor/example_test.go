package constructor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/constructor"
	"github.com/millrace-data/millrace/internal/planner"
	"github.com/millrace-data/millrace/internal/sourceloader"
	"github.com/millrace-data/millrace/jobspec"
)

// A service by hand: a planner that says where it listens, a loader and a
// constructor that connect to it, and a trainer that asks the planner where its
// batches are.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "millrace-example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("the quick brown fox"), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources: [{name: words, files: a.txt}]
mix: {weights: {words: 1}}
batch: {sequence_length: 20, sequences: 2, microbatch_size: 2}
`), dir)
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	address := make(chan string, 1)
	g.Go(func() error {
		return planner.Run(ctx, planner.Options{
			Job: job, Address: "127.0.0.1:0",
			Serving: func(at string) { address <- at },
		})
	})
	at := <-address
	g.Go(func() error {
		return sourceloader.Run(ctx, sourceloader.Options{Planner: at, Address: "unix:" + filepath.Join(dir, "loader")})
	})
	g.Go(func() error {
		return constructor.Run(ctx, constructor.Options{Planner: at, Address: "127.0.0.1:0"})
	})

	c, err := client.Open(ctx, at, client.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	batch, err := c.Next(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range batch.Microbatches[0].Tensors {
		fmt.Println(t.Name, t.DType, t.Shape)
	}
	rows, err := batch.Microbatches[0].Rows()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, row := range rows {
		fmt.Println("row", row.Number, "holds", row.Lengths, "of", row.Sources)
	}
	c.Close()
	stop()
	fmt.Println(g.Wait())
	// Output:
	// tokens int64 [2 20]
	// position_ids int64 [2 20]
	// labels int64 [2 20]
	// loss_mask float32 [2 20]
	// cu_seqlens int32 [2 16]
	// max_seqlen int32 [2]
	// row 0 holds [20] of [words]
	// row 1 holds [20] of [words]
	// <nil>
}
