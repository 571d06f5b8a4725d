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
func open(t testing.TB, dir string, opts checkpoint.Options) *checkpoint.Log {
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

func closeLog(t testing.TB, log *checkpoint.Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

func appendSteps(t testing.TB, log *checkpoint.Log, from, to int64) {
	t.Helper()
	for step := from; step < to; step++ {
		var frame []byte
		if log.FrameDue(step) {
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
func records(t testing.TB, log *checkpoint.Log, from, to int64) []int64 {
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

func wantSteps(t testing.TB, log *checkpoint.Log, first, last int64) {
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

func TestLogKeepsStepsOverReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	log := open(t, dir, checkpoint.Options{KeyFrameEvery: 4})
	if _, ok := log.Last(); ok {
		t.Error("a new log has a last step")
	}
	if _, _, ok, err := log.Frame(math.MaxInt64); ok || err != nil {
		t.Errorf("a new log has a frame (error %v)", err)
	}
	appendSteps(t, log, 6, 20) // a job may resume at any step
	if err := log.SetDigest(7, [32]byte{7}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, log)

	log = open(t, dir, checkpoint.Options{KeyFrameEvery: 4})
	wantSteps(t, log, 6, 19)
	for _, test := range []struct {
		atOrBefore, step int64
		ok               bool
	}{{5, 0, false}, {-3, 0, false}, {6, 6, true}, {7, 6, true}, {8, 8, true}, {15, 12, true}, {19, 16, true}, {math.MaxInt64, 16, true}} {
		step, frame, ok, err := log.Frame(test.atOrBefore)
		if err != nil || ok != test.ok || step != test.step || ok && !bytes.Equal(frame, frameOf(step)) {
			t.Errorf("Frame(%d) = step %d, %q, %v, %v; want step %d, %v", test.atOrBefore, step, frame, ok, err, test.step, test.ok)
		}
	}
	if digest, ok, err := log.ReadDigest(7); digest != [32]byte{7} || !ok || err != nil {
		t.Errorf("ReadDigest(7) = %x, %v, %v", digest, ok, err)
	}
	for _, step := range []int64{-1, 5, 8, 20} {
		if _, ok, err := log.ReadDigest(step); ok || err != nil {
			t.Errorf("ReadDigest(%d): %v, %v; want none", step, ok, err)
		}
	}
	appendSteps(t, log, 20, 22)
	wantSteps(t, log, 6, 21)
}

func TestRecordsRangesAndErrors(t *testing.T) {
	log := open(t, "log", checkpoint.Options{FS: vfs.NewMem()})
	appendSteps(t, log, 10, 20)
	for _, test := range []struct {
		from, to int64
		want     string
	}{
		{0, 100, "[10 11 12 13 14 15 16 17 18 19]"}, {12, 14, "[12 13]"}, {19, 20, "[19]"},
		{-5, 11, "[10]"}, {20, 30, "[]"}, {0, 10, "[]"}, {14, 12, "[]"}, {math.MinInt64, math.MaxInt64, "[10 11 12 13 14 15 16 17 18 19]"},
	} {
		if got := fmt.Sprint(records(t, log, test.from, test.to)); got != test.want {
			t.Errorf("Records(%d, %d) gave %s, want %s", test.from, test.to, got, test.want)
		}
	}
	stop := errors.New("enough")
	seen := 0
	err := log.Records(10, 20, func(step int64, _ []byte) error {
		if seen++; step == 12 {
			return stop
		}
		return nil
	})
	if err != stop || seen != 3 {
		t.Errorf("after %d records: %v, want the callback's own error after 3", seen, err)
	}
}

func TestAppendOrder(t *testing.T) {
	log := open(t, "log", checkpoint.Options{FS: vfs.NewMem()})
	for _, step := range []int64{-1, math.MaxInt64} {
		if err := log.Append(step, nil, nil); !errors.Is(err, checkpoint.ErrOrder) {
			t.Errorf("Append(%d) on an empty log: %v, want ErrOrder", step, err)
		}
	}
	appendSteps(t, log, 5, 10)
	for _, step := range []int64{0, 4, 11, 100} {
		err := log.Append(step, recordOf(step), nil)
		if !errors.Is(err, checkpoint.ErrOrder) || fault.ClassOf(err) != fault.Bug {
			t.Errorf("Append(%d) on a log of 5 to 9: %v, want ErrOrder", step, err)
		}
	}
	for _, step := range []int64{4, 10} {
		if err := log.SetDigest(step, [32]byte{}); !errors.Is(err, checkpoint.ErrOrder) {
			t.Errorf("SetDigest(%d): %v, want ErrOrder", step, err)
		}
	}
	wantSteps(t, log, 5, 9)
}

func TestAppendReplays(t *testing.T) {
	log := open(t, "log", checkpoint.Options{FS: vfs.NewMem()})
	appendSteps(t, log, 0, 3) // a frame with step 0
	if err := log.SetDigest(1, [32]byte{1}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		log.Append(1, recordOf(1), nil),
		log.Append(0, recordOf(0), nil), // no word about the frame there is
		log.Append(0, recordOf(0), frameOf(0)),
		log.Append(2, recordOf(2), frameOf(2)), // a frame where there was none
		log.Append(2, recordOf(2), frameOf(2)),
		log.SetDigest(1, [32]byte{1}),
	} {
		if err != nil {
			t.Errorf("an exact replay: %v", err)
		}
	}
	for _, err := range []error{
		log.Append(1, []byte("record of step X"), nil),
		log.Append(1, nil, nil),
		log.Append(1, append(recordOf(1), 0), nil),
		log.Append(0, recordOf(0), []byte{}),
		log.Append(2, recordOf(2), []byte("other")),
		log.SetDigest(1, [32]byte{2}),
	} {
		if !errors.Is(err, checkpoint.ErrDiverged) || !strings.Contains(err.Error(), "step ") {
			t.Errorf("a replay with other bytes: %v, want ErrDiverged with the step", err)
		}
	}
	if step, frame, ok, err := log.Frame(2); step != 2 || !bytes.Equal(frame, frameOf(2)) || !ok || err != nil {
		t.Errorf("Frame(2) = %d, %q, %v, %v", step, frame, ok, err)
	}
	wantSteps(t, log, 0, 2)
}

func TestEmptyAndLargeValues(t *testing.T) {
	dir := t.TempDir()
	log := open(t, dir, checkpoint.Options{})
	large := bytes.Repeat([]byte("a frame larger than Pebble's memory table. "), 1<<17) // 5.6 MB
	for step, frame := range [][]byte{nil, {}, large, nil} {
		if err := log.Append(int64(step), nil, frame); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, log)
	log = open(t, dir, checkpoint.Options{})
	if step, frame, ok, err := log.Frame(1); step != 1 || len(frame) != 0 || frame == nil || !ok || err != nil {
		t.Errorf("the empty frame: %d, %v, %v, %v", step, frame, ok, err)
	}
	if step, frame, ok, err := log.Frame(3); step != 2 || !bytes.Equal(frame, large) || !ok || err != nil {
		t.Errorf("the large frame: %d, %d bytes, %v, %v", step, len(frame), ok, err)
	}
	if err := log.Append(4, make([]byte, checkpoint.MaxBytes), []byte{0}); err == nil {
		t.Error("a record and frame above MaxBytes were taken")
	}
}

func TestTruncate(t *testing.T) {
	for _, test := range []struct {
		from, last int64 // last < 0: nothing is left
	}{{20, 19}, {25, 19}, {19, 18}, {11, 10}, {10, -1}, {3, -1}, {-7, -1}} {
		fs := vfs.NewMem()
		log := open(t, "log", checkpoint.Options{FS: fs, KeyFrameEvery: 5})
		appendSteps(t, log, 10, 20)
		for step := int64(10); step < 20; step++ {
			if err := log.SetDigest(step, [32]byte{byte(step)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Truncate(test.from); err != nil {
			t.Fatal(err)
		}
		closeLog(t, log)
		log = open(t, "log", checkpoint.Options{FS: fs, KeyFrameEvery: 5})
		last, ok := log.Last()
		if ok != (test.last >= 0) || ok && last != test.last {
			t.Fatalf("Truncate(%d) left the last step %d (%v), want %d", test.from, last, ok, test.last)
		}
		if step, _, ok, err := log.Frame(math.MaxInt64); err != nil || ok && step > test.last {
			t.Errorf("Truncate(%d) left a frame of step %d (error %v)", test.from, step, err)
		}
		next := max(test.last, 9) + 1
		other := []byte("the record of another branch")
		if err := log.Append(next, other, nil); next < 20 && err != nil {
			t.Errorf("Append(%d) after Truncate(%d): %v", next, test.from, err)
		}
		if _, ok, err := log.ReadDigest(next); ok || err != nil {
			t.Errorf("Truncate(%d) left the digest of step %d (error %v)", test.from, next, err)
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
		wantError(t, err, fault.User, "log", "version 9", "version 4")
	})
	t.Run("an older format", func(t *testing.T) {
		fs := vfs.NewMem()
		setKey(t, fs, "mformat", []byte{0, 0, 0, 3})
		_, err := checkpoint.Open("log", checkpoint.Options{FS: fs, Identity: job})
		wantError(t, err, fault.User, "log", "version 3", "version 4", "the version that wrote it", "resume it from a token")
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
	t.Run("a negative key frame distance", func(t *testing.T) {
		_, err := checkpoint.Open("log", checkpoint.Options{FS: vfs.NewMem(), KeyFrameEvery: -1})
		wantError(t, err, fault.User, "-1")
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

func TestClosed(t *testing.T) {
	log := open(t, "log", checkpoint.Options{FS: vfs.NewMem()})
	appendSteps(t, log, 0, 3)
	closeLog(t, log)
	closeLog(t, log)
	_, _, _, errFrame := log.Frame(1)
	_, _, errDigest := log.ReadDigest(1)
	for _, err := range []error{
		log.Append(3, nil, nil), log.SetDigest(1, [32]byte{}), log.Truncate(1), errFrame, errDigest,
		log.Records(0, 3, func(int64, []byte) error { return nil }),
	} {
		if !errors.Is(err, checkpoint.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	}
}
