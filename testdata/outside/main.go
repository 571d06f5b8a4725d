// Command outside is a program of a user's own, for a test: millrace with a strategy and
// a feedback policy, and a service with a trainer in one process.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/millrace-data/millrace"
	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/planner/cost"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/feedback"
	"github.com/millrace-data/millrace/planner/strategy"
)

var names = millrace.Registry{
	Strategies: strategy.Set{"squares": squares},
	Policies:   feedback.Set{"still": func(feedback.Options) feedback.Policy { return still{} }},
}

// squares spreads rows over ranks by the sum of squares of their samples' lengths.
func squares(s *strategy.Step) error {
	g := s.Graph(dgraph.Text)
	g.Mix(s.Schedule())
	g.Distribute("dp", 1)
	g.Cost(cost.Func(func(s cost.Sample) int64 { return s.Tokens * s.Tokens }))
	g.Balance(strategy.Balance{Method: "lpt", Level: strategy.Inter})
	return g.Plan()
}

// still never moves the mix.
type still struct{}

func (still) Weights(feedback.Input) []float64 { return nil }

func main() {
	if len(os.Args) == 3 && os.Args[1] == "embed" {
		if err := embed(os.Args[2]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(millrace.Main(os.Args[1:], names))
}

// embed serves three steps of a job to a trainer in this process, and prints the class of
// each error on its way.
func embed(path string) error {
	job, findings := millrace.Load(path, names)
	if err := findings.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var left *client.Client
	err := millrace.Serve(ctx, job, millrace.Options{Registry: names, Loaders: 2}, func(ctx context.Context, address string) error {
		_, err := client.Open(ctx, address, client.Options{Rank: client.Rank{DP: 7}})
		fmt.Println("no such rank:", classOf(err))
		_, err = client.Open(ctx, address, client.Options{Job: "another"})
		fmt.Println("another job:", classOf(err))
		c, err := client.Open(ctx, address, client.Options{Prefetch: -1, Deadline: 2 * time.Second})
		if err != nil {
			return err
		}
		for range 3 {
			b, err := c.Next(ctx)
			if err != nil {
				return err
			}
			fmt.Println("step", b.Step)
		}
		_, digest, err := c.State(ctx)
		fmt.Printf("digest step=%d %x\n", c.Step(), digest)
		left = c
		return err
	})
	if err != nil {
		return err
	}
	defer left.Close()
	_, err = left.Next(ctx)
	fmt.Println("the service is gone:", classOf(err))
	err = millrace.Serve(ctx, job, millrace.Options{}, func(context.Context, string) error { return errors.New("served") })
	fmt.Println("without the registry:", classOf(err))
	_, findings = millrace.Load(path, millrace.Registry{})
	fmt.Println("loaded without it:", classOf(findings.Err()))
	return nil
}

func classOf(err error) string {
	var user *millrace.UserError
	var lost *client.LostError
	switch {
	case errors.As(err, &user):
		return "user"
	case errors.As(err, &lost):
		return "lost"
	}
	return fmt.Sprintf("neither: %v", err)
}
