package sourceloader

import (
	"context"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// The processes of functions are part of what a loader may hold: what they have beyond their setup counts
// as its own, up to a part of the budget, and blocks leave memory for it. Beyond that part the processes have to
// take less.

const (
	// heapShare is the part of a loader's memory that the processes of functions may have.
	heapShare = 2
	// heapsEvery is how often the loader looks at it: what they take in that time is over the limit.
	heapsEvery = 100 * time.Millisecond
)

// uses adds the heap of a pool to those that are looked at.
func (x *executor) uses(h transform.Heap) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if h != nil && !slices.Contains(x.heaps, h) {
		x.heaps = append(x.heaps, h)
	}
}

// watchHeaps counts what the processes of functions hold until ctx ends.
func (x *executor) watchHeaps(ctx context.Context) {
	tick := time.NewTicker(heapsEvery)
	defer tick.Stop()
	counted, pressed := int64(0), false
	for {
		select {
		case <-tick.C:
			counted, pressed = x.lookAtHeaps(counted, pressed)
		case <-ctx.Done():
			x.cache.count(-counted)
			x.press(false)
			return
		}
	}
}

// lookAtHeaps brings up to date how many of their bytes count, and whether they are pressed.
func (x *executor) lookAtHeaps(counted int64, pressed bool) (int64, bool) {
	x.mu.Lock()
	heaps := slices.Clone(x.heaps)
	x.mu.Unlock()
	held, most := int64(0), x.cache.budget/heapShare
	for _, h := range heaps {
		held += h.Held()
	}
	if more := min(held, most) - counted; more > 0 {
		x.cache.grow(more, 0, anywhere)
	} else if more < 0 {
		x.cache.count(more)
	}
	if over := held > most; over != pressed {
		x.press(over)
	}
	return min(held, most), held > most
}

func (x *executor) press(on bool) {
	x.mu.Lock()
	heaps := slices.Clone(x.heaps)
	x.mu.Unlock()
	for _, h := range heaps {
		h.Press(x, on)
	}
}
