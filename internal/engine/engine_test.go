package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

var oneCPU = map[string]schedule.Amount{"cpu": schedule.Slot}

// start runs an executor until stop is called, which waits for it.
func start(t testing.TB, limit int64, cpus int) (e *Executor, stop func()) {
	e, err := New(Options{Limit: limit, Slots: map[string]schedule.Amount{"cpu": schedule.Amount(cpus) * schedule.Slot}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	over := make(chan error)
	go func() { over <- e.Run(ctx) }()
	return e, func() { end(); <-over }
}

// two is a pipeline whose second stage is process.
func two(t testing.TB, e *Executor, process func(context.Context, []Partition, *Output) error) *Pipeline {
	p, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU, Partition: 100}, {Name: "change", Needs: oneCPU, Partition: 100, Process: process}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// give is a source of n partitions of one row.
func give(n int) Source {
	return Source{Expect: int64(20 * n), Read: func(_ context.Context, out *Output) error {
		for i := range n {
			if err := out.Emit(rows{uint64(i)}); err != nil {
				return err
			}
		}
		return nil
	}}
}

func nothing(int, Partition) error { return nil }

// TestDiffers: what a task gives when it runs again is compared with what it gave before.
func TestDiffers(t *testing.T) {
	for _, c := range []struct {
		name string
		give func(attempt int) []rows // before the task is lost or, in the second attempt, ends
		want string
	}{
		{"another", func(n int) []rows { return []rows{{uint64(n)}} }, `stage "change" gave something else when it ran again (source task 0: its partition 0 is another)`},
		{"less", func(n int) []rows { return []rows{{7}}[n:] }, `stage "change" gave something else when it ran again (source task 0: 0 partitions, and 1 before)`},
		{"same", func(int) []rows { return []rows{{7}} }, ""},
	} {
		e, stop := start(t, 1<<20, 2)
		attempt := 0
		p := two(t, e, func(_ context.Context, _ []Partition, out *Output) error {
			defer func() { attempt++ }()
			for _, r := range c.give(attempt) {
				if err := out.Emit(r); err != nil {
					return err
				}
			}
			if attempt == 0 {
				return fault.Lostf("it died")
			}
			return nil
		})
		got := 0
		err := p.Run(t.Context(), Work{Sources: []Source{give(1)}}, func(int, Partition) error { got++; return nil })
		switch {
		case c.want == "" && (err != nil || got != 1 || attempt != 2):
			t.Errorf("%s: %v, %d partitions, %d attempts", c.name, err, got, attempt)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || fault.ClassOf(err) != fault.User):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		stop()
	}
}

// TestErrors: an error ends its run, with its class and the name of the stage, and no other run.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err      error
		class    fault.Class
		want     string
		attempts int
	}{
		{fault.Userf("row 3 is no text"), fault.User, `stage "change": row 3 is no text`, 1},
		{errors.New("index out of range"), fault.Bug, `stage "change": index out of range`, 1},
		{fault.Lostf("it died"), fault.Lost, `stage "change" was lost 9 times in a row, the last time: it died`, mostLosses + 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, stop := start(t, 1<<20, 2)
			defer stop()
			attempts := 0
			bad := two(t, e, func(context.Context, []Partition, *Output) error { attempts++; return c.err })
			good := two(t, e, func(_ context.Context, in []Partition, out *Output) error { return out.Emit(in[0]) })
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := good.Run(t.Context(), Work{Sources: []Source{give(5)}}, nothing); err != nil {
					t.Errorf("another run: %v", err)
				}
			})
			err := bad.Run(t.Context(), Work{Sources: []Source{give(1)}}, nothing)
			if err == nil || err.Error() != c.want || fault.ClassOf(err) != c.class || attempts != c.attempts {
				t.Errorf("%v of class %v after %d attempts, want %s of %v after %d", err, fault.ClassOf(err), attempts, c.want, c.class, c.attempts)
			}
			wg.Wait()
		})
	}
}

// TestCancel: a run that is cancelled frees all that it has at once, though others go on, and returns when
// its tasks have.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, stop := start(t, 1<<20, 4)
		defer stop()
		var running atomic.Int32
		p := two(t, e, func(ctx context.Context, in []Partition, out *Output) error {
			if in[0].(rows)[0] == 0 {
				return out.Emit(in[0]) // it is collected, and the collector waits with it
			}
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			time.Sleep(time.Second) // it needs a while to end
			return context.Cause(ctx)
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		released := errors.New("the block was released")
		time.AfterFunc(time.Minute, func() {
			if u := e.Usage(); u.Stored == 0 || running.Load() == 0 {
				t.Errorf("nothing to cancel: %+v, %d tasks", u, running.Load())
			}
			cancel(released)
		})
		time.AfterFunc(time.Minute+time.Second/2, func() {
			if u := e.Usage(); u.Stored > 4*100 {
				t.Errorf("half a second later: %+v; only inputs of tasks that still run count", u)
			}
		})
		err := p.Run(ctx, Work{Sources: []Source{give(50)}}, nothing)
		if !errors.Is(err, released) || running.Load() != 0 {
			t.Errorf("%v, %d tasks still run", err, running.Load())
		}
		synctest.Wait()
		if u := e.Usage(); u.Stored != 0 || u.Promised != 0 {
			t.Errorf("all has ended: %+v", u)
		}
		if err := p.Run(t.Context(), Work{Sources: []Source{give(1)}}, nothing); err != nil {
			t.Errorf("the next run: %v", err)
		}
		if err := p.Run(t.Context(), Work{Sources: []Source{give(1), give(1)}}, func(int, Partition) error { return released }); err != released {
			t.Errorf("an error of the collector: %v", err)
		}
	})
}

