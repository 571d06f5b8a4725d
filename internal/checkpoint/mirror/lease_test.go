package mirror_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/object"
)

// awaitFree says how long one that stands by takes to find that nobody writes a log; false if it
// does not within a minute.
func awaitFree(t *testing.T, store object.Store) (took time.Duration, found bool) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	_, err := mirror.AwaitFree(ctx, store)
	return time.Since(begin), err == nil
}

// TestLeaseOfAnother: a planner that another one replaced, and that ends before it writes again,
// gives only its own lease back: its successor goes on, and nobody takes over from that. A log that
// its writer closes is free at once.
func TestLeaseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &object.Memory{}
		first := newMachine(store).open(t)
		if err := first.Fence(1); err != nil {
			t.Fatal(err)
		}
		appendSteps(t, first, 0, 10)
		second := newMachine(store).open(t)
		if err := second.Fence(2); err != nil {
			t.Fatal(err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if took, free := awaitFree(t, store); free {
			t.Errorf("after %v the log was taken for one that nobody writes", took)
		}
		appendSteps(t, second, 10, 20)
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
		if took, free := awaitFree(t, store); !free || took > 0 {
			t.Errorf("its writer closed the log, and it was free after %v: %v", took, free)
		}
	})
}

// TestFreeOfAnEarlierSlot: a planner that ends says that the log is free while another one takes it
// over: what that wrote counts, not the lease.
func TestFreeOfAnEarlierSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &object.Memory{}
		first := newMachine(store).open(t)
		if err := first.Fence(1); err != nil {
			t.Fatal(err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		said, err := store.Get(t.Context(), "lease", object.Whole)
		if err != nil {
			t.Fatal(err)
		}
		second := newMachine(store).open(t)
		if err := second.Fence(2); err != nil {
			t.Fatal(err)
		}
		if err := store.Put(t.Context(), "lease", said); err != nil { // it comes late
			t.Fatal(err)
		}
		if took, free := awaitFree(t, store); free {
			t.Errorf("after %v the log was taken for one that nobody writes", took)
		}
		if err := second.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
