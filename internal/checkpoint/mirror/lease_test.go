package mirror_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
	_, err := mirror.AwaitFree(ctx, mirror.Options{Store: store}, nil)
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

// kill ends a log as kill -9 does: its lease is not given back.
func kill(t *testing.T, log *mirror.Log, store object.Store) {
	t.Helper()
	held, err := store.Get(t.Context(), "lease", object.Whole)
	if err := errors.Join(err, log.Close(), store.Put(t.Context(), "lease", held)); err != nil {
		t.Fatal(err)
	}
}

// wantFree wants a mirror to be free for a machine after a time at most, or to be refused.
func wantFree(t *testing.T, m *machine, takes time.Duration, free bool) {
	t.Helper()
	begin := time.Now()
	_, err := mirror.CheckFree(t.Context(), m.options())
	if (err == nil) != free || err != nil && fault.ClassOf(err) != fault.User || time.Since(begin) > takes {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
}

// TestCheckFree: a mirror that is written from another folder is refused while its lease is renewed. One whose writer
// was killed is free after a while, and at once in that writer's folder. A folder that was brought to where the mirror
// stands is no writer's, and a copy of the writer's is another folder.
func TestCheckFree(t *testing.T) {
	folders := [3]string{t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "backup")}
	synctest.Test(t, func(t *testing.T) {
		store := &object.Memory{}
		own, copied := newMachine(store), newMachine(store)
		own.dir, copied.dir = folders[0], folders[1]
		backup := newMachine(store)
		backup.dir = folders[2]
		wantFree(t, own, 0, true) // there is no mirror yet
		first := own.open(t)
		if err := first.Fence(1); err != nil {
			t.Fatal(err)
		}
		appendSteps(t, first, 0, 10)
		if err := copied.open(t).Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(backup.dir, os.DirFS(own.dir)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			wantFree(t, newMachine(store), time.Second, false)
			wantFree(t, copied, time.Second, false)
			wantFree(t, backup, time.Second, false)
		}
		appendSteps(t, first, 10, 20) // nothing has happened to it
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		wantFree(t, newMachine(store), 0, true)
		last := own.open(t)
		if err := last.Fence(2); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		kill(t, last, store)
		wantFree(t, own, 0, true)
		wantFree(t, copied, 2*time.Second, true)
		elsewhere := copied.open(t)
		if err := elsewhere.Fence(3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		wantFree(t, own, time.Second, false) // it wrote, but not last
		kill(t, elsewhere, store)
		wantFree(t, own, 2*time.Second, true)
	})
}

// slowly is a store whose requests take a while.
type slowly struct {
	object.Store
	takes time.Duration
}

func (s slowly) Get(ctx context.Context, key string, r object.Range) ([]byte, error) {
	time.Sleep(s.takes / 2) // there, and back
	data, err := s.Store.Get(ctx, key, r)
	time.Sleep(s.takes / 2)
	return data, err
}

func (s slowly) Put(ctx context.Context, key string, data []byte) error {
	time.Sleep(s.takes)
	return s.Store.Put(ctx, key, data)
}

func (s slowly) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	time.Sleep(s.takes)
	return s.Store.PutIfAbsent(ctx, key, data)
}

func (s slowly) List(ctx context.Context, prefix, after string) ([]object.Info, error) {
	time.Sleep(s.takes)
	return s.Store.List(ctx, prefix, after)
}

// TestSlowStore: however long requests take, a mirror that is written is not taken for free, and one whose writer was
// killed is, in the end.
func TestSlowStore(t *testing.T) {
	for _, takes := range []time.Duration{0, 300 * time.Millisecond, 700 * time.Millisecond, 900 * time.Millisecond, 1600 * time.Millisecond} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := &object.Memory{}
				store := slowly{memory, takes}
				log := newMachine(store).open(t)
				if err := log.Fence(1); err != nil {
					t.Fatal(err)
				}
				for range 20 {
					time.Sleep(130 * time.Millisecond)
					wantFree(t, newMachine(store), time.Minute, false)
				}
				if took, free := awaitFree(t, store); free {
					t.Errorf("after %v the log was taken for one that nobody writes", took)
				}
				kill(t, log, memory)
				wantFree(t, newMachine(store), 2*time.Second+16*takes, true)
				if took, free := awaitFree(t, store); !free || took > 2*time.Second+16*takes {
					t.Errorf("its writer was killed, and it was free after %v: %v", took, free)
				}
			})
		})
	}
}

// away is a store that cannot be read for a while.
type away struct {
	object.Store
	until time.Time
}

func (a *away) Get(ctx context.Context, key string, r object.Range) ([]byte, error) {
	if time.Now().Before(a.until) {
		return nil, fault.Lostf("no route")
	}
	return a.Store.Get(ctx, key, r)
}

// TestAwayForAWhile: a store that was away is not slow. Who stands by takes over soon after it is back, and not after
// four times as long as it was away.
func TestAwayForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &object.Memory{}
		log := newMachine(store).open(t)
		if err := log.Fence(1); err != nil {
			t.Fatal(err)
		}
		kill(t, log, store)
		const gone = 15 * time.Second
		if took, free := awaitFree(t, object.Retry{Store: &away{store, time.Now().Add(gone)}}); !free || took > gone+5*time.Second {
			t.Errorf("the store was away for %v, and the log was free after %v: %v", gone, took, free)
		}
	})
}
