// Command mine is millrace with a strategy of a user's own.
package main

import (
	"fmt"
	"os"

	"github.com/millrace-data/millrace/internal/cli"
	"github.com/millrace-data/millrace/internal/service/testdata/alternate"
	"github.com/millrace-data/millrace/planner/strategy"
)

func main() {
	if err := strategy.Register("alternate", alternate.Plan); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cli.Main(os.Args[1:]))
}
