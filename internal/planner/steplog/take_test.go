package steplog

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
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
