package sourceloader

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// away is a store that is not there before a time.
type away struct {
	store.Store
	until time.Time
}

func (a *away) List(ctx context.Context, pattern string) ([]store.Object, error) {
	if time.Now().Before(a.until) {
		return nil, fault.Lostf("the mount is away")
	}
	return a.Store.List(ctx, pattern)
}

// TestOpenAheadAgain: a shadow whose source cannot be opened tries again until it can, once for
// all planners that ask, and says so.
func TestOpenAheadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loaderOf(t, "", 60)
		l.queue, l.opts.Log = newQueue(), slog.New(slog.DiscardHandler)
		begin := time.Now()
		l.store = store.NewMetered(&away{l.store, begin.Add(2 * time.Minute)})
		var opened []time.Duration
		l.send = func(r *pb.LoaderReport) error {
			if r.GetOpened() == nil {
				t.Errorf("it says %v", r)
			}
			opened = append(opened, time.Since(begin))
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		worked := make(chan error)
		go func() { worked <- l.work(ctx) }()
		for range 3 {
			l.queue.later(func(ctx context.Context) error { return l.openAhead(ctx, 0, firstAgain) })
		}
		time.Sleep(time.Hour)
		cancel()
		<-worked
		if len(opened) != 1 || opened[0] < 2*time.Minute || opened[0] > 2*time.Minute+lastAgain {
			t.Errorf("it says that the source is open %v", opened)
		}
	})
}
