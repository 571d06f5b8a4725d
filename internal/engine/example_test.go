package engine_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/engine"
	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// words is a partition of this example.
type words []string

func (w words) Bytes() int64 { return int64(16 * len(w)) }

// Two sources are read at once, and greeted by another stage. What they give comes in order.
func Example() {
	cpu := map[string]schedule.Amount{"cpu": schedule.Slot}
	ex, _ := engine.New(engine.Options{Limit: 1 << 20, Slots: map[string]schedule.Amount{"cpu": 4 * schedule.Slot}})
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- ex.Run(ctx) }()

	greet := func(_ context.Context, in []engine.Partition, out *engine.Output) error {
		return out.Emit(words{"hello " + in[0].(words)[0]})
	}
	p, _ := ex.Pipeline([]engine.Stage{{Name: "read", Needs: cpu, Partition: 64}, {Name: "greet", Needs: cpu, Partition: 64, Keeps: true, Process: greet}})
	read := func(name string) engine.Source {
		return engine.Source{Expect: 16, Read: func(_ context.Context, out *engine.Output) error { return out.Emit(words{name}) }}
	}
	work := engine.Work{Sources: []engine.Source{read("Ada"), read("Grace")}}
	err := p.Run(ctx, work, func(source int, part engine.Partition) error {
		fmt.Println(source, part.(words)[0])
		return nil
	})
	end()
	fmt.Println(err, <-over)
	// Output:
	// 0 hello Ada
	// 1 hello Grace
	// <nil> context canceled
}
