package operator_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/engine"
	"github.com/millrace-data/millrace/internal/engine/operator"
	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// text is a row of these examples.
type text string

func (t text) Bytes() int64 { return int64(len(t)) }

// count is another one.
type count int

func (count) Bytes() int64 { return 8 }

var cpu = map[string]schedule.Amount{"cpu": schedule.Slot}

// stage is what an operator completes.
func stage(name string) engine.Stage { return engine.Stage{Name: name, Needs: cpu, Partition: 64} }

// texts are source tasks, one for each text.
func texts(all ...string) (w engine.Work) {
	for _, t := range all {
		w.Sources = append(w.Sources, operator.Read(int64(len(t)), func(context.Context) iter.Seq2[text, error] {
			return func(yield func(text, error) bool) { yield(text(t), nil) }
		}))
	}
	return w
}

// with runs an executor for an example.
func with(do func(context.Context, *engine.Executor) error) {
	ex, err := engine.New(engine.Options{Limit: 1 << 20, Slots: map[string]schedule.Amount{"cpu": 4 * schedule.Slot}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- ex.Run(ctx) }()
	if err := do(ctx, ex); err != nil {
		fmt.Println(err)
	}
	end()
	<-over
}

func words(_ context.Context, t text) (words []text, err error) {
	for _, w := range strings.Fields(string(t)) {
		words = append(words, text(w))
	}
	return words, nil
}

func long(_ context.Context, t text) (bool, error) { return len(t) > 3, nil }

func upper(_ context.Context, t text) (text, error) { return text(strings.ToUpper(string(t))), nil }

// The first three long words of some texts, in their order; what comes behind them is not worked on.
func Example() {
	with(func(ctx context.Context, ex *engine.Executor) error {
		p, err := ex.Pipeline([]engine.Stage{
			stage("read"), operator.FlatMap(stage("words"), words), operator.Filter(stage("long"), long), operator.Map(stage("upper"), upper),
		})
		if err != nil {
			return err
		}
		for word, err := range operator.Limit[text](p.Iter(ctx, texts("a millrace turns", "the wheel", "of a mill that grinds")), 3) {
			fmt.Println(word, err)
		}
		return nil
	})
	// Output:
	// MILLRACE <nil>
	// TURNS <nil>
	// WHEEL <nil>
}

// Many to one: the words of each two texts are counted by one task.
func ExampleMapBatches() {
	with(func(ctx context.Context, ex *engine.Executor) error {
		counted := stage("count")
		counted.Gather = 2
		p, err := ex.Pipeline([]engine.Stage{
			stage("read"), operator.FlatMap(stage("words"), words),
			operator.MapBatches(counted, func(_ context.Context, words []text) ([]count, error) { return []count{count(len(words))}, nil }),
		})
		if err != nil {
			return err
		}
		return p.Run(ctx, texts("a b c", "d", "e f"), func(source int, part engine.Partition) error {
			fmt.Println(source, part.(*operator.Rows[count]).Values)
			return nil
		})
	})
	// Output:
	// 0 [4]
	// 2 [2]
}

// Two consumers get the partitions of a run in turn, the same ones each time.
func ExampleWrite() {
	with(func(ctx context.Context, ex *engine.Executor) error {
		p, err := ex.Pipeline([]engine.Stage{stage("read"), operator.Map(stage("upper"), upper)})
		if err != nil {
			return err
		}
		var got [2][]text
		if err := p.Split(ctx, texts("a", "b", "c"), 2, func(consumer int, part engine.Partition) error {
			got[consumer] = append(got[consumer], part.(*operator.Rows[text]).Values...)
			return nil
		}); err != nil {
			return err
		}
		fmt.Println(got)

		m, err := p.Materialize(ctx, texts("d", "e"), 1<<10) // once, to be read twice
		if err != nil {
			return err
		}
		written := make(chan text, 8)
		to, err := ex.Pipeline([]engine.Stage{stage("read"), operator.Write(stage("write"), func(_ context.Context, rows []text) error {
			for _, row := range rows {
				written <- row
			}
			return nil
		})})
		if err != nil {
			return err
		}
		for range 2 {
			if err := to.Run(ctx, m.Work(), nil); err != nil {
				return err
			}
		}
		close(written)
		var all []text
		for row := range written {
			all = append(all, row)
		}
		slices.Sort(all)
		fmt.Println(all, m.Bytes)
		return nil
	})
	// Output:
	// [[A C] [B]]
	// [D D E E] 2
}
