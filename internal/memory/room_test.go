package memory_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/memory"
)

// ledger counts what leases hold, and the most that one of them had.
type ledger struct {
	mu                  sync.Mutex
	held, peak, largest int64
}

func (l *ledger) count(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += bytes
	l.peak = max(l.peak, l.held)
	l.largest = max(l.largest, bytes)
}

// TestLaws: whatever the sizes, all leases are given, never more than the Room and one lease are held, and nothing
// is held at the end.
func TestLaws(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			const most = 100
			var l ledger
			room := memory.NewRoom(t.Context(), most, memory.Options{Count: l.count})
			var work sync.WaitGroup
			for n := range uint64(8) {
				work.Go(func() {
					chance := rand.New(rand.NewPCG(seed, n))
					for range 50 {
						if err := use(t.Context(), room, chance); err != nil {
							t.Error(err)
						}
					}
				})
			}
			work.Wait()
			if l.held != 0 {
				t.Errorf("%d bytes are held at the end", l.held)
			}
			if l.peak > most+l.largest || l.peak <= most/2 {
				t.Errorf("%d bytes were held in a room of %d; the largest lease had %d", l.peak, most, l.largest)
			}
		})
	}
}

// use has a lease for a while, which grows, is kept or ends.
func use(ctx context.Context, room *memory.Room, chance *rand.Rand) error {
	l, err := room.Lease(ctx, chance.Int64N(130))
	if err != nil {
		return err
	}
	defer l.Free()
	pause(chance)
	if l.Grow(chance.Int64N(130)) {
		pause(chance)
	}
	if chance.IntN(3) == 0 {
		l.Keep(chance.Int64N(5))
		pause(chance)
	}
	return nil
}

// TestTurns: leases come first, come first served; one that is too large waits for all others and has the Room alone.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := 0
		room := memory.NewRoom(t.Context(), 10, memory.Options{Alone: func(_, _ int64) { said++ }})
		first, err := room.Lease(t.Context(), 6)
		if err != nil {
			t.Fatal(err)
		}
		var order []int64
		given := make(chan *memory.Lease)
		for _, bytes := range []int64{25, 1, 30} {
			go func() {
				l, _ := room.Lease(t.Context(), bytes)
				order = append(order, bytes)
				given <- l
			}()
			synctest.Wait()
		}
		if len(order) != 0 {
			t.Fatalf("%v were given beside 6 of 10 bytes, the first of them too large", order)
		}
		first.Free()
		for range 3 {
			l := <-given
			synctest.Wait()
			if held := len(order); held > 1 && order[held-1] == 30 && order[held-2] == 25 {
				t.Errorf("out of turn: %v", order)
			}
			l.Free()
			l.Free()
		}
		if len(order) != 3 || order[0] != 25 || order[1] != 1 || said != 1 {
			t.Errorf("order %v, said %d times that one is alone", order, said)
		}
	})
}

// TestGrow: a lease grows while it fits or is the only one, and not beyond what another leaves.
func TestGrow(t *testing.T) {
	room := memory.NewRoom(t.Context(), 10, memory.Options{})
	a, _ := room.Lease(t.Context(), 4)
	b, _ := room.Lease(t.Context(), 4)
	if !a.Grow(6) || a.Grow(7) || b.Grow(5) {
		t.Error("leases of 6 and 4 bytes fill a room of 10, and no more")
	}
	b.Keep(3)
	if !a.Grow(20) {
		t.Error("a lease beside one that is only kept may grow")
	}
	b.Free()
	a.Free()
	room.Claim(12)
	c, err := room.Lease(t.Context(), 5)
	if err != nil || !c.Grow(6) {
		t.Error("one lease is given whatever is claimed", err)
	}
}

// TestEnd: a lease that waits ends with its context and with the Room's life, and is in nobody's way then.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(t.Context())
		room := memory.NewRoom(life, 10, memory.Options{})
		first, _ := room.Lease(t.Context(), 6)
		late, stop := context.WithCancelCause(t.Context())
		why, got := errors.New("enough"), make(chan error)
		go func() { _, err := room.Lease(late, 10); got <- err }()
		synctest.Wait()
		go func() { _, err := room.Lease(t.Context(), 4); got <- err }()
		synctest.Wait()
		stop(why)
		if a, b := <-got, <-got; !errors.Is(errors.Join(a, b), why) || a != nil && b != nil {
			t.Error("the one that waits no longer is in the way:", a, b)
		}
		go func() { _, err := room.Take(7); got <- err }()
		synctest.Wait()
		end()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		first.Free()
	})
}

// TestNone: without a Room nothing is counted and nobody waits.
func TestNone(t *testing.T) {
	room := memory.Of(t.Context())
	l, err := room.Lease(t.Context(), 1<<60)
	if room != nil || err != nil || !l.Grow(1<<61) {
		t.Error(room, err)
	}
	l.Keep(1)
	l.Free()
	room.Claim(1 << 60)
	if free, err := room.Take(1 << 60); err != nil {
		t.Error(err)
	} else {
		free()
	}
	if in := memory.NewRoom(t.Context(), 1, memory.Options{}); memory.Of(memory.With(t.Context(), in)) != in {
		t.Error("a context does not hold its Room")
	}
}

// pause lets others go first now and then.
func pause(chance *rand.Rand) { time.Sleep(time.Duration(chance.IntN(5))) }
