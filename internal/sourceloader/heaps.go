package sourceloader

import (
	"context"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/memory"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform"
)

// What is decoded, and the processes that decode or run functions, are part of what a loader may hold, and blocks
// leave memory for it. What a picture, a sound or a video takes is reserved before (internal/memory). What the
// processes of functions have beyond their setup counts up to the same part of the budget. Beyond that
// the processes have to take less.

const (
	// roomShare is the part of a loader's memory that is decoded in, by its threads and by child processes, and
	// that the processes of functions may have.
	roomShare = 2
	// heapsEvery is how often the loader looks at it: what they take in that time is over the limit.
	heapsEvery = 100 * time.Millisecond
)

// newRoom is where what is decoded takes its memory.
func (c *cache) newRoom() *memory.Room {
	return memory.NewRoom(c.base, c.budget/roomShare, memory.Options{
		Count: c.take,
		Alone: func(bytes, most int64) {
			if c.alone != nil {
				c.alone(bytes, most)
			}
		},
	})
}

// take counts bytes that are taken beside blocks, which go to the disk for them, or, below zero, are free again.
func (c *cache) take(bytes int64) {
	if bytes > 0 {
		c.grow(bytes, 0, anywhere) // what finds no room is taken all the same
	} else {
		c.count(bytes)
	}
}

// counted is the reader of a file whose buffers, pages and decompressors count.
type counted struct {
	format.Reader
	cache   *cache
	records int
	held    int64
}

const (
	// heldEvery is after how many records it is looked at what a reader holds. It changes with pages and buffers.
	heldEvery = 16
	// heldStep is by how much that has to change to be counted.
	heldStep = 64 << 10
)

// counting counts what a reader holds in the window's cache, until it is closed.
func (w *window) counting(r format.Reader) format.Reader {
	if w == nil {
		return r
	}
	return &counted{Reader: r, cache: w.cache}
}

// Next implements format.Reader.
func (c *counted) Next() (*format.Record, error) {
	rec, err := c.Reader.Next()
	if c.records%heldEvery == 0 {
		if more := c.Held() - c.held; max(more, -more) >= heldStep {
			c.cache.take(more)
			c.held += more
		}
	}
	c.records++
	return rec, err
}

// Close implements format.Reader.
func (c *counted) Close() error {
	err := c.Reader.Close()
	c.cache.take(-c.held)
	c.held = 0
	return err
}

// pool is what is looked at of a pool of functions.
type pool struct {
	name  string
	heap  transform.Heap // nil: it is not known
	seats func() int     // nil: they stay as they are
	last  int            // seats that the engine knows of; of the goroutine that looks
}

// uses adds a pool to those that are looked at.
func (x *executor) uses(p transform.Pool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.ContainsFunc(x.pools, func(known pool) bool { return known.name == p.Name }) {
		x.pools = append(x.pools, pool{p.Name, p.Heap, p.Seats, max(p.Slots, 1)})
	}
}

// looked are the pools that are looked at.
func (x *executor) looked() []pool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.pools)
}

// resize has the engine give each pool as much as keeps it busy now: worker pools of other machines come and go.
func (x *executor) resize(ctx context.Context) {
	for i, p := range x.looked() {
		if p.seats == nil {
			continue
		}
		now := max(p.seats(), 1)
		if now == p.last || x.Resize(ctx, p.name, schedule.Amount(now)*schedule.Slot) != nil {
			continue
		}
		x.mu.Lock()
		x.pools[i].last = now // pools are only added
		x.mu.Unlock()
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
			x.resize(ctx)
		case <-ctx.Done():
			x.cache.room.Claim(-counted)
			memory.Outside(-counted)
			x.press(false)
			return
		}
	}
}

// lookAtHeaps brings up to date how many of their bytes count, and whether they are pressed.
func (x *executor) lookAtHeaps(counted int64, pressed bool) (int64, bool) {
	held, most := int64(0), x.cache.room.Most()
	for _, p := range x.looked() {
		if p.heap != nil {
			held += p.heap.Held()
		}
	}
	x.cache.room.Claim(min(held, most) - counted)
	memory.Outside(min(held, most) - counted)
	if over := held > most; over != pressed {
		x.press(over)
	}
	return min(held, most), held > most
}

func (x *executor) press(on bool) {
	for _, p := range x.looked() {
		if p.heap != nil {
			p.heap.Press(x, on)
		}
	}
}
