package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace-data/millrace/internal/cli"
	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// squares is a strategy of one's own: rows go to ranks by the sum of squares of
// their samples' lengths.
func squares(s *strategy.Step) error {
	g := s.Graph(dgraph.Text)
	g.Mix(s.Schedule())
	g.Distribute("dp", 1)
	g.Cost(cost.Func(func(s cost.Sample) int64 { return s.Tokens * s.Tokens }))
	g.Balance(strategy.Balance{Method: "lpt", Level: strategy.Inter})
	return g.Plan()
}

// The command line with a strategy of one's own.
func ExampleMain() {
	dir, err := os.MkdirTemp("", "millrace-example-*")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for name, text := range map[string]string{
		"words.txt": strings.Repeat("the quick brown fox jumps over the lazy dog\n", 100),
		"job.yaml": `
name: mine
sources: [{name: words, files: words.txt, long: {max: 64}}]
batch: {sequence_length: 256, sequences: 4}
topology: {dp: 2}
strategy: squares
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			fmt.Println(err)
			return
		}
	}
	names := compile.Registry{Strategies: strategy.Set{"squares": squares}}
	stdout := os.Stdout // what run prints has times in it
	if os.Stdout, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0); err != nil {
		fmt.Println(err)
		return
	}
	code := cli.Main([]string{"run", filepath.Join(dir, "job.yaml"), "--steps", "3"}, names)
	os.Stdout = stdout
	fmt.Println("three steps by a strategy of one's own: exit code", code)
	// Output: three steps by a strategy of one's own: exit code 0
}
