// Command passes has a function that passes sites, and one that does nothing.
package main

import "github.com/millrace-data/millrace/internal/failpoint"

//go:noinline
func passes() error {
	failpoint.Hit(failpoint.AppendAfter)
	if failpoint.Enabled && failpoint.Tear(failpoint.TornWrite) {
		failpoint.Die()
	}
	return failpoint.Error(failpoint.FetchBefore)
}

//go:noinline
func empty() error { return nil }

func main() { _, _ = passes(), empty() }
