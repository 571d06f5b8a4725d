package rpc

import (
	"cmp"
	"context"
	"hash/fnv"
	"strconv"
	"time"
)

// The pauses of a Backoff. The first is about the time that a role takes to come back on
// the same machine. They grow slowly, so that one that is back after two or three of them is
// found within another: the pause that it comes back in is time that trainers may wait. The
// last is half of what a connection itself waits (see reconnect), so that what is asked again
// adds little to it.
const (
	firstPause   = 50 * time.Millisecond
	pauseGrowth  = 1.3
	longestPause = time.Second
	pauseJitter  = 0.2
)

// Backoff is the pauses between attempts at the same thing: each is longer than the one
// before, up to Longest, and moved by up to a fifth of it, so that those who lost a
// server together do not return together. Equal names give equal pauses, so that a run
// can be repeated. The zero value is ready; it is for one goroutine.
type Backoff struct {
	Name    string        // who waits, and for whom
	Longest time.Duration // default: a second
	tries   int
}

// Next is the pause after one more attempt that failed.
func (b *Backoff) Next() time.Duration {
	pause, longest := float64(firstPause), float64(cmp.Or(b.Longest, longestPause))
	for i := 0; i < b.tries && pause < longest; i++ {
		pause *= pauseGrowth
	}
	b.tries++
	h := fnv.New32a()
	h.Write([]byte(b.Name + strconv.Itoa(b.tries)))
	unit := float64(h.Sum32())/(1<<32)*2 - 1 // -1 to 1
	return time.Duration(min(pause, longest) * (1 + pauseJitter*unit))
}

// Wait waits for the next pause. Its error is that of ctx, if that ends before.
func (b *Backoff) Wait(ctx context.Context) error {
	pause := time.NewTimer(b.Next())
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reset makes the next pause a short one again, after an attempt that did not fail.
func (b *Backoff) Reset() { b.tries = 0 }
