package steplog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// TestStandbyRefused: a planner that stands by for a log which cannot be opened ends with the reason, and does not
// serve. Any other serves, to say it.
func TestStandbyRefused(t *testing.T) {
	opts := Options{Dir: "log", FS: vfs.NewMem()}
	log, err := checkpoint.Open("log", checkpoint.Options{FS: opts.FS})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.Append(0, []byte("record"), []byte("frame")), log.Close(), opts.FS.Remove("log/HIGHWATER")); err != nil {
		t.Fatal(err)
	}
	if taken, err := Take(t.Context(), &opts); taken.log != nil || taken.Epoch != 0 || !errors.Is(taken.Failed, checkpoint.ErrDamaged) || err != nil {
		t.Errorf("one that does not stand by: %+v, %v", taken, err)
	}
	opts.Standby = true
	if taken, err := Take(t.Context(), &opts); taken.log != nil || !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("one that stands by: %+v, %v", taken, err)
	}
}

// TestStandbyOutlasts: a planner that stands by goes on while the mirror, or a part of it, cannot be written or read, with
// one warning, and takes over when it can. One that does not stand by ends with the reason.
func TestStandbyOutlasts(t *testing.T) {
	for what, name := range map[string]string{"its probe": "probe", "the fence": "segment", "its key frame": "keyframe/0000000000000000"} {
		t.Run(what, func(t *testing.T) {
			folder := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				beginMirror(t, folder)
				path := filepath.Join(folder, name)
				_ = os.Rename(path, path+".aside")                            // if it is there
				if err := os.Symlink(filepath.Base(path), path); err != nil { // which leads to itself
					t.Fatal(err)
				}
				warned := make(lines, 100)
				opts := Options{Dir: "log", FS: vfs.NewMem(), Mirror: "file://" + folder, Logger: slog.New(warnings{warned})}
				start := func() (taken Taken, err error) {
					if err = opts.Prove(t.Context()); err == nil {
						taken, err = Take(t.Context(), &opts)
					}
					return taken, err
				}
				if _, err := start(); fault.ClassOf(err) != fault.Lost || !strings.Contains(fmt.Sprint(err), "too many levels of symbolic links") {
					t.Errorf("one that does not stand by: %v", err)
				}
				opts.Standby = true
				took := make(chan Taken)
				go func() {
					taken, err := start()
					if err != nil {
						t.Error(err)
					}
					took <- taken
				}()
				time.Sleep(10 * time.Minute) // of virtual time
				if len(warned) != 1 {
					t.Errorf("%d warnings", len(warned))
				}
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				_ = os.Rename(path+".aside", path)
				taken := <-took
				if taken.log == nil || taken.Epoch != 1 {
					t.Fatalf("when the mirror was there again: %+v", taken)
				}
				if err := errors.Join(taken.log.Append(1, []byte("record"), nil), taken.log.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestStandbyBlind: a planner that stands by says once that it cannot read the mirror, and once that it can again, for
// however long it could not; then it takes over.
func TestStandbyBlind(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		beginMirror(t, folder)
		lease := filepath.Join(folder, "lease")
		if err := os.Symlink("lease", lease); err != nil { // which leads to itself
			t.Fatal(err)
		}
		warned := make(lines, 100)
		opts := Options{Dir: "log", FS: vfs.NewMem(), Mirror: "file://" + folder, Logger: slog.New(warnings{warned}), Standby: true}
		took := make(chan Taken)
		go func() {
			taken, err := Take(t.Context(), &opts)
			if err != nil {
				t.Error(err)
			}
			took <- taken
		}()
		time.Sleep(10 * time.Minute) // of virtual time
		if line := <-warned; !strings.Contains(line, "cannot read the mirror now") || len(warned) > 0 {
			t.Errorf("it says %q, and %d warnings more", line, len(warned))
		}
		if err := os.Remove(lease); err != nil {
			t.Fatal(err)
		}
		taken := <-took
		if line := <-warned; !strings.Contains(line, "can be read again") || len(warned) > 0 {
			t.Errorf("then it says %q, and %d warnings more", line, len(warned))
		}
		if taken.log == nil {
			t.Fatalf("it did not take over: %+v", taken)
		}
		if err := taken.log.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOpensFirst: a planner that cannot listen takes the log from nobody, whether it stands by or not. One that stands by says so
// and takes it when it can; it is shut while it has not got it.
func TestOpensFirst(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		beginMirror(t, folder)
		warned, refused, open := make(lines, 100), errors.New("address already in use"), 0
		opts := Options{Dir: "log", FS: vfs.NewMem(), Mirror: "file://" + folder, Logger: slog.New(warnings{warned}), Shut: func() { open-- }}
		opts.Open = func() error { return refused }
		if taken, err := Take(t.Context(), &opts); taken.log != nil || !errors.Is(err, refused) {
			t.Errorf("one that does not stand by: %+v, %v", taken, err)
		}
		tries := 0
		opts.Standby, opts.Open = true, func() error {
			if tries++; tries < 4 {
				return refused
			}
			open++
			return nil
		}
		taken, err := Take(t.Context(), &opts)
		if err != nil || taken.Epoch != 1 || open != 1 || tries != 4 {
			t.Errorf("one that stands by: %+v, %v, open %d times, at try %d", taken, err, open, tries)
		}
		if len(warned) != 1 {
			t.Errorf("%d warnings", len(warned))
		}
		if err := taken.log.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestStandbyStopped: a planner that stands by and is stopped while the mirror fails has no error to tell.
func TestStandbyStopped(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		beginMirror(t, folder)
		if err := os.Symlink("segment", filepath.Join(folder, "segment")); err != nil {
			t.Fatal(err)
		}
		warned := make(lines, 100)
		opts := Options{Dir: "log", FS: vfs.NewMem(), Mirror: "file://" + folder, Logger: slog.New(warnings{warned}), Standby: true}
		ctx, stop := context.WithCancel(t.Context())
		go func() {
			<-warned
			stop()
		}()
		if taken, err := Take(ctx, &opts); taken.log != nil || err != nil {
			t.Errorf("%+v, %v", taken, err)
		}
	})
}

// beginMirror has a mirror begin with a key frame of a log with one step, and no segment.
func beginMirror(t *testing.T, folder string) {
	t.Helper()
	store, err := object.NewDirectory(folder)
	if err != nil {
		t.Fatal(err)
	}
	opts := checkpoint.Options{FS: vfs.NewMem(), Identity: [32]byte{7}, Logger: slog.New(slog.DiscardHandler)}
	local, err := checkpoint.Open("log", opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(local.Append(0, []byte("record"), []byte("frame")), local.Close()); err != nil {
		t.Fatal(err)
	}
	log, err := mirror.Open(t.Context(), mirror.Options{Dir: "log", Log: opts, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// lines is a logger's handler that keeps what is logged at the level info and above.
type lines chan string

func (l lines) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l lines) Handle(_ context.Context, r slog.Record) error {
	l <- r.Message
	return nil
}

func (l lines) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l lines) WithGroup(string) slog.Handler { return l }

// warnings keeps what is a warning.
type warnings struct{ lines }

func (w warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
