// Package logtest is the conformance suite of checkpoint.Log: whatever keeps the log of
// a job runs it.
package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// Fixture is a place for one log, with nothing in it yet.
type Fixture struct {
	// Open opens the log, or begins it, with these options but for where it is.
	Open func(opts checkpoint.Options) (checkpoint.Log, error)
	// Crash is what happens to the place when the machine stops and starts again, while
	// a log is open. It may lose digests only. nil if nothing can be lost.
	Crash func()
	// Mirrored says that the log keeps places of its own: the suite leaves them alone.
	Mirrored bool
}

// Job is the identity of the logs that the suite opens.
var Job = [32]byte{1, 2, 3}

// Run checks the log that fresh makes a place for, once per subtest.
func Run(t *testing.T, fresh func(t *testing.T) *Fixture) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(*testing.T, *Fixture)
	}{
		{"empty", checkEmpty},
		{"reopen", checkReopen},
		{"records", checkRecords},
		{"order", checkOrder},
		{"replay", checkReplay},
		{"sizes", checkSizes},
		{"truncate", checkTruncate},
		{"branches", checkBranches},
		{"forks", checkForks},
		{"trim", checkTrim},
		{"changes", checkChanges},
		{"groups", checkGroups},
		{"place", checkPlace},
		{"fence", checkFence},
		{"generations", checkGenerations},
		{"copies", checkCopies},
		{"whose", checkWhose},
		{"read only", checkReadOnly},
		{"closed", checkClosed},
		{"readers", checkReaders},
		{"writers", checkWriters},
		{"close waits", checkCloseWaits},
		{"model", checkModel},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, fresh(t)) })
	}
}

// open opens a log that is closed with the test. One that was left as a crash leaves it may
// have found by then that another one took over.
func (f *Fixture) open(t *testing.T) checkpoint.Log {
	t.Helper()
	log, err := f.Open(checkpoint.Options{Identity: Job})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil && !errors.Is(err, checkpoint.ErrDeposed) {
			t.Error(err)
		}
	})
	return log
}

func closeLog(t *testing.T, log checkpoint.Reader) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// appendSteps appends steps with a key frame at each multiple of 256.
func appendSteps(t *testing.T, log checkpoint.Log, from, to int64) {
	t.Helper()
	appendFramed(t, log, 256, from, to)
}

// appendFramed appends steps, those that begin a log or a branch, and multiples of every, with
// a key frame.
func appendFramed(t *testing.T, log checkpoint.Log, every, from, to int64) {
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
func records(t *testing.T, log checkpoint.Reader, from, to int64) []int64 {
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

func wantSteps(t *testing.T, log checkpoint.Reader, first, last int64) {
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

func wantUser(t *testing.T, err error, word string) {
	t.Helper()
	if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v, want an error of class user that says %q", err, word)
	}
}

func checkEmpty(t *testing.T, f *Fixture) {
	log := f.open(t)
	_, last := log.Last()
	_, first := log.First()
	_, _, framed, err := log.Frame(math.MaxInt64)
	changes, err2 := log.Changes()
	if first || last || framed || err != nil || err2 != nil || len(changes) > 0 || !checkpoint.Begins(log) || log.Err() != nil {
		t.Errorf("a new log has a step (%v, %v), a frame (%v) or changes %q, or an error (%v, %v, %v)", first, last, framed, changes, err, err2, log.Err())
	}
	select {
	case <-log.Stopped():
		t.Error("a new log has stopped")
	default:
	}
}

func checkReopen(t *testing.T, f *Fixture) {
	log := f.open(t)
	appendFramed(t, log, 4, 6, 20) // a job may resume at any step
	if err := log.SetDigest(7, [32]byte{7}); err != nil {
		t.Fatal(err)
	}
	closeLog(t, log)

	log = f.open(t)
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
