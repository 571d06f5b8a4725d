package service_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

// A service of two loaders and two constructors in this process, and trainers
// for all ranks. They end with the digest that any other service would.
func ExampleRun() {
	dir, err := os.MkdirTemp("", "millrace-example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("the quick brown fox jumps over the lazy dog"), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources: [{name: words, files: a.txt}]
mix: {weights: {words: 1}, epochs: 4}
batch: {sequence_length: 16, sequences: 4}
topology: {dp: 2}
`), dir)
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = service.Run(ctx, service.Options{Job: job, Loaders: 2, Constructors: 2}, func(ctx context.Context, address string) error {
		res, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job})
		if err == nil {
			fmt.Println("steps", res.First, "to", res.Next-1, "ended", res.Ended)
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// steps 0 to 2 ended true
	// <nil>
}
