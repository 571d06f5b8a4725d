package steplog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/planner/control"
)

// TestEpochRises: each planner of a log has a higher epoch than the one before, which is in the
// log before anyone hears of it. One that stands by waits for the log.
func TestEpochRises(t *testing.T) {
	opts := Options{Dir: "log", FS: vfs.NewMem()}
	root := [32]byte{7}
	from, err := Take(t.Context(), &opts)
	if err != nil || from.log != nil || from.Epoch != 1 || from.Resumes() {
		t.Fatalf("without a log: %+v, %v", from, err)
	}
	w := &Writer{opts: opts, taken: from}
	log, err := w.openLog(root)
	if err != nil || log.Epoch() != 1 {
		t.Fatalf("a log begins: %v", err)
	}
	if err := log.Append(0, []byte("record"), []byte("frame")); err != nil {
		t.Fatal(err)
	}

	opts.Standby = true
	taken := make(chan Taken)
	go func() {
		next, err := Take(t.Context(), &opts)
		if err != nil {
			t.Error(err)
		}
		taken <- next
	}()
	select {
	case <-taken:
		t.Fatal("a planner took over while another one has the log")
	case <-time.After(4 * standbyEvery):
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	from = <-taken
	if from.log == nil || from.Epoch != 2 || from.log.Epoch() != 2 || !from.Resumes() {
		t.Fatalf("after the first planner ended: %+v", from)
	}
	w = &Writer{opts: opts, taken: from}
	if _, err := w.openLog([32]byte{8}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "belongs to the job with identity") {
		t.Errorf("with other data: %v", err)
	}
}

// TestStandbysTogether: of planners that stand by for one that ended, or fell silent, one takes over,
// whenever each of them looks and however slowly it reads. The others stand by for that one.
func TestStandbysTogether(t *testing.T) {
	const standbys = 3
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 0))
		mirror := "file://" + t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			first := Options{Dir: "log", FS: vfs.NewMem(), Mirror: mirror, Logger: slog.New(slog.DiscardHandler)}
			endFirst(t, first, seed%2 == 0)
			ctx, stop := context.WithCancel(t.Context())
			took := make(chan Taken, standbys)
			for range standbys {
				late, slow := time.Duration(rng.IntN(400))*time.Millisecond, time.Duration(rng.IntN(400))*time.Millisecond
				opts := Options{Dir: "log", FS: vfs.NewMem(), Mirror: mirror, Standby: true, Logger: slog.New(pausing{first.Logger.Handler(), slow})}
				go func() {
					time.Sleep(late)
					next, err := Take(ctx, &opts)
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					took <- next
				}()
			}
			leader := <-took
			time.Sleep(5 * time.Second) // in which it renews its lease
			if err := leader.log.Append(1, []byte("record"), []byte("frame")); err != nil || leader.Epoch != 2 {
				t.Errorf("seed %d: the planner of epoch %d took over, and then: %v", seed, leader.Epoch, err)
			}
			if len(took) > 0 {
				t.Errorf("seed %d: %d more took over", seed, len(took))
			}
			stop()
			for range standbys - 1 {
				if next := <-took; next.log != nil {
					_ = next.log.Close() // it took over, as was said above
				}
			}
			if err := leader.log.Close(); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
	}
}

// pausing is the log of a planner that is slow between its decision to take over and what follows.
type pausing struct {
	slog.Handler
	pause time.Duration
}

func (p pausing) Enabled(context.Context, slog.Level) bool { return true }

func (p pausing) Handle(_ context.Context, r slog.Record) error {
	if r.Message == msgFree {
		time.Sleep(p.pause)
	}
	return nil
}

// endFirst has a planner write a log and end, in order or by falling silent.
func endFirst(t *testing.T, opts Options, inOrder bool) {
	t.Helper()
	from, err := Take(t.Context(), &opts)
	if err != nil {
		t.Fatal(err)
	}
	log, err := (&Writer{opts: opts, taken: from}).openLog([32]byte{7})
	if err == nil {
		err = errors.Join(log.Append(0, []byte("record"), []byte("frame")), log.Close())
	}
	if err == nil && !inOrder {
		var store object.Store
		if store, err = object.Open(opts.Mirror); err == nil {
			err = store.Put(t.Context(), "lease", []byte("the last one"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeposed: that another planner took the log over is no failure of the job, and any other error
// of the log is.
func TestDeposed(t *testing.T) {
	taken := fmt.Errorf("another planner %w the log", checkpoint.ErrDeposed)
	for _, ev := range []control.Event{control.Persisted{Err: taken}, control.LogRead{Err: taken}, control.LogOpened{Err: taken}} {
		if err := Deposed(ev); err != taken {
			t.Errorf("%T: %v", ev, err)
		}
	}
	for _, ev := range []control.Event{control.Persisted{Err: errors.New("the disk is full")}, control.Persisted{}, control.Idle{}} {
		if err := Deposed(ev); err != nil {
			t.Errorf("%T: %v", ev, err)
		}
	}
}
