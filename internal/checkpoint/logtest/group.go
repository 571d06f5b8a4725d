package logtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

func step(n int64) checkpoint.Append {
	return checkpoint.Append{Step: n, Record: recordOf(n), Frame: nil}
}

// checkGroups: a group is done in order, each operation on what those before it left, and
// all of it or nothing.
func checkGroups(t *testing.T, f *Fixture) {
	log := f.open(t)
	if err := log.Write(); err != nil {
		t.Errorf("no operation: %v", err)
	}
	whole := []checkpoint.Op{
		checkpoint.Append{Step: 5, Record: recordOf(5), Frame: frameOf(5)}, step(6), step(7), checkpoint.AddChange{Change: []byte("one")},
		checkpoint.SetDigest{Step: 7, Digest: [32]byte{7}}, checkpoint.SetDigest{Step: 6, Digest: [32]byte{6}}, step(6),
		checkpoint.Truncate{From: 7}, step(7), step(8), checkpoint.AddChange{Change: []byte("two")},
		checkpoint.SetGeneration{Generation: checkpoint.Generation{Number: 1, Step: 5}}, checkpoint.SetGeneration{Generation: checkpoint.Generation{Number: 2, Step: 7}},
		checkpoint.Fence{Epoch: log.Epoch() + 1}, checkpoint.Fence{Epoch: log.Epoch() + 4},
	}
	if err := log.Write(whole...); err != nil {
		t.Fatal(err)
	}
	epochs := 2
	for _, bad := range []struct {
		op   checkpoint.Op
		want error
	}{
		{step(11), checkpoint.ErrOrder}, {checkpoint.Append{Step: 9, Record: []byte("other")}, checkpoint.ErrDiverged},
		{checkpoint.SetDigest{Step: 6, Digest: [32]byte{60}}, checkpoint.ErrDiverged}, {checkpoint.Fence{Epoch: 1}, checkpoint.ErrOrder},
		{checkpoint.SetGeneration{Generation: checkpoint.Generation{Number: 3, Step: 8}}, checkpoint.ErrDiverged},
	} {
		group := []checkpoint.Op{
			step(9), checkpoint.AddChange{Change: []byte("never")}, checkpoint.SetDigest{Step: 8, Digest: [32]byte{8}},
			checkpoint.SetGeneration{Generation: checkpoint.Generation{Number: 3, Step: 9}}, checkpoint.Fence{Epoch: 99}, bad.op, checkpoint.Truncate{From: 6},
		}
		if err := log.Write(group...); !errors.Is(err, bad.want) {
			t.Errorf("a group with %v: %v, want %v", bad.op, err, bad.want)
		}
		wantGroup(t, log, epochs)
	}
	log = f.again(t, log)
	wantGroup(t, log, epochs)
}

// wantGroup wants what the whole group of checkGroups left.
func wantGroup(t *testing.T, log checkpoint.Log, epochs int) {
	t.Helper()
	wantSteps(t, log, 5, 8)
	changes, err := log.Changes()
	generations, err2 := log.Generations()
	fenced, err3 := log.Epochs()
	if err := errors.Join(err, err2, err3); err != nil || len(changes) != 2 || string(changes[1]) != "two" ||
		!slices.Equal(generations, []checkpoint.Generation{{Number: 1, Step: 5}, {Number: 2, Step: 7}}) ||
		len(fenced) < epochs || fenced[len(fenced)-1] != (checkpoint.Epoch{Number: log.Epoch(), Step: 9}) {
		t.Fatalf("changes %q, generations %v, epochs %v, %v", changes, generations, fenced, err)
	}
	for at, want := range map[int64]bool{5: false, 6: true, 7: false, 8: false} {
		if got, ok, err := log.ReadDigest(at); err != nil || ok != want || ok && got != [32]byte{byte(at)} {
			t.Errorf("ReadDigest(%d) = %x, %v, %v, want %v", at, got, ok, err, want)
		}
	}
}

// checkPlace: a log knows its place until something is written without one.
func checkPlace(t *testing.T, f *Fixture) {
	if f.Mirrored {
		t.Skip("its places are its own")
	}
	log := f.open(t)
	if p, ok := log.Place(); ok {
		t.Fatalf("a new log has the place %v", p)
	}
	for i, ops := range [][]checkpoint.Op{{step(0)}, {step(1), step(2)}, {}, {step(2)}, {checkpoint.Truncate{From: 1}}} {
		want := checkpoint.Place{Slot: uint64(7 + i), Chain: [32]byte{byte(i)}}
		if err := log.Write(append(ops, want)...); err != nil {
			t.Fatal(err)
		}
		log = f.again(t, log)
		if got, ok := log.Place(); got != want || !ok {
			t.Fatalf("group %d: the place is %v, %v, want %v", i, got, ok, want)
		}
	}
	if err := log.Append(1, recordOf(1), nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if p, ok := log.Place(); ok {
			t.Fatalf("what was written has no place, and the log has %v", p)
		}
		log = f.again(t, log)
	}
}
