package checkpoint_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
)

// TestGoOn: what a log writes to go on at a step says nothing of where this copy of it begins.
func TestGoOn(t *testing.T) {
	known := [32]byte{9}
	for what, c := range map[string]struct {
		from   int64 // the first step that the copy has, of those up to 19
		left   int64 // it was truncated there since; 0: it was not
		step   int64
		digest [32]byte // of the step before
		want   int64
	}{
		"it has what leads there":             {8, 0, 15, known, 15},
		"it has other steps before":           {8, 0, 15, [32]byte{1}, 0},
		"it begins after the step":            {8, 0, 3, known, 0},
		"it begins at the step":               {8, 0, 8, known, 0},
		"it has the steps from 0 on":          {0, 0, 15, [32]byte{1}, 0},
		"the job begins again":                {0, 0, 0, [32]byte{}, 0},
		"no step is left, and another copy's": {8, 5, 3, known, 0},
	} {
		log, err := new(memlog.Store).Open(checkpoint.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if ops, err := checkpoint.GoOn(log, c.step, c.digest); len(ops) > 0 || err != nil {
			t.Errorf("%s, and nothing was ever written: %v, %v", what, ops, err)
		}
		for step := c.from; step < 20; step++ {
			if err := errors.Join(log.Append(step, nil, nil), log.SetDigest(step, known)); err != nil {
				t.Fatal(err)
			}
		}
		if c.left > 0 {
			if err := log.Truncate(c.left); err != nil {
				t.Fatal(err)
			}
		}
		ops, err := checkpoint.GoOn(log, c.step, c.digest)
		if err != nil || !slices.Equal(ops, []checkpoint.Op{checkpoint.Truncate{From: c.want}}) {
			t.Errorf("%s: %v, %v", what, ops, err)
		}
	}
}

// TestFollowLeftAll: an earlier build said by the first step of its copy that all was left. Where the history of a log
// has more, the step that followed says it, which came with a key frame.
func TestFollowLeftAll(t *testing.T) {
	h := checkpoint.NewHistory()
	for step := range int64(20) {
		h.Follow(checkpoint.Append{Step: step})
	}
	h.Follow(checkpoint.Truncate{From: 8})
	h.Follow(checkpoint.Append{Step: 6}) // a planner that goes on writes what it has once more
	for step := int64(5); step < 12; step++ {
		if branch, _, ok := h.Follow(checkpoint.Append{Step: step, Frame: []byte("frame")}); branch != 1 || !ok {
			t.Errorf("step %d is branch %d's own: %v", step, branch, ok)
		}
	}
	if want := (checkpoint.Branch{Number: 1, Parent: 1, From: 5, Next: 12}); h[1] != want {
		t.Errorf("%v, want %v", h[1], want)
	}
}
