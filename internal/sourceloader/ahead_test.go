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
		l.opens, l.opts.Log = newQueue(), slog.New(slog.DiscardHandler)
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
		go func() { worked <- l.work(ctx, l.opens) }()
		for range 3 {
			l.opens.do(func(ctx context.Context) error { return l.openAhead(ctx, 0, firstAgain) })
		}
		time.Sleep(time.Hour)
		cancel()
		<-worked
		if len(opened) != 1 || opened[0] < 2*time.Minute || opened[0] > 2*time.Minute+lastAgain {
			t.Errorf("it says that the source is open %v", opened)
		}
	})
}

// TestOpenSeveral: a loader opens several sources at a time, also while all of its workers read.
func TestOpenSeveral(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loaderOf(t, "", 60)
		for len(l.job.Sources) < opening {
			l.job.Sources = append(l.job.Sources, l.job.Sources[0])
		}
		l.setJob(l.job)
		l.opts.Workers, l.opts.Log, l.queue, l.opens, l.ready = 1, slog.New(slog.DiscardHandler), newQueue(), newQueue(), make(chan struct{})
		l.cache = newCache(t.Context(), 1<<20, nil, l.load)
		begin := time.Now()
		l.store = store.NewMetered(&slowList{l.store})
		opened := make(chan time.Duration, opening)
		l.send = func(*pb.LoaderReport) error {
			opened <- time.Since(begin)
			return nil
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			ended <- l.serve(ctx, func(ctx context.Context, take func(*pb.LoaderOrder) error) error {
				l.queue.do(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }) // a block that takes long
				for i := range opening {
					if err := take(&pb.LoaderOrder{Order: &pb.LoaderOrder_Index{Index: &pb.IndexSource{Source: uint32(i), Ahead: true}}}); err != nil {
						return err
					}
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		for range opening {
			if after := <-opened; after != time.Second {
				t.Errorf("a source is open after %v, want a second", after)
			}
		}
		stop()
		<-ended
	})
}

// slowList takes a second for a list.
type slowList struct{ store.Store }

func (s *slowList) List(ctx context.Context, pattern string) ([]store.Object, error) {
	time.Sleep(time.Second)
	return s.Store.List(ctx, pattern)
}
