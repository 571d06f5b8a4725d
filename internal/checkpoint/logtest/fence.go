package logtest

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// again crashes the place, or closes the log, and opens it once more.
func (f *Fixture) again(t *testing.T, log checkpoint.Log) checkpoint.Log {
	t.Helper()
	if f.Crash != nil {
		f.Crash()
	} else {
		closeLog(t, log)
	}
	return f.open(t)
}

// checkFence: epochs rise, and what was fenced stays fenced.
func checkFence(t *testing.T, f *Fixture) {
	log := f.open(t)
	if got := log.Epoch(); got != 0 {
		t.Errorf("a new log has epoch %d", got)
	}
	for _, epoch := range []uint64{1, 2, 7} {
		if err := log.Fence(epoch); err != nil || log.Epoch() != epoch {
			t.Fatalf("Fence(%d): %v, and the epoch is %d", epoch, err, log.Epoch())
		}
		appendSteps(t, log, int64(epoch), int64(epoch)+1)
		if err := log.Truncate(0); err != nil {
			t.Fatal(err)
		}
		log = f.again(t, log)
		for _, stale := range []uint64{0, 1, epoch, math.MaxUint64} {
			if err := log.Fence(stale); !errors.Is(err, checkpoint.ErrOrder) || fault.ClassOf(err) != fault.Bug {
				t.Errorf("Fence(%d) after %d: %v, want ErrOrder", stale, epoch, err)
			}
		}
		if got := log.Epoch(); got != epoch {
			t.Fatalf("the epoch is %d, want %d", got, epoch)
		}
	}
}

// checkGenerations: generations come back by number, and none is changed.
func checkGenerations(t *testing.T, f *Fixture) {
	log := f.open(t)
	if got, err := log.Generations(); err != nil || len(got) > 0 {
		t.Fatalf("a new log has generations %v, %v", got, err)
	}
	want := []checkpoint.Generation{{Number: 0, Step: 9}, {Number: 1, Step: 0}, {Number: 2, Step: 40, Since: 1<<40 + 7}, {Number: 5, Step: 3}}
	for _, g := range want {
		for range 2 { // the second is a replay
			if err := log.SetGeneration(g); err != nil {
				t.Fatal(err)
			}
		}
	}
	appendSteps(t, log, 0, 4)
	if err := log.Truncate(2); err != nil {
		t.Fatal(err)
	}
	log = f.again(t, log)
	for _, c := range []struct {
		g    checkpoint.Generation
		want error
	}{
		{checkpoint.Generation{Number: 2, Step: 40, Since: 1<<40 + 7}, nil},
		{checkpoint.Generation{Number: 2, Step: 40}, checkpoint.ErrDiverged},
		{checkpoint.Generation{Number: 2, Step: 41}, checkpoint.ErrDiverged},
		{checkpoint.Generation{Number: 5, Step: 0}, checkpoint.ErrDiverged},
		{checkpoint.Generation{Number: 4, Step: 3}, checkpoint.ErrOrder},
		{checkpoint.Generation{Number: 6, Step: -1}, checkpoint.ErrOrder},
		{checkpoint.Generation{Number: math.MaxUint64, Step: 1}, checkpoint.ErrOrder},
	} {
		if err := log.SetGeneration(c.g); !errors.Is(err, c.want) {
			t.Errorf("SetGeneration(%v): %v, want %v", c.g, err, c.want)
		}
	}
	if got, err := log.Generations(); err != nil || !slices.Equal(got, want) {
		t.Errorf("generations %v, %v, want %v", got, err, want)
	}
	wantSteps(t, log, 0, 1)
}
