package main

import (
	"math"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/planner/token"
	"github.com/millrace-data/millrace/jobspec"
)

// TestWriteLog: the records of the log that is written lead from its key frames to the position of
// the token, as those of a planner do.
func TestWriteLog(t *testing.T) {
	const steps = 3*everyFrame + 100
	dir := t.TempDir()
	path, err := writeJob(dir, 40, 100, smallBatch)
	if err != nil {
		t.Fatal(err)
	}
	job, err := jobspec.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	saved, err := writeLog(t.Context(), job, dir+"/log", steps)
	if err != nil {
		t.Fatal(err)
	}
	open, err := indexed(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	log, err := checkpoint.Open(dir+"/log", checkpoint.Options{Identity: open.Root, ReadOnly: true, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if last, _ := log.Last(); last != steps-1 {
		t.Fatalf("the log ends with step %d", last)
	}
	want, err := token.Decode(open.Job, saved)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []int64{math.MaxInt64, 700, 0} {
		from, frame, ok, err := log.Frame(before)
		if err != nil || !ok {
			t.Fatalf("a key frame before step %d: %v, %v", before, ok, err)
		}
		at, err := token.Decode(open.Job, frame)
		if err != nil {
			t.Fatal(err)
		}
		got, err := token.Replay(&open.Plan, at.State, false, func(each func(int64, []byte) error) error {
			return log.Records(from, steps-back, each)
		})
		if err != nil || !got.Same(want.State) {
			t.Errorf("from the key frame of step %d: %+v, %v; want %+v", from, got, err, want.State)
		}
	}
}
