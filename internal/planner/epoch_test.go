package planner

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestEpochRises: each planner of a log has a higher epoch than the one before, which is in the
// log before anyone hears of it. One that stands by waits for the log.
func TestEpochRises(t *testing.T) {
	opts := Options{LogDir: "log", LogFS: vfs.NewMem()}
	root := [32]byte{7}
	from, err := takeLog(t.Context(), &opts)
	if err != nil || from.log != nil || from.epoch != 1 || from.resumes() {
		t.Fatalf("without a log: %+v, %v", from, err)
	}
	w := &logWriter{opts: opts, earlier: from}
	log, err := w.openLog(root)
	if err != nil || log.Epoch() != 1 {
		t.Fatalf("a log begins: %v", err)
	}
	if err := log.Append(0, []byte("record"), []byte("frame")); err != nil {
		t.Fatal(err)
	}

	opts.Standby = true
	taken := make(chan earlier)
	go func() {
		next, err := takeLog(t.Context(), &opts)
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
	if from.log == nil || from.epoch != 2 || from.log.Epoch() != 2 || !from.resumes() {
		t.Fatalf("after the first planner ended: %+v", from)
	}
	w = &logWriter{opts: opts, earlier: from}
	if _, err := w.openLog([32]byte{8}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "belongs to the job with identity") {
		t.Errorf("with other data: %v", err)
	}
}

// TestDeposed: a planner that somebody names a higher epoch ends, and says why; its own or a
// lower one is nothing.
func TestDeposed(t *testing.T) {
	p := &Planner{epoch: 3, inbox: make(chan input, 1), over: make(chan struct{}), done: make(chan struct{})}
	for _, epoch := range []uint64{0, 2, 3} {
		if err := p.checkEpoch(t.Context(), epoch, "loader a"); err != nil {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
	err := p.checkEpoch(t.Context(), 4, "loader a")
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "loader a has heard of the planner of epoch 4") {
		t.Errorf("epoch 4: %v", err)
	}
	if in, ok := (<-p.inbox).(deposed); !ok || in.error != err {
		t.Errorf("the loop hears %v", in)
	}
}
