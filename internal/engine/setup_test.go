package engine

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

// TestSetup: a stage is set up once on each worker, before its tasks there, also if that is lost at first.
func TestSetup(t *testing.T) {
	e, stop := start(t, 1<<20, 2)
	defer stop()
	for _, name := range []string{"a", "b"} {
		if err := e.Join(t.Context(), &Worker{Name: name, Slots: map[string]schedule.Amount{"cpu": 2 * schedule.Slot}}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	times, lost := map[string]int{}, false
	setup := func(_ context.Context, on *Worker) error {
		mu.Lock()
		defer mu.Unlock()
		if !lost {
			lost = true
			return fault.Lostf("not yet")
		}
		times[on.Name]++
		return nil
	}
	p, err := e.Pipeline([]Stage{
		{Name: "read", Needs: oneCPU, Partition: 100},
		{Name: "change", Needs: oneCPU, Partition: 100, Setup: setup, Process: func(_ context.Context, in []Partition, out *Output) error {
			mu.Lock()
			none := len(times) == 0
			mu.Unlock()
			if none {
				t.Error("a task before a setup")
			}
			return out.Emit(in[0])
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := p.Run(t.Context(), Work{Sources: []Source{give(200)}}, func(int, Partition) error { n++; return nil }); err != nil || n != 200 {
		t.Errorf("%d partitions, %v", n, err)
	}
	if len(times) == 0 {
		t.Error("nothing was set up")
	}
	for name, k := range times {
		if k != 1 {
			t.Errorf("worker %s was set up %d times", name, k)
		}
	}
}

// TestValidate: what a stage says of itself is heard before any work.
func TestValidate(t *testing.T) {
	e, stop := start(t, 1<<20, 1)
	defer stop()
	_, err := e.Pipeline([]Stage{{Name: "read", Needs: oneCPU, Partition: 100, Validate: func() error { return errors.New("no such folder") }}})
	if err == nil || !strings.Contains(err.Error(), `stage "read": no such folder`) {
		t.Error(err)
	}
}
