package steplog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
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

	said := make(lines, 100)
	opts.Standby, opts.Logger = true, slog.New(said)
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
	if line := <-said; !strings.Contains(line, "serves when there is a log that no other planner has open") || len(said) > 0 {
		t.Errorf("it says what it waits for in %q, and %d lines more", line, len(said))
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
				open := false
				opts.Open, opts.Shut = func() error { open = true; return nil }, func() { open = false }
				go func() {
					time.Sleep(late)
					next, err := Take(ctx, &opts)
					if err != nil || open != (next.log != nil) {
						t.Errorf("seed %d: %v, and its address is open: %v", seed, err, open)
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
	err := begin(t, &opts).Close()
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

// TestRefusedStart: planners that do not stand by are refused beside one that serves, even if that has nothing to write,
// as often as they try. Their folders stay as they are, whether they have a log or not. Where that planner was killed,
// its own folder goes on at once.
func TestRefusedStart(t *testing.T) {
	url, dir := "file://"+t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		machine := func() *Options {
			return &Options{Dir: "log", FS: vfs.NewMem(), Mirror: url, Logger: slog.New(slog.DiscardHandler)}
		}
		store, err := object.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		take := func(opts *Options) (Taken, error) {
			taken, err := Take(t.Context(), opts)
			if taken.log != nil {
				t.Cleanup(func() { _ = taken.log.Close() }) // a second time, unless a test failed
			}
			return taken, err
		}
		before, serves, empty := machine(), machine(), machine()
		serves.Dir, serves.FS = dir, nil
		first := begin(t, before)
		if err := store.Put(t.Context(), "lease", []byte("free")); err != nil {
			t.Fatal(err)
		}
		second, err := take(serves)
		if err != nil || second.Epoch != 2 {
			t.Fatalf("epoch %d, %v", second.Epoch, err)
		}
		if err := first.Append(1, []byte("never acknowledged"), nil); !errors.Is(err, checkpoint.ErrDeposed) {
			t.Fatal(err)
		}
		_ = first.Close() // it was deposed
		for _, opts := range []*Options{before, empty} {
			was := files(t, opts.FS, "")
			for try := range 3 {
				if _, err := take(opts); fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), "is being written by another planner") {
					t.Errorf("try %d: %v", try, err)
				}
				if now := files(t, opts.FS, ""); !maps.Equal(was, now) {
					t.Errorf("try %d: the folder has %q, had %q", try, slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(was)))
				}
			}
		}
		if err := second.log.Append(1, []byte("record"), nil); err != nil {
			t.Fatalf("the planner that serves: %v", err)
		}
		held, err := store.Get(t.Context(), "lease", object.Whole)
		if err := errors.Join(err, second.log.Close(), store.Put(t.Context(), "lease", held)); err != nil { // as if it was killed
			t.Fatal(err)
		}
		killed := time.Now()
		if second, err = take(serves); err != nil || second.Epoch != 3 || time.Since(killed) > 0 {
			t.Fatalf("after %v: epoch %d, %v", time.Since(killed), second.Epoch, err)
		}
		if err := second.log.Close(); err != nil {
			t.Error(err)
		}
		if third, err := take(before); err != nil || third.Epoch != 4 {
			t.Errorf("epoch %d, %v", third.Epoch, err)
		}
	})
}

// begin begins a log with a step.
func begin(t *testing.T, opts *Options) checkpoint.Log {
	t.Helper()
	from, err := Take(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	log, err := (&Writer{opts: *opts, taken: from}).openLog([32]byte{7})
	if err == nil {
		err = log.Append(0, []byte("record"), []byte("frame"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// files has the content of all files in a folder, by their paths; of folders a word.
func files(t *testing.T, disk vfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := disk.PathJoin(dir, name)
		if info, err := disk.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			all[path] = "folder"
			maps.Copy(all, files(t, disk, path))
			continue
		}
		f, err := disk.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		all[path] = string(data)
	}
	return all
}

// TestBegunAtOnce: of two planners that found no log when they started, one begins it. The other hears that it does not have
// it, whether the first one was there before it opened the log or came in between.
func TestBegunAtOnce(t *testing.T) {
	root := [32]byte{7}
	start := func(opts *Options) *Writer {
		taken, err := Take(t.Context(), opts)
		if err != nil || taken.Epoch != 1 {
			t.Fatalf("epoch %d, %v", taken.Epoch, err)
		}
		return &Writer{opts: *opts, taken: taken}
	}
	begin := func(w *Writer) checkpoint.Log {
		log, err := w.openLog(root)
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	want := func(what string, err error, words string) {
		if fault.ClassOf(err) != fault.Lost || !errors.Is(err, checkpoint.ErrDeposed) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: class %v, %v, want words of %q", what, fault.ClassOf(err), err, words)
		}
	}

	folder := &Options{Dir: "log", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)}
	first, second := start(folder), start(folder)
	log := begin(first)
	_, err := second.openLog(root)
	want("a folder that is in use", err, "has taken over the log since this one started, which ends: the log in log is open already, in ")
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = second.openLog(root)
	want("a folder", err, "(epoch 1) has taken over the log in log since")

	for _, between := range []bool{false, true} {
		url := "file://" + t.TempDir()
		machine := func() *Options {
			return &Options{Dir: "log", FS: vfs.NewMem(), Mirror: url, Logger: slog.New(slog.DiscardHandler)}
		}
		first, second := start(machine()), start(machine())
		var log checkpoint.Log
		if between {
			opened, err := second.opts.openLog(root)
			if err != nil {
				t.Fatal(err)
			}
			log = begin(first)
			want("a mirror, in between", errors.Join(second.fence(opened), opened.Close()), "(epoch 1) has taken over the mirror "+url+" since")
		} else {
			log = begin(first)
			_, err := second.openLog(root)
			want("a mirror", err, "(epoch 1) has taken over the mirror "+url+" since")
		}
		if err := errors.Join(log.Append(0, []byte("record"), []byte("frame")), log.Close()); err != nil {
			t.Errorf("the planner that has the log: %v", err)
		}
	}
}

// TestTakenOverWhileOpened: a log that another planner takes over while it is opened has stopped; any other error is one of opening.
func TestTakenOverWhileOpened(t *testing.T) {
	for _, err := range []error{nil, errors.New("the disk is full"), fmt.Errorf("another planner %w the log", checkpoint.ErrDeposed)} {
		var said control.Event
		w := &Writer{event: func(ev control.Event) { said = ev }}
		w.tell(control.LogOpened{Err: err})
		_, stopped := said.(control.LogStopped)
		if stopped != errors.Is(err, checkpoint.ErrDeposed) {
			t.Errorf("%v: %T", err, said)
		}
	}
}
