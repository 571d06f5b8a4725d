package trainer_test

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

// Eight ranks take their parts of each step; together they must be the rows of
// the global batch, or the run ends with an error.
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
mix: {weights: {words: 1}}
batch: {sequence_length: 16, sequences: 4}
topology: {dp: 2, cp: 2, pp: 2}
`), dir)
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = service.Run(ctx, service.Options{Job: job}, func(ctx context.Context, address string) error {
		_, err := trainer.Run(ctx, trainer.Options{Address: address, Job: job, Steps: 2, OnStep: func(s trainer.Step) {
			fmt.Println("step", s.Step, "of", len(s.Rows), "rows:", s.Tokens, "tokens in room for", s.Room)
		}})
		return err
	})
	fmt.Println(err)
	// Output:
	// step 0 of 4 rows: 64 tokens in room for 64
	// step 1 of 4 rows: 56 tokens in room for 64
	// <nil>
}
