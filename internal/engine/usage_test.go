package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestUsage: who asks hears what the stages of a pipeline do, and nothing of an executor that has ended.
func TestUsage(t *testing.T) {
	var p *Pipeline
	synctest.Test(t, func(t *testing.T) {
		e, stop := start(t, 1<<20, 2)
		p = two(t, e, func(_ context.Context, in []Partition, out *Output) error {
			time.Sleep(time.Minute)
			return out.Emit(in[0])
		})
		time.AfterFunc(30*time.Second, func() {
			u, err := p.Usage(t.Context())
			if err != nil || len(u.Stages) != 2 || u.Stored == 0 || u.Stages[1].Running == 0 || u.Stages[1].Queued == 0 || u.Stages[1].QueuedBytes == 0 {
				t.Errorf("a function works on some of ten partitions: %+v, %v", u, err)
			}
		})
		if err := p.Run(t.Context(), Work{Sources: []Source{give(10)}}, nothing); err != nil {
			t.Error(err)
		}
		u, err := p.Usage(t.Context())
		if err != nil || u.Stored != 0 || u.Stages[0] != (StageUsage{Name: u.Stages[0].Name}) || u.Stages[1] != (StageUsage{Name: u.Stages[1].Name}) {
			t.Errorf("all is done: %+v, %v", u, err)
		}
		stop()
		if _, err := p.Usage(t.Context()); err == nil {
			t.Error("an executor that has ended answers")
		}
	})
}
