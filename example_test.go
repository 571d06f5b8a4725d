package millrace_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-data/millrace"
	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// A service with a strategy of one's own, and a trainer of its one rank.
func ExampleServe() {
	dir, err := os.MkdirTemp("", "millrace-example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	job := filepath.Join(dir, "job.yaml")
	for name, text := range map[string]string{
		filepath.Join(dir, "words.txt"): strings.Repeat("the quick brown fox jumps over the lazy dog\n", 20),
		job: `
name: mine
sources: [{name: words, files: words.txt, long: {max: 64}}]
batch: {sequence_length: 128, sequences: 2}
topology: {dp: 1}
strategy: plain
`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			fmt.Println(err)
			return
		}
	}
	names := millrace.Registry{Strategies: strategy.Set{"plain": func(s *strategy.Step) error {
		g := s.Graph(dgraph.Text)
		g.Mix(s.Schedule())
		g.Distribute("dp", 1)
		return g.Plan()
	}}}
	parsed, findings := millrace.Load(job, names)
	if err := findings.Err(); err != nil {
		fmt.Println(err)
		return
	}
	err = millrace.Serve(context.Background(), parsed, millrace.Options{Registry: names}, func(ctx context.Context, address string) error {
		c, err := client.Open(ctx, address, client.Options{})
		if err != nil {
			return err
		}
		defer c.Close()
		b, err := c.Next(ctx)
		if err == nil {
			fmt.Println("step", b.Step, "rows", b.Rows, "of", b.SequenceLength, "tokens")
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// step 0 rows 2 of 128 tokens
	// <nil>
}
