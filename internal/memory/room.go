// Package memory shares a number of bytes among what takes much memory for a short while:
// pictures and sounds that are decoded, and the processes that decode others.
//
// It owns who waits for whom. It never takes memory itself, and never looks at how much a
// process has: whoever is about to take some says how much, from the header of a file or
// from what the last one took.
//
// # Who waits
//
// A Lease is given when it fits beside all others, first come, first served. One that is larger than the
// whole Room is given as soon as there is no other, and alone until it ends: so the bytes held are above the
// Room's by no more than one lease. Who has a lease never waits for another one, so each of them ends.
package memory

import (
	"context"
	"math"
	"sync"
)

// Options say what happens beside a Room.
type Options struct {
	// Count is called with bytes that are held from now on, before they are taken, and with bytes below
	// zero that are free again. It may make room for them elsewhere. No lock is held. Nil: nothing.
	Count func(bytes int64)
	// Alone is called once, by the first lease that does not fit the Room. Nil: nothing.
	Alone func(bytes, most int64)
}

// Room is a number of bytes. A nil Room has no end. It is safe for concurrent use.
type Room struct {
	life  context.Context
	most  int64
	opts  Options
	alone sync.Once

	mu     sync.Mutex // guards the fields below
	held   int64
	leases int        // that are not kept
	waits  []*waiting // in the order they came
}

// waiting is a lease that waits.
type waiting struct {
	bytes int64
	given chan struct{} // closed when it has room
}

// NewRoom returns a Room of most bytes, at least one. Nobody waits in it any more when life has ended.
func NewRoom(life context.Context, most int64, o Options) *Room {
	return &Room{life: life, most: max(most, 1), opts: o}
}

// Most is how many bytes there are.
func (r *Room) Most() int64 {
	if r == nil {
		return math.MaxInt64
	}
	return r.most
}

// Lease is memory that somebody may take. It is for one goroutine; a nil Lease has no end.
type Lease struct {
	room  *Room
	bytes int64
	kept  bool
}

// Lease waits until there is room for bytes, and counts them until it is freed. Its error is that of ctx or
// of the Room's life.
func (r *Room) Lease(ctx context.Context, bytes int64) (*Lease, error) {
	if r == nil {
		return nil, nil
	}
	r.mu.Lock()
	w := &waiting{bytes, make(chan struct{})}
	r.waits = append(r.waits, w)
	r.admit()
	r.mu.Unlock()
	select {
	case <-w.given:
	case <-ctx.Done():
		return nil, r.leave(w, context.Cause(ctx))
	case <-r.life.Done():
		return nil, r.leave(w, context.Cause(r.life))
	}
	if bytes > r.most && r.opts.Alone != nil {
		r.alone.Do(func() { r.opts.Alone(bytes, r.most) })
	}
	r.count(bytes)
	collect(bytes)
	return &Lease{room: r, bytes: bytes}, nil
}

// Take is Lease for who never asks for more: free gives all of it back.
func (r *Room) Take(bytes int64) (free func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	l, err := r.Lease(context.Background(), bytes)
	if err != nil {
		return nil, err
	}
	return l.Free, nil
}

// Claim counts bytes that somebody has taken, or gives them back, below zero, without waiting. There is less for
// leases as long as they are held.
func (r *Room) Claim(bytes int64) {
	if r == nil || bytes == 0 {
		return
	}
	if bytes < 0 {
		r.count(bytes)
	}
	r.mu.Lock()
	r.held += bytes
	r.admit()
	r.mu.Unlock()
	if bytes > 0 {
		r.count(bytes)
	}
}

// admit gives room to those that come next. The lock is held.
func (r *Room) admit() {
	for len(r.waits) > 0 {
		w := r.waits[0]
		if r.leases > 0 && r.held+w.bytes > r.most {
			return
		}
		r.waits[0] = nil
		r.waits = r.waits[1:]
		r.held += w.bytes
		r.leases++
		close(w.given)
	}
}

// leave takes out one that waits no longer, and returns why.
func (r *Room) leave(w *waiting, why error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.waits {
		if other == w {
			r.waits = append(r.waits[:i:i], r.waits[i+1:]...)
			r.admit()
			return why
		}
	}
	r.held -= w.bytes // it was given meanwhile
	r.leases--
	r.admit()
	return why
}

func (r *Room) count(bytes int64) {
	if r.opts.Count != nil {
		r.opts.Count(bytes)
	}
}

// Grow has the lease be of bytes in all, if that is more and there is room for it or no other lease, and says
// whether it is. One that is refused has to end, and may try again from the start.
func (l *Lease) Grow(bytes int64) bool {
	if l == nil || bytes <= l.bytes {
		return true
	}
	r, more := l.room, bytes-l.bytes
	r.mu.Lock()
	if r.leases > 1 && r.held+more > r.most {
		r.mu.Unlock()
		return false
	}
	r.held += more
	r.mu.Unlock()
	l.bytes = bytes
	r.count(more)
	return true
}

// Keep leaves bytes of the lease counted, until it is freed, and has nobody wait for them: they are what came
// of it.
func (l *Lease) Keep(bytes int64) {
	if l == nil || l.kept {
		return
	}
	l.kept = true
	l.give(l.bytes-bytes, 1)
	l.bytes = bytes
}

// Free gives back what is left of the lease. It may be called again.
func (l *Lease) Free() {
	if l == nil || l.bytes == 0 && l.kept {
		return
	}
	leases := 1
	if l.kept {
		leases = 0
	}
	l.give(l.bytes, leases)
	l.bytes, l.kept = 0, true
}

// Bytes are how many it is for.
func (l *Lease) Bytes() int64 {
	if l == nil {
		return 0
	}
	return l.bytes
}

// give gives bytes back. They are counted as free before anyone else may have them: what is counted is never more
// than what is held.
func (l *Lease) give(bytes int64, leases int) {
	r := l.room
	r.count(-bytes)
	r.mu.Lock()
	r.held -= bytes
	r.leases -= leases
	r.admit()
	r.mu.Unlock()
}

type key struct{}

// With returns a context in which those that run processes find the Room.
func With(ctx context.Context, r *Room) context.Context { return context.WithValue(ctx, key{}, r) }

// Of is the Room of a context; nil if it has none.
func Of(ctx context.Context) *Room {
	r, _ := ctx.Value(key{}).(*Room)
	return r
}