// TestStop: an executor that ends ends its runs, and those that come later.
func TestStop(t *testing.T) {
	e, stop := start(t, 1<<20, 2)
	p := two(t, e, func(ctx context.Context, _ []Partition, _ *Output) error { <-ctx.Done(); return ctx.Err() })
	over := make(chan error)
	begins := make(chan bool)
	go func() {
		over <- p.Run(t.Context(), Work{Sources: []Source{{Read: func(_ context.Context, out *Output) error { close(begins); return out.Emit(rows{1}) }}}}, nothing)
	}()
	<-begins
	stop()
	if err := <-over; fault.ClassOf(err) != fault.Lost {
		t.Errorf("the run that was under way: %v", err)
	}
	if err := p.Run(t.Context(), Work{Sources: []Source{give(1)}}, nothing); fault.ClassOf(err) != fault.Lost {
		t.Errorf("one that came later: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	for range 50 { // a caller that ended both hears why it ended itself
		if err := p.Run(ctx, Work{Sources: []Source{give(1)}}, nothing); err != interrupted {
			t.Fatalf("one that was interrupted: %v", err)
		}
	}
}

// TestTurns: of two runs that wait for the one slot, the one that is needed sooner goes first.
func TestTurns(t *testing.T) {
	for far := range 2 {
		synctest.Test(t, func(t *testing.T) {
			e, stop := start(t, 1<<20, 1)
			defer stop()
			var order []int
			var wg sync.WaitGroup
			run := func(seq int64, read func()) {
				p, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU, Partition: 100}})
				if err != nil {
					t.Error(err)
				}
				w := Work{Seq: seq, Sources: []Source{{Read: func(context.Context, *Output) error { read(); return nil }}}}
				wg.Go(func() { _ = p.Run(t.Context(), w, nothing) })
				synctest.Wait()
			}
			run(0, func() { time.Sleep(time.Second) })
			for i := range 2 {
				run(int64(5-5*(i^far)), func() { order = append(order, i) })
			}
			wg.Wait()
			if len(order) != 2 || order[0] == far {
				t.Errorf("run %d is needed later, and they ran as %v", far, order)
			}
		})
	}
}

func TestChecks(t *testing.T) {
	e, stop := start(t, 1, 1)
	defer stop()
	process := func(context.Context, []Partition, *Output) error { return nil }
	for want, stages := range map[string][]Stage{
		"at least one stage": nil,
		"have a Process":     {{Name: "read", Needs: oneCPU, Partition: 1}, {Name: "x", Partition: 1}},
		"but stages follow":  {{Name: "read", Needs: oneCPU, Sink: true}, {Name: "x", Process: process, Partition: 1}},
		"partitions of -1":   {{Name: "read", Needs: oneCPU, Partition: -1}},
		`of "gpu"`:           {{Name: "read", Needs: map[string]schedule.Amount{"gpu": 1}, Partition: 1}},
		"needs no slot":      {{Name: "read", Partition: 1}},
	} {
		if _, err := e.Pipeline(stages); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	p, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU}})
	if err != nil || p.stages[0].Partition != DefaultPartition {
		t.Errorf("a stage that leaves the size of partitions out: %v", err)
	}
	if _, err := New(Options{}); err == nil {
		t.Error("an executor without limit and slots")
	}
	if err := e.Join(t.Context(), &Worker{Name: "w", Slots: map[string]schedule.Amount{"gpu": 1}}); err == nil {
		t.Error("a worker with slots that nobody knows")
	}
}

// BenchmarkTask is the time of a task that does nothing: a source of a thousand partitions, each taken
// by a task that gives it on, all collected.
func BenchmarkTask(b *testing.B) {
	for _, size := range []int64{1 << 20, 128 << 20} {
		b.Run(fmt.Sprint(size>>20, "MiB"), func(b *testing.B) {
			e, stop := start(b, 64*size, 4)
			defer stop()
			p, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU, Partition: size},
				{Name: "pass", Needs: oneCPU, Partition: size, Process: func(_ context.Context, in []Partition, out *Output) error {
					if err := out.Release(); err != nil {
						return err
					}
					return out.Emit(in[0])
				}}})
			if err != nil {
				b.Fatal(err)
			}
			const tasks = 1000
			source := Source{Expect: tasks * size, Read: func(_ context.Context, out *Output) error {
				for range tasks {
					if err := out.Emit(only(size)); err != nil {
						return err
					}
				}
				return nil
			}}
			for b.Loop() {
				if err := p.Run(b.Context(), Work{Sources: []Source{source}}, nothing); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tasks, "ns/task")
		})
	}
}

// only is a partition of which only the size is known.
type only int64

func (o only) Bytes() int64 { return int64(o) }
