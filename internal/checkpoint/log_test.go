package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

var job = [32]byte{1, 2, 3}

// open opens a log that is closed with the test.
func open(t testing.TB, dir string, opts checkpoint.Options) checkpoint.Log {
	t.Helper()
	if opts.Identity == ([32]byte{}) {
		opts.Identity = job
	}
	log, err := checkpoint.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return log
}

func closeLog(t testing.TB, log checkpoint.Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func appendSteps(t testing.TB, log checkpoint.Log, from, to int64) {
	t.Helper()
	appendFramed(t, log, 256, from, to)
}

func appendFramed(t testing.TB, log checkpoint.Log, every, from, to int64) {
	t.Helper()
	for step := from; step < to; step++ {
		var frame []byte
		if checkpoint.Begins(log) || step%every == 0 {
			frame = frameOf(step)
		}
		if err := log.Append(step, recordOf(step), frame); err != nil {
			t.Fatal(err)
		}
	}
}

func recordOf(step int64) []byte { return fmt.Appendf(nil, "record of step %d", step) }
func frameOf(step int64) []byte  { return fmt.Appendf(nil, "frame of step %d", step) }

// records returns the steps from <= step < to, and fails unless they are as
// appendSteps wrote them.
func records(t testing.TB, log checkpoint.Log, from, to int64) []int64 {
	t.Helper()
	var steps []int64
	err := log.Records(from, to, func(step int64, record []byte) error {
		if !bytes.Equal(record, recordOf(step)) {
			t.Errorf("step %d has the record %q", step, record)
		}
		steps = append(steps, step)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

func wantSteps(t testing.TB, log checkpoint.Log, first, last int64) {
	t.Helper()
	gotFirst, ok1 := log.First()
	gotLast, ok2 := log.Last()
	if !ok1 || !ok2 || gotFirst != first || gotLast != last {
		t.Fatalf("the log holds steps %d (%v) to %d (%v), want %d to %d", gotFirst, ok1, gotLast, ok2, first, last)
	}
	steps := records(t, log, 0, math.MaxInt64)
	if len(steps) != int(last-first+1) || steps[0] != first {
		t.Fatalf("Records gave steps %v, want %d to %d", steps, first, last)
	}
}

// wantError checks the class of an error and that it says all of words.
func wantError(t testing.TB, err error, class fault.Class, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one of class %v about %q", class, words)
	}
	if got := fault.ClassOf(err); got != class {
		t.Errorf("class %v, want %v: %v", got, class, err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Run("another job", func(t *testing.T) {
		fs := vfs.NewMem()
		closeLog(t, open(t, "state/log", checkpoint.Options{FS: fs}))
		_, err := checkpoint.Open("state/log", checkpoint.Options{FS: fs, Identity: [32]byte{0xab}})
		wantError(t, err, fault.User, "state/log", fmt.Sprintf("%x", job), fmt.Sprintf("%x", [32]byte{0xab}), "folder of its own")
		open(t, "state/log", checkpoint.Options{FS: fs}) // the refusal let go of it
	})
	t.Run("a newer format", func(t *testing.T) {
		fs := vfs.NewMem()
		closeLog(t, open(t, "log", checkpoint.Options{FS: fs}))
		setKey(t, fs, "mformat", []byte{0, 0, 0, 9})
		_, err := checkpoint.Open("log", checkpoint.Options{FS: fs, Identity: job})
		wantError(t, err, fault.User, "log", "version 9", "versions 4 and 5")
	})
	t.Run("an older format", func(t *testing.T) {
		fs := vfs.NewMem()
		setKey(t, fs, "mformat", []byte{0, 0, 0, 3})
		_, err := checkpoint.Open("log", checkpoint.Options{FS: fs, Identity: job})
		wantError(t, err, fault.User, "log", "version 3", "versions 4 and 5", "the version that wrote it", "resume it from a token")
	})
	t.Run("a damaged format", func(t *testing.T) {
		fs := vfs.NewMem()
		closeLog(t, open(t, "log", checkpoint.Options{FS: fs}))
		setKey(t, fs, "mformat", []byte{9})
		_, err := checkpoint.Open("log", checkpoint.Options{FS: fs, Identity: job})
		wantError(t, err, fault.User, "log", "damaged")
	})
	t.Run("a foreign database", func(t *testing.T) {
		fs := vfs.NewMem()
		setKey(t, fs, "somebody's", []byte("data"))
		_, err := checkpoint.Open("log", checkpoint.Options{FS: fs, Identity: job})
		wantError(t, err, fault.User, "log", "not a log of Millrace")
	})
	t.Run("a file in its place", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := checkpoint.Open(path, checkpoint.Options{Identity: job})
		wantError(t, err, fault.User, path)
	})
	t.Run("a folder that is not to be written", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may write everywhere")
		}
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
		_, err := checkpoint.Open(filepath.Join(dir, "log"), checkpoint.Options{Identity: job})
		wantError(t, err, fault.User, dir)
	})
}

// setKey writes one key with Pebble alone.
func setKey(t *testing.T, fs vfs.FS, key string, value []byte) {
	t.Helper()
	db, err := pebble.Open("log", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Set([]byte(key), value, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}

type quiet struct{}

func (quiet) Infof(string, ...any)         {}
func (quiet) Errorf(string, ...any)        {}
func (quiet) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }

func TestTwoOpens(t *testing.T) {
	t.Run("in memory", func(t *testing.T) {
		fs := vfs.NewMem()
		open(t, "log", checkpoint.Options{FS: fs})
		_, err := checkpoint.Open("log", checkpoint.Options{FS: fs, Identity: job})
		wantError(t, err, fault.User, "log", "open already")
	})
	t.Run("in this process", func(t *testing.T) {
		dir := t.TempDir()
		log := open(t, dir, checkpoint.Options{})
		t.Chdir(dir)
		for _, name := range []string{dir, ".", dir + "/./"} {
			_, err := checkpoint.Open(name, checkpoint.Options{Identity: job})
			wantError(t, err, fault.User, dir, "open already")
		}
		appendSteps(t, log, 0, 3) // the first one is not disturbed
	})
	t.Run("in another process", func(t *testing.T) {
		if dir := os.Getenv("CHECKPOINT_TEST_DIR"); dir != "" {
			_, err := checkpoint.Open(dir, checkpoint.Options{Identity: job})
			wantError(t, err, fault.User, dir, "open already")
			return
		}
		dir := t.TempDir()
		log := open(t, dir, checkpoint.Options{})
		other := exec.Command(os.Args[0], "-test.run=^TestTwoOpens$/^in_another_process$", "-test.v")
		other.Env = append(os.Environ(), "CHECKPOINT_TEST_DIR="+dir)
		if out, err := other.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("PASS")) {
			t.Errorf("the other process: %v\n%s", err, out)
		}
		appendSteps(t, log, 0, 3)
	})
}

// getKey reads one key with Pebble alone.
func getKey(t *testing.T, fs vfs.FS, key string) []byte {
	t.Helper()
	db, err := pebble.Open("log", &pebble.Options{FS: fs, ReadOnly: true, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	value, closer, err := db.Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	value = bytes.Clone(value)
	if err := errors.Join(closer.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	return value
}
