package pool

import (
	"context"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/worker"
)

const (
	// idleTime is how long an environment stays that no loader uses: a loader that starts again finds it warm.
	idleTime = time.Minute
	// sweepEvery is how often such environments are looked for.
	sweepEvery = 5 * time.Second
)

// key is what decides which processes functions can share.
type key struct {
	in             Interpreter
	timeout, start time.Duration
	memory         int64
	decides        bool // which rows go beyond the memory
	network        bool
}

// leases are the environments of a pool, which are there as long as loaders use them. It is safe for
// concurrent use.
type leases struct {
	open func(k key, function string) (*worker.Environment, error)

	mu      sync.Mutex
	current map[key]*lease // that new functions are opened in
	all     []*lease
}

// lease is an environment, and how many functions of loaders are open in it.
type lease struct {
	key   key
	once  sync.Once
	ready chan struct{} // closed when once is done
	env   *worker.Environment
	err   error

	users int       // of the mutex of leases
	idle  time.Time // when it lost its last user; likewise
}

// take returns the environment of a key, and whether it was started now.
func (a *leases) take(k key, function string) (l *lease, isNew bool, err error) {
	a.mu.Lock()
	if l = a.current[k]; l == nil {
		l = &lease{key: k, ready: make(chan struct{})}
		if a.current == nil {
			a.current = map[key]*lease{}
		}
		a.current[k], a.all = l, append(a.all, l)
	}
	l.users++
	a.mu.Unlock()
	l.once.Do(func() {
		isNew = true
		l.env, l.err = a.open(k, function)
		close(l.ready)
	})
	if l.err != nil {
		a.replace(l)
		a.release(l)
		return nil, false, l.err
	}
	return l, isNew, nil
}

// replace has the next one who takes the key start another environment.
func (a *leases) replace(l *lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current[l.key] == l {
		delete(a.current, l.key)
	}
}

// release gives an environment back.
func (a *leases) release(l *lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.users--
	l.idle = time.Now()
}

// run ends environments that nobody uses for a while, or that were replaced, until ctx ends; then all of them.
func (a *leases) run(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			a.sweep(func(l *lease) bool {
				return l.users == 0 && (a.current[l.key] != l || time.Since(l.idle) > idleTime)
			})
		case <-ctx.Done():
			a.sweep(func(*lease) bool { return true })
			return
		}
	}
}

// sweep ends environments, of which over is called with the mutex.
func (a *leases) sweep(over func(*lease) bool) {
	a.mu.Lock()
	var ended, left []*lease
	for _, l := range a.all {
		if !over(l) {
			left = append(left, l)
			continue
		}
		ended = append(ended, l)
		if a.current[l.key] == l {
			delete(a.current, l.key)
		}
	}
	a.all = left
	a.mu.Unlock()
	for _, l := range ended {
		if <-l.ready; l.env != nil {
			_ = l.env.Close()
		}
	}
}

// busy is how many workers have a batch, and how many batches wait for one.
func (a *leases) busy() (busy, waiting int) {
	a.mu.Lock()
	all := append([]*lease(nil), a.all...)
	a.mu.Unlock()
	for _, l := range all {
		select {
		case <-l.ready:
		default:
			continue
		}
		if l.env != nil {
			u := l.env.Status()
			busy, waiting = busy+u.Busy, waiting+u.Waiting
		}
	}
	return busy, waiting
}

var errStops = fault.Lostf("the pool stops")
