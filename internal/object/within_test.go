package object

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestWithin: a call that does not come back is given up: after a while, later if it is repeated, and soon if its caller ends.
// One that comes back in time is not.
func TestWithin(t *testing.T) {
	for name, c := range map[string]struct {
		repeated, ended bool
		takes, gone     time.Duration
		class           fault.Class
	}{
		"soon enough":           {false, false, defaultSilence - time.Second, defaultSilence - time.Second, fault.Bug},
		"too long":              {false, false, time.Hour, defaultSilence, fault.Lost},
		"repeated, soon enough": {true, false, 20 * time.Second, 20 * time.Second, fault.Bug},
		"repeated, too long":    {true, false, time.Hour, patience * defaultSilence, fault.Lost},
		"nobody waits any more": {false, true, time.Hour, endGrace, fault.Lost},
		"a moment later":        {false, true, endGrace / 2, endGrace / 2, fault.Bug},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancel(t.Context())
				defer end()
				if c.repeated {
					ctx = patient(ctx)
				}
				if c.ended {
					end()
				}
				calls, began := &calls{limit: defaultSilence}, time.Now()
				n, err := within(ctx, calls, func() (int, error) {
					time.Sleep(c.takes)
					return 3, nil
				})
				if class := fault.ClassOf(err); class != c.class || (err == nil) != (n == 3) || time.Since(began) != c.gone {
					t.Errorf("after %v: %d, %v", time.Since(began), n, err)
				}
				if hung := calls.hung.Load(); (hung == 1) != (err != nil) {
					t.Errorf("%d calls hang", hung)
				}
				time.Sleep(2 * time.Hour)
				if calls.hung.Load() != 0 {
					t.Error("a call that came back counts as one that hangs")
				}
			})
		})
	}
}

// TestHungBounded: however often a file system that hangs is asked, some calls wait for it and no more; when it
// answers again, it is asked again.
func TestHungBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var began atomic.Int64
		hangs := make(chan struct{})
		c := &calls{limit: defaultSilence}
		ask := func() error {
			_, err := within(t.Context(), c, func() (int, error) {
				began.Add(1)
				<-hangs
				return 0, nil
			})
			return err
		}
		for range 10 * mostHung {
			if err := ask(); fault.ClassOf(err) != fault.Lost {
				t.Fatal(err)
			}
		}
		if n := began.Load(); n != mostHung {
			t.Errorf("%d calls wait", n)
		}
		close(hangs)
		synctest.Wait()
		if err := ask(); err != nil {
			t.Error(err)
		}
	})
}

// TestDirectoryHangs: a file that cannot be opened, here a pipe which nobody writes, is given up, and others are read.
func TestDirectoryHangs(t *testing.T) {
	d, err := NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Put(t.Context(), "a", []byte("text")), syscall.Mkfifo(filepath.Join(d.root, "pipe"), 0o600)); err != nil {
		t.Fatal(err)
	}
	d.calls.limit = 10 * time.Millisecond // nothing is too slow for a test that wants an error
	if _, err := d.Get(t.Context(), "pipe", Whole); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "reading pipe in file://"+d.root+": the file system has not answered for 10ms") {
		t.Error(err)
	}
	d.calls.limit = time.Minute
	if data, err := d.Get(t.Context(), "a", Whole); string(data) != "text" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	pipe, err := os.OpenFile(filepath.Join(d.root, "pipe"), os.O_RDWR, 0) // so that the call comes back
	if err != nil {
		t.Fatal(err)
	}
	for d.calls.hung.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := pipe.Close(); err != nil {
		t.Error(err)
	}
}

// TestLateWrite: a write that was given up may be done later, with the bytes that it was given.
func TestLateWrite(t *testing.T) {
	d, err := NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	goesOn, data := make(chan struct{}), []byte("text")
	d.calls.limit = 10 * time.Millisecond
	err = d.write(t.Context(), "a", data, func(from, to string) error {
		<-goesOn
		return os.Link(from, to)
	})
	if fault.ClassOf(err) != fault.Lost {
		t.Fatal(err)
	}
	copy(data, "else")
	d.calls.limit = time.Minute
	close(goesOn)
	for d.calls.hung.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
	if found, err := d.Get(t.Context(), "a", Whole); string(found) != "text" || err != nil {
		t.Errorf("%q, %v", found, err)
	}
}
