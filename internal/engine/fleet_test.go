package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

// TestFleet: when 40 of 100 workers leave at once, as much less is done in a second, at once and no
// more, and all is as before in the second after they are back. Nothing waits for those that left.
func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Options{Limit: 1 << 30, Slots: map[string]schedule.Amount{"cpu": 8 * schedule.Slot, "python": 0}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- e.Run(ctx) }()
		fleet := make([]*Worker, 100)
		for i := range fleet {
			fleet[i] = &Worker{Name: fmt.Sprint(i), Slots: map[string]schedule.Amount{"python": schedule.Slot}}
			if err := e.Join(ctx, fleet[i]); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		var mu sync.Mutex
		var done [30]int // tasks that ended, by second
		p, err := e.Pipeline([]Stage{
			{Name: "read", Needs: oneCPU, Partition: 100},
			{Name: "work", Needs: map[string]schedule.Amount{"python": schedule.Slot}, Partition: 100, Process: func(ctx context.Context, in []Partition, out *Output) error {
				select {
				case <-time.After(time.Second / 4):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				mu.Lock()
				if second := int(time.Since(began) / time.Second); second < len(done) {
					done[second]++
				}
				mu.Unlock()
				return out.Emit(in[0])
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(10*time.Second + time.Second/10)
			for _, w := range fleet[:40] {
				_ = e.Leave(ctx, w)
			}
			time.Sleep(10 * time.Second)
			for _, w := range fleet[:40] {
				_ = e.Join(ctx, w)
			}
		}()
		work := Work{Sources: slices.Repeat([]Source{give(50)}, 210)}
		collected := 0
		if err := p.Run(ctx, work, func(source int, part Partition) error {
			if part.(rows)[0] != uint64(collected%50) || source != collected/50 {
				t.Errorf("partition %d is %v of source %d", collected, part, source)
			}
			collected++
			return nil
		}); err != nil || collected != 50*210 {
			t.Errorf("%d partitions, %v", collected, err)
		}
		for second, n := range done[2:28] {
			want := 400
			if second += 2; second >= 11 && second < 20 {
				want = 240
			}
			if (n < want*95/100 || n > want) && second != 10 && second != 20 {
				t.Errorf("second %d: %d tasks, want %d", second, n, want)
			}
		}
		end()
		<-over
	})
}

// TestProvide: a resource that comes while others are in use.
func TestProvide(t *testing.T) {
	e, stop := start(t, 1<<20, 1)
	defer stop()
	change := func(_ context.Context, in []Partition, out *Output) error { return out.Emit(in[0]) }
	before := two(t, e, change)
	run := func(p *Pipeline) {
		t.Helper()
		n := 0
		if err := p.Run(t.Context(), Work{Sources: []Source{give(20)}}, func(int, Partition) error { n++; return nil }); err != nil || n != 20 {
			t.Errorf("%d partitions, %v", n, err)
		}
	}
	run(before)
	for range 2 { // the second changes nothing
		if err := e.Provide(t.Context(), "other", 2*schedule.Slot); err != nil {
			t.Fatal(err)
		}
	}
	stages := []Stage{{Name: "read", Needs: oneCPU, Partition: 100}, {Name: "change", Needs: map[string]schedule.Amount{"other": 2 * schedule.Slot}, Partition: 100, Process: change}}
	after, err := e.Pipeline(stages)
	if err != nil {
		t.Fatal(err)
	}
	run(after)
	run(before)
	stages[1].Needs = map[string]schedule.Amount{"none": 1}
	if _, err := e.Pipeline(stages); err == nil {
		t.Error("a resource that nobody provides is accepted")
	}
}

// TestResize: a resource has more slots, then fewer than are taken; tasks go on with what there is.
func TestResize(t *testing.T) {
	e, stop := start(t, 1<<20, 1)
	defer stop()
	if err := e.Provide(t.Context(), "other", schedule.Slot); err != nil {
		t.Fatal(err)
	}
	var now, most atomic.Int32
	hold, enter := make(chan struct{}), make(chan struct{}, 20)
	p, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU, Partition: 100}, {Name: "change", Needs: map[string]schedule.Amount{"other": schedule.Slot}, Partition: 100,
		Process: func(ctx context.Context, in []Partition, out *Output) error {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			enter <- struct{}{}
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return out.Emit(in[0])
		}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	n := 0
	go func() {
		done <- p.Run(t.Context(), Work{Sources: []Source{give(8)}}, func(int, Partition) error { n++; return nil })
	}()
	<-enter
	if err := e.Resize(t.Context(), "other", 3*schedule.Slot); err != nil {
		t.Fatal(err)
	}
	<-enter
	<-enter // three are under way
	if err := e.Resize(t.Context(), "other", schedule.Slot); err != nil {
		t.Fatal(err)
	}
	most.Store(0)
	for range 3 {
		hold <- struct{}{}
	}
	for range 5 {
		<-enter
		hold <- struct{}{}
	}
	if err := <-done; err != nil || n != 8 || most.Load() != 1 {
		t.Errorf("%d partitions, %d at a time with one slot, %v", n, most.Load(), err)
	}
	if err := e.Resize(t.Context(), "none", schedule.Slot); err == nil {
		t.Error("a resource that nobody provided was resized")
	}
}

// TestTried: what was tried enough where it was lost is not tried again.
func TestTried(t *testing.T) {
	e, stop := start(t, 1<<20, 1)
	defer stop()
	attempts := 0
	p := two(t, e, func(context.Context, []Partition, *Output) error {
		attempts++
		return fault.Tried(fault.Lostf("its worker died"))
	})
	err := p.Run(t.Context(), Work{Sources: []Source{give(1)}}, nothing)
	if attempts != 1 || fault.ClassOf(err) != fault.Lost || !errors.Is(err, fault.ErrTried) {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}
