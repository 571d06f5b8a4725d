package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/faultproxy"
	"github.com/millrace-data/millrace/internal/rig"
)

// warm is the number of the first steps that no figure has: processes start, and sources are indexed.
const warm = 3

// measured is one run. Times are in ms.
type measured struct {
	Scenario   string    `json:"scenario"`
	Title      string    `json:"title"`
	Ranks      string    `json:"ranks"`
	Pace       float64   `json:"pace_ms"`
	Prefetch   int       `json:"prefetch"`
	Steps      int64     `json:"steps"`
	P50        float64   `json:"wait_ms_p50"` // of all ranks and steps
	P99        float64   `json:"wait_ms_p99"`
	Max        float64   `json:"wait_ms_max"`
	Stalled    int       `json:"stalled_steps"`
	Allowed    int       `json:"allowed"` // stalled steps at prefetch 4; -1: any number
	Recoveries []float64 `json:"recovery_ms,omitempty"`
	Harms      []int64   `json:"harm_steps,omitempty"`
	Longest    []float64 `json:"longest_ms"` // wait of each step
	Error      string    `json:"error,omitempty"`
}

// limit is how long a run may take beside its steps.
const limit = 3 * time.Minute

// measure runs one scenario. tokens has those of the ends of runs in Go: those in Python have to end
// with the same.
func measure(ctx context.Context, o options, answer *rig.Answer, x trial, tokens map[int64][]byte) *measured {
	m := &measured{Scenario: x.name, Title: x.title, Ranks: "Go", Pace: ms(x.pace), Prefetch: x.prefetch, Allowed: x.allowed}
	if x.python {
		m.Ranks = "Python"
	}
	dir := filepath.Join(o.dir, "run")
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		m.Error = err.Error()
		return m
	}
	ctx, cancel := context.WithTimeout(ctx, limit+time.Duration(x.steps)*x.pace)
	defer cancel()
	opts := rig.Options{
		Binary: o.binary, Dir: dir, Answer: answer, Loaders: o.loaders, Shadows: o.shadows, HotShadows: o.hot, Constructors: o.constructors, Prefetch: x.prefetch,
		Env: []string{"MILLRACE_LOG_LEVEL=info", "GOMAXPROCS=4"}, Cuttable: x.cut, Delay: o.restart, Standbys: x.standbys, Mirror: x.mirror,
	}
	var trained *rig.Trained
	h := &harmer{opts: o, steps: x.steps}
	err = rig.Run(ctx, opts, func(ctx context.Context, r *rig.Rig) (err error) {
		h.rig = r
		watch, end := context.WithCancel(ctx)
		h.work.Go(func() { h.watch(watch) })
		training := rig.Training{
			Address: r.Address(), Answer: answer, Prefetch: x.prefetch, Pace: x.pace, Steps: x.steps, Deadline: limit,
			OnStep: func(step int64) { x.harm(h, step); h.step = step + 1 },
		}
		if x.python {
			trained, err = trainPython(ctx, o.python, training, tokens[x.steps])
		} else if trained, err = rig.Train(ctx, training); err == nil {
			tokens[x.steps] = trained.Token
		}
		end()
		h.work.Wait()
		if err != nil && ctx.Err() != nil {
			r.Dump()
		}
		return err
	})
	if err != nil {
		m.Error = err.Error()
	}
	m.Recoveries, m.Harms = h.recoveries, h.harms
	if trained != nil {
		m.take(trained, x.pace)
	}
	return m
}

// take computes the figures of the ranks' waits.
func (m *measured) take(t *rig.Trained, pace time.Duration) {
	var all []time.Duration
	for _, of := range t.Waits[min(warm, len(t.Waits)):] {
		all = append(all, of...)
	}
	m.Steps = t.Steps
	for step, of := range t.Waits {
		longest := slices.Max(of)
		m.Longest = append(m.Longest, ms(longest))
		if step >= warm && longest > pace/10 {
			m.Stalled++
		}
	}
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	at := func(q float64) float64 { return ms(all[min(int(q*float64(len(all))), len(all)-1)]) }
	m.P50, m.P99, m.Max = at(0.5), at(0.99), ms(all[len(all)-1])
}

func ms(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

// harmer does harm to a service, and measures how long it takes to come back.
type harmer struct {
	opts  options
	rig   *rig.Rig
	work  sync.WaitGroup
	step  int64 // of the ranks, next
	steps int64 // of the run

	harms      []int64
	mu         sync.Mutex // guards the fields below
	pending    []harmed
	recoveries []float64
}

// harmed is a harm that the service has not got over.
type harmed struct {
	when    time.Time
	planned int64 // the most that was planned before
	members int   // loaders and constructors that are to be there
}

// loaders are the ids of n loaders that read, the first if nobody can say which do.
func (h *harmer) loaders(n int) (ids []string) {
	if h.opts.shadows > 0 {
		s, _ := h.rig.Status(context.Background())
		for _, l := range s.Loaders {
			if l.Place >= 0 && len(ids) < n {
				ids = append(ids, l.ID)
			}
		}
	}
	if len(ids) == n {
		return ids
	}
	ids = nil
	for i := range n {
		ids = append(ids, fmt.Sprintf("loader-%d", i))
	}
	return ids
}

func (h *harmer) kill(ids ...string) {
	h.signal(syscall.SIGKILL, ids...)
	h.note(h.opts.loaders + h.opts.shadows + h.opts.constructors)
}

func (h *harmer) signal(s syscall.Signal, ids ...string) {
	if s != syscall.SIGKILL {
		h.harms = append(h.harms, h.step)
	}
	for _, id := range ids {
		h.rig.Signal(id, s)
	}
}

func (h *harmer) cut(id string, mode faultproxy.Mode) {
	h.harms = append(h.harms, h.step)
	h.rig.Break(id, mode)
}

// later does something after some seconds, if the run is not over by then.
func (h *harmer) later(seconds int, f func()) {
	h.work.Go(func() {
		time.Sleep(time.Duration(seconds) * time.Second)
		f()
	})
}

// note begins to measure how long the service takes until all members are back, and more is
// planned than before.
func (h *harmer) note(members int) {
	h.harms = append(h.harms, h.step)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = append(h.pending, harmed{when: time.Now(), planned: h.step + 1, members: members})
}

// watchEvery is how often the planner is asked where it is: recoveries are known to that.
const watchEvery = 20 * time.Millisecond

// watch measures recoveries until ctx ends.
func (h *harmer) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if h.isHarmed() {
			s, err := h.rig.Status(ctx)
			if err == nil {
				h.over(s.Planned, len(s.Loaders)+len(s.Constructors), time.Now())
			}
		}
		select {
		case <-time.After(watchEvery):
		case <-ctx.Done():
		}
	}
}

func (h *harmer) isHarmed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.pending) > 0
}

// over ends what the service has got over.
func (h *harmer) over(planned int64, members int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = slices.DeleteFunc(h.pending, func(x harmed) bool {
		over := planned > x.planned && members >= x.members && now.Sub(x.when) > watchEvery
		if over {
			h.recoveries = append(h.recoveries, ms(now.Sub(x.when)))
		}
		return over
	})
}
