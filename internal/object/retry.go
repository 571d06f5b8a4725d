package object

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// Retry repeats the calls of a Store that fail with an error of class fault.Lost, after a
// pause that doubles, up to a time. An object that PutIfAbsent finds there with the same bytes
// is its own: the call was repeated, here or by a balancer on the way, and an earlier answer was
// lost. Callers that must be told apart write different bytes.
type Retry struct {
	Store
	For time.Duration // how long a call is repeated, if not only once; default DefaultRetry
	// Unknown is how long a call is repeated while the host of the store has no address, and the
	// store has never answered: a name that is wrong does not become right. Default: as For.
	Unknown time.Duration
	// Proved says that the store took the credentials before: where it denies access now, they may have
	// expired, and others be on their way. That is of class fault.Lost then, and such calls are repeated.
	Proved bool
	// Granted remembers which calls the store has granted: those are proved from then on. nil remembers nothing.
	Granted *Granted
}

// Granted are the rights that a store was seen to give. The zero value is none, and ready; it is safe for concurrent use.
type Granted [rights]atomic.Bool

// right is what a store gives or denies: who may list objects may not read them by that, nor write them.
type right int

const (
	reading right = iota
	listing
	writing
	removing
	rights
)

// has says whether the store took the credentials for such a call before, of which this one had an error or none.
func (r Retry) has(what right, err error) bool {
	if r.Granted != nil && err == nil {
		r.Granted[what].Store(true)
	}
	return r.Proved || r.Granted != nil && r.Granted[what].Load()
}

// DefaultRetry is longer than a store takes to move a partition or to put a node back, and
// shorter than trainers wait.
const DefaultRetry = 20 * time.Second

// Pauses between repeats: the first, and the longest. A pause is a random part of it, so
// that many who failed at once do not come back at once.
const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

var _ Store = Retry{}

// again calls fn until it succeeds, fails for good, or the time is over: once more at the least, as one attempt may
// take all of that time. attempt counts from 0. What did not answer soon has more time from the second on: it may be a
// store that is slow, and not a connection that is dead.
func (r Retry) again(ctx context.Context, what right, fn func(ctx context.Context, attempt int) error) error {
	begin, most := time.Now(), cmp.Or(r.For, DefaultRetry)
	for attempt, pause := 0, firstPause; ; attempt, pause = attempt+1, min(2*pause, longestPause) {
		err := fn(ctx, attempt)
		if attempt == 0 {
			ctx = patient(ctx)
		}
		if r.has(what, err) && errors.Is(err, ErrDenied) {
			err = fault.As(fault.Lost, err)
		}
		if err == nil || fault.ClassOf(err) != fault.Lost || ctx.Err() != nil {
			return err
		}
		if r.Unknown > 0 && errors.Is(err, errNoAddress) && time.Since(begin) >= r.Unknown {
			return err
		}
		rest := pause/4 + rand.N(3*pause/4)
		if attempt > 0 && time.Since(begin)+rest >= most {
			return fault.Lostf("%w (tried %d times)", err, attempt+1)
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return err
		}
	}
}

// Get implements Store.
func (r Retry) Get(ctx context.Context, key string, part Range) (data []byte, err error) {
	err = r.again(ctx, reading, func(ctx context.Context, _ int) (err error) { data, err = r.Store.Get(ctx, key, part); return err })
	return data, err
}

// Stat implements Store.
func (r Retry) Stat(ctx context.Context, key string) (info Info, err error) {
	err = r.again(ctx, reading, func(ctx context.Context, _ int) (err error) { info, err = r.Store.Stat(ctx, key); return err })
	return info, err
}

// Put implements Store.
func (r Retry) Put(ctx context.Context, key string, data []byte) error {
	return r.again(ctx, writing, func(ctx context.Context, _ int) error { return r.Store.Put(ctx, key, data) })
}

// PutIfAbsent implements Store.
func (r Retry) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return r.again(ctx, writing, func(ctx context.Context, _ int) error {
		err := r.Store.PutIfAbsent(ctx, key, data)
		if !isExists(err) {
			return err
		}
		found, readErr := r.Store.Get(ctx, key, Whole)
		switch {
		case readErr != nil && fault.ClassOf(readErr) == fault.Lost:
			return readErr
		case readErr == nil && bytes.Equal(found, data):
			return nil
		}
		return err
	})
}

// List implements Store.
func (r Retry) List(ctx context.Context, prefix, after string) (all []Info, err error) {
	err = r.again(ctx, listing, func(ctx context.Context, _ int) (err error) { all, err = r.Store.List(ctx, prefix, after); return err })
	return all, err
}

// Delete implements Store.
func (r Retry) Delete(ctx context.Context, key string) error {
	return r.again(ctx, removing, func(ctx context.Context, _ int) error { return r.Store.Delete(ctx, key) })
}

func isExists(err error) bool { return errors.Is(err, ErrExists) }
