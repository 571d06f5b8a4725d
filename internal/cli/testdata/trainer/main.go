// Command trainer feeds all ranks of a small job from a service, for the tests of versions:
// it is built with the client of an older version, too.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/millrace-data/millrace/client"
)

func main() {
	address := flag.String("address", "", "of the service")
	steps := flag.Int("steps", 0, "to take")
	ranks := flag.Int("ranks", 1, "of data parallelism")
	flag.Parse()
	var group sync.WaitGroup
	for dp := range *ranks {
		group.Go(func() {
			if err := train(context.Background(), *address, dp, *steps); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		})
	}
	group.Wait()
}

// train takes the steps of one rank; the first prints the digest after them.
func train(ctx context.Context, address string, dp, steps int) error {
	c, err := client.Open(ctx, address, client.Options{Rank: client.Rank{DP: dp}})
	if err != nil {
		return err
	}
	defer c.Close()
	for range steps {
		if _, err := c.Next(ctx); err != nil {
			return err
		}
	}
	_, digest, err := c.State(ctx)
	if err == nil && dp == 0 {
		fmt.Printf("digest step=%d %x\n", c.Step(), digest)
	}
	return err
}
