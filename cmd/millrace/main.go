// Command millrace is the one binary of Millrace. Package millrace is all of it.
package main

import (
	"os"

	"github.com/millrace-data/millrace"
)

func main() { os.Exit(millrace.Main(os.Args[1:], millrace.Registry{})) }
