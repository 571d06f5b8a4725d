// Command millrace is the one binary of Millrace. Package cli is all of it.
package main

import (
	"os"

	"github.com/millrace-data/millrace/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
