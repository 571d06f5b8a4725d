package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/service"
	"github.com/millrace-data/millrace/jobspec"
)

// A rank takes three steps, saves its position as it would with its model, and
// goes on from there with a client of its own.
func ExampleOpen() {
	err := serve(func(ctx context.Context, address string) error {
		c, err := client.Open(ctx, address, client.Options{})
		if err != nil {
			return err
		}
		defer c.Close()
		for range 3 {
			batch, err := c.Next(ctx)
			if err != nil {
				return err
			}
			tokens := batch.Microbatches[0].Tensors[0]
			fmt.Println("step", batch.Step, tokens.Name, tokens.DType, tokens.Shape)
		}
		token, _, err := c.State(ctx)
		if err != nil {
			return err
		}

		resumed, err := client.Open(ctx, address, client.Options{Token: token})
		if err != nil {
			return err
		}
		defer resumed.Close()
		fmt.Println("resumed at step", resumed.Step())
		for {
			batch, err := resumed.Next(ctx)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			fmt.Println("step", batch.Step)
		}
	})
	fmt.Println(err)
	// Output:
	// step 0 tokens int64 [1 48]
	// step 1 tokens int64 [1 48]
	// step 2 tokens int64 [1 48]
	// resumed at step 3
	// step 3
	// step 4
	// <nil>
}

// serve runs a service of a small job and calls use with its address.
func serve(use func(ctx context.Context, address string) error) error {
	dir, err := os.MkdirTemp("", "millrace-example-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "a.txt"), []byte("the quick brown fox jumps over the lazy dog"), 0o644); err != nil {
		return err
	}
	job, findings := jobspec.Parse("demo.yaml", []byte(`
name: demo
sources: [{name: words, files: a.txt}]
mix: {weights: {words: 1}, epochs: 5}
batch: {sequence_length: 48, sequences: 1}
`), dir)
	if err := findings.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return service.Run(ctx, service.Options{Job: job}, use)
}
