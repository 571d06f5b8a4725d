package sim_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/internal/sizing"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/trainer"
	"github.com/millrace-data/millrace/jobspec"
)

var layouts = flag.Bool("layouts", false, "compare the layout by cost with 30 hand-made ones: half a minute")

// A block of the mix that shifts waits layoutFar for its store, and then computes on one of two cores.
const layoutFar = 150 * time.Millisecond

var layoutCompute = map[string]time.Duration{"archive": 12 * time.Millisecond, "text": 25 * time.Millisecond, "picture": 30 * time.Millisecond}

func kindOf(name string) string {
	kind, _, _ := strings.Cut(name, "-")
	return kind
}

// computing is a store whose reads take the time of a store far away and of a core, once it is on.
type computing struct {
	store.Store
	cores chan struct{}
	on    *bool
}

func (c computing) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	h, err := c.Store.Open(ctx, obj)
	return computingHandle{h, c, layoutCompute[kindOf(strings.TrimPrefix(obj.URI, "/shift/"))]}, err
}

type computingHandle struct {
	store.Handle
	in    computing
	takes time.Duration
}

func (h computingHandle) ReadAt(b []byte, at int64) (int, error) {
	if *h.in.on {
		time.Sleep(layoutFar)
		h.in.cores <- struct{}{}
		time.Sleep(h.takes)
		<-h.in.cores
	}
	return h.Handle.ReadAt(b, at)
}

// rateOf is how many steps a second come with a layout, when all sources are open.
func rateOf(t *testing.T, l *sizing.Layout, job *jobspec.Job, files store.Store) (rate float64) {
	synctest.Test(t, func(t *testing.T) {
		var begin time.Time
		far := false
		x := shiftService{
			job: job, store: computing{files, make(chan struct{}, 2), &far}, loaders: len(l.Loaders), workers: func(n int) int { return l.Loaders[n].Workers }, deal: l.Deal(namesOf(job)),
			step: func(s trainer.Step, _ int64) {
				if s.Step == 8 {
					begin, far = time.Now(), true
				}
				rate = float64(s.Step-8) / time.Since(begin).Seconds()
			},
		}
		x.run(t)
	})
	return rate
}

func namesOf(job *jobspec.Job) (names []string) {
	for i := range job.Sources {
		names = append(names, job.Sources[i].Name)
	}
	return names
}

// byCost is the layout for two cores.
func byCost(job *jobspec.Job) *sizing.Layout {
	s := sizing.Snapshot{Cores: 2, Memory: 8 << 30, Constructors: 1, Buffer: 512 << 20}
	schedule := compile.Schedule(job)
	for i, name := range namesOf(job) {
		k := slices.IndexFunc(shiftKinds, func(k shiftKind) bool { return k.name == kindOf(name) })
		takes := layoutFar + layoutCompute[kindOf(name)]
		x := sizing.Source{Name: name, Busy: float64(takes-layoutFar) / float64(takes), Block: 4 * int64(shiftKinds[k].block)}
		for step := int64(0); step < shiftSteps; step += 4 {
			tokens := float64(schedule.Shares(step)[i]) / (1 << mix.Bits) * 16 * 2048
			x.Phases = append(x.Phases, takes.Seconds()*tokens/float64(shiftKinds[k].block))
		}
		x.Work = slices.Max(x.Phases)
		s.Sources = append(s.Sources, x)
	}
	return sizing.Decide(s).Layout()
}

// handMade are layouts that a person would try: sources dealt in turn, read by all, or as many loaders for each kind.
func handMade(job *jobspec.Job) (all map[string]*sizing.Layout) {
	all = map[string]*sizing.Layout{}
	for _, loaders := range []int{1, 3, 6, 12} {
		for _, workers := range []int{1, 2, 4} {
			for _, deal := range []string{"dealt", "shared", "by kind"} {
				if loaders == 1 && deal != "dealt" {
					continue
				}
				l := &sizing.Layout{Loaders: make([]sizing.Loader, loaders)}
				for n := range l.Loaders {
					l.Loaders[n].Workers = workers
				}
				for i, name := range namesOf(job) {
					for n := range l.Loaders {
						kind := shiftKinds[n%len(shiftKinds)].name
						if deal == "shared" || deal == "dealt" && n == i%loaders || deal == "by kind" && kind == kindOf(name) {
							l.Loaders[n].Sources = append(l.Loaders[n].Sources, name)
						}
					}
				}
				all[fmt.Sprintf("%d loaders, %d workers each, %s", loaders, workers, deal)] = l
			}
		}
	}
	return all
}

// TestLayouts: the layout by cost is within a tenth of the best of 30 hand-made ones, in virtual time.
func TestLayouts(t *testing.T) {
	if !*layouts {
		t.Skip("it takes half a minute: -layouts")
	}
	job, files := shiftJob(t)
	got := rateOf(t, byCost(job), job, files)
	best, of := 0.0, ""
	for name, l := range handMade(job) {
		rate := rateOf(t, l, job, files)
		t.Logf("%s: %.1f steps a second", name, rate)
		if rate > best {
			best, of = rate, name
		}
	}
	each := &sizing.Layout{}
	for _, name := range namesOf(job) {
		each.Loaders = append(each.Loaders, sizing.Loader{Sources: []string{name}, Workers: 1})
	}
	t.Logf("by cost: %.1f steps a second, %.2f of the best (%s), %.2f of a loader a source", got, got/best, of, got/rateOf(t, each, job, files))
	if got < 0.9*best {
		t.Errorf("by cost: %.1f steps a second; %s has %.1f", got, of, best)
	}
}
