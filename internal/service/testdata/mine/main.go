// Command mine is millrace with a strategy and a row method of a user's own.
package main

import (
	"os"

	"github.com/millrace-data/millrace"
	"github.com/millrace-data/millrace/internal/service/testdata/alternate"
	"github.com/millrace-data/millrace/planner/strategy"
)

func main() {
	os.Exit(millrace.Main(os.Args[1:], millrace.Registry{
		Strategies: strategy.Set{"alternate": alternate.Plan},
		RowMethods: strategy.RowMethods{"longest-last": alternate.LongestLast{}},
	}))
}
