package scaling

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fleet"
	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/jobspec"
)

// asked is a fleet that starts nothing and keeps what it was asked for.
type asked struct {
	fleet.Asked
	mu     sync.Mutex
	all    []int
	joined []int // as it heard
	fail   error
}

func (a *asked) Joined(_ fleet.Role, n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.joined = append(a.joined, n)
}

func (a *asked) Scale(_ context.Context, _ fleet.Role, n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, n)
	return a.fail
}

func (a *asked) seen() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.all)
}

// still is a planner of which nothing happens.
type still struct{ control.Snapshot }

func (s still) View(context.Context) (control.Snapshot, error) { return s.Snapshot, nil }
func (still) Redeal(context.Context, [][]int)                  {}

// TestBegins: the loaders that a job begins with are wanted from the start, and a fleet is asked for them where there are
// fewer: at once, or, where the job resumes, once those of its earlier life had time to come back.
func TestBegins(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, x := range []struct {
		name      string
		state     string
		there     int
		resumes   bool
		fail      error
		once, yet []int // asked for at once, and after an interval
	}{
		{name: "a new job", state: "starting", once: []int{3}, yet: []int{3, 3}},
		{name: "a fleet that refuses", state: "starting", fail: broken, once: []int{3}, yet: []int{3, 3}},
		{name: "a new job whose loaders wait for it", state: "starting", there: 3},
		{name: "a job that resumes without them", state: "starting", there: 2, resumes: true, yet: []int{3}},
		{name: "a job that resumes with more", state: "running", there: 4, resumes: true},
		{name: "a job that ended", state: "ended", resumes: true},
		{name: "a job that failed", state: "failed"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, p := &asked{fail: x.fail}, still{control.Snapshot{State: x.state, Loaders: make([]control.Member, x.there)}}
				s := New(Options{Fleet: f, Scaling: sizing.Scaling{Least: 2, Most: 4}}, p, &jobspec.Job{}, 1, nil, slog.New(slog.DiscardHandler))
				wanted := func() {
					t.Helper()
					if now := s.Now(); now.Loaders != 3 || now.Decided {
						t.Errorf("%d are wanted, decided: %v; want the 3 that the job begins with", now.Loaders, now.Decided)
					}
				}
				wanted()
				defer s.Begin(t.Context(), x.resumes)()
				synctest.Wait()
				if got := f.seen(); !slices.Equal(got, x.once) {
					t.Errorf("at once it was asked for %v, want %v", got, x.once)
				}
				time.Sleep(DefaultEvery + time.Second)
				if got := f.seen(); !slices.Equal(got, x.yet) {
					t.Errorf("after an interval it was asked for %v, want %v", got, x.yet)
				}
				f.mu.Lock()
				if of := x.state == "starting" || x.state == "running"; len(f.joined) > 1 || of != slices.Equal(f.joined, []int{x.there}) {
					t.Errorf("it heard that %v are there, want %d", f.joined, x.there)
				}
				f.mu.Unlock()
				wanted()
				if got := s.Now().Problem; x.fail != nil && got != "broken" || x.fail == nil && got != "" {
					t.Errorf("the problem is %q", got)
				}
			})
		})
	}
}
