package service_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
)

// TestRestartedInTurns: two ranks are restarted in turns, each a while after the other one was lost. Each restart lets
// one of them get further ahead of the other, beyond what is planned ahead of where the job begins again, and it goes
// on all the same.
func TestRestartedInTurns(t *testing.T) {
	dir := writeSources(t)
	r := recipe{"turns", mixed + "\nbatch: {sequence_length: 512, sequences: 8}\ntopology: {dp: 2}\n", 60, ""}
	for _, constructors := range []int{1, 2} {
		setting{constructors: constructors, resources: resources{prefetch: 4}}.serve(t, dir, r, func(ctx context.Context, address string) error {
			rank := func(dp int) *client.Client {
				c, err := client.Open(ctx, address, client.Options{Rank: client.Rank{DP: dp}, Start: client.Beginning, Stall: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			take := func(c *client.Client, steps int) {
				for range steps {
					if _, err := c.Next(ctx); err != nil {
						t.Fatal(err)
					}
				}
			}
			lose := func(c *client.Client) {
				told, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				_, _ = c.Next(told) // which says how far it is, and waits for the other rank
				cancel()
				c.Close()
			}
			one := rank(1)
			take(one, 4)
			lose(one)
			other := rank(0)
			take(other, 8) // ahead of the lost one's 4
			lose(other)
			one = rank(1)
			defer one.Close()
			take(one, 10) // ahead of the lost one's 8
			other = rank(0)
			defer other.Close()
			for other.Step() < 20 {
				take(other, 1)
				if one.Step() < max(other.Step(), 12) {
					take(one, 1)
				}
			}
			return nil
		})
	}
}
