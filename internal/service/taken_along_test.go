package service_test

import (
	"context"
	"errors"
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
			// ahead takes what is planned, which depends on how far others said that they are.
			ahead := func(c *client.Client, steps int) {
				for range steps {
					soon, cancel := context.WithTimeout(ctx, time.Second)
					_, err := c.Next(soon) // says how far it is, too
					cancel()
					if errors.Is(err, context.DeadlineExceeded) {
						return
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			lost := rank(1)
			ahead(lost, 5)
			lost.Close()
			lost = rank(0)
			ahead(lost, 9) // ahead of the lost one's 4
			lost.Close()
			one := rank(1)
			defer one.Close()
			ahead(one, 10) // ahead of the lost one's 8
			other := rank(0)
			defer other.Close()
			take(other, 1)
			ahead(one, 4) // what it has, and then it asks for more
			for other.Step() < 20 {
				take(other, 1)
				if one.Step() < other.Step() {
					take(one, 1)
				}
			}
			take(one, max(0, int(20-one.Step())))
			return nil
		})
	}
}
