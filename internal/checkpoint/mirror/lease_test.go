package mirror_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/fault"
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

// TestCheckFree: a mirror that is written from another folder is refused while its lease is renewed. One whose writer
// was killed is free after a while, and at once for who wrote it last.
func TestCheckFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, own := &object.Memory{}, (*machine)(nil)
		check := func(m *machine, takes time.Duration, free bool) {
			t.Helper()
			log := m.open(t)
			begin := time.Now()
			err := log.CheckFree(t.Context())
			if (err == nil) != free || err != nil && fault.ClassOf(err) != fault.User || time.Since(begin) > takes {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			if err := log.Close(); err != nil {
				t.Error(err)
			}
		}
		own = newMachine(store)
		check(own, 0, true) // there is no mirror yet
		first := own.open(t)
		if err := first.Fence(1); err != nil {
			t.Fatal(err)
		}
		appendSteps(t, first, 0, 10)
		check(newMachine(store), time.Second, false)
		appendSteps(t, first, 10, 20) // nothing has happened to it
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		check(newMachine(store), 0, true)
		before, last := newMachine(store).open(t), own.open(t)
		if err := last.Fence(2); err != nil {
			t.Fatal(err)
		}
		if err := last.Close(); err != nil { // in order, since the other one looked
			t.Fatal(err)
		}
		if err := before.CheckFree(t.Context()); err != nil {
			t.Error(err)
		}
		if err := store.Put(t.Context(), "lease", []byte("one that was killed 7")); err != nil {
			t.Fatal(err)
		}
		check(newMachine(store), 2*time.Second, true)
		check(own, 0, true)
	})
}
