package mirror_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/object"
)

// copies are two machines that have the log of 20 steps, one all of it, and the other one, made from a key frame,
// what comes from step 8 or 16 on. Digests of steps are their numbers.
func copies(t *testing.T) (all, late *machine) {
	t.Helper()
	all = newMachine(&object.Memory{})
	all.every = 40 // one key frame, at one of the slots from 10 on
	log := all.open(t)
	for step := range int64(20) {
		appendSteps(t, log, step, step+1)
		if err := log.SetDigest(step, [32]byte{byte(step)}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, log, func() bool { return len(keys(t, all.store, "keyframe/")) > 0 })
	closeAll(t, log)
	late = newMachine(all.store)
	late.every = 1 << 30 // no other key frame comes in between
	log = late.open(t)
	if first, _ := log.First(); first < 8 {
		t.Fatalf("the copy begins with step %d", first)
	}
	closeAll(t, log)
	return all, late
}

func closeAll(t *testing.T, logs ...*mirror.Log) {
	t.Helper()
	for _, log := range logs {
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// goBack goes on at a step, whose digest of the step before is given, with other steps than there were, up to one.
func goBack(t *testing.T, log checkpoint.Log, step int64, digest byte, to int64) {
	t.Helper()
	ops, err := checkpoint.GoOn(log, step, [32]byte{digest})
	if err := errors.Join(err, log.Write(ops...)); err != nil {
		t.Fatal(err)
	}
	for ; step < to; step++ {
		var frame []byte
		if checkpoint.Begins(log) {
			frame = []byte("frame of another branch")
		}
		if err := log.Append(step, fmt.Appendf(nil, "another record of step %d", step), frame); err != nil {
			t.Fatal(err)
		}
	}
}

// branchOf is the branch that is written of a log, and its records.
func branchOf(t *testing.T, log checkpoint.Reader) string {
	t.Helper()
	all := log.Branches()
	text := fmt.Sprint(all[len(all)-1])
	err := log.Records(0, math.MaxInt64, func(_ int64, record []byte) error {
		text += "\n" + string(record)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// wantSame wants a branch of the same steps on all machines, one after the other, and on a new one.
func wantSame(t *testing.T, want string, machines ...*machine) {
	t.Helper()
	for i, m := range append(machines, newMachine(machines[0].store)) {
		log := m.open(t)
		if got := branchOf(t, log); got != want {
			t.Errorf("machine %d has %s, want %s", i, got, want)
		}
		closeAll(t, log)
	}
}

// TestGoBackFromCopy: a planner whose folder was made from a key frame goes back below it. The folder of another
// machine that has all goes on with the same steps.
func TestGoBackFromCopy(t *testing.T) {
	all, late := copies(t)
	log := late.open(t)
	goBack(t, log, 5, 4, 30)
	want := branchOf(t, log)
	closeAll(t, log)
	wantSame(t, want, all, late)
}

// TestGoBackFromNothing: a planner goes back to a step that others have as well and its copy has not, and dies before
// it writes the first step. Another one, to whose copy that left nothing, goes on elsewhere.
func TestGoBackFromNothing(t *testing.T) {
	all, late := copies(t)
	first := all.open(t)
	goBack(t, first, 5, 4, 5)
	closeAll(t, first)
	log := late.open(t)
	if last, some := log.Last(); some {
		t.Fatalf("the copy has steps up to %d", last)
	}
	goBack(t, log, 12, 77, 30)
	want := branchOf(t, log)
	closeAll(t, log)
	wantSame(t, want, all, late)
}

// TestLeftAllDies: a planner leaves all steps of a trimmed log, and dies before it writes the first one: nothing is
// damaged, and any machine goes on.
func TestLeftAllDies(t *testing.T) {
	here := newMachine(&object.Memory{})
	log := here.open(t)
	trimmed := func() bool {
		packs := keys(t, here.store, "pack/")
		return len(packs) > 0 && packs[0] > "pack/0000000000000001"
	}
	for next := int64(0); next < 400 || next < 30000 && !trimmed(); next += 20 { // tidying that is behind goes on with what is written
		appendSteps(t, log, next, next+20)
		await(t, log, func() bool { return len(keys(t, here.store, "segment/")) < 30 })
		if next >= 100 {
			if err := log.Trim(next - 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, log, trimmed)
	closeAll(t, log)
	here.every = 1 << 30 // no key frame comes between
	log = here.open(t)
	goBack(t, log, 5, 4, 5)
	closeAll(t, log)
	if r, err := mirror.Check(t.Context(), here.store); err != nil || r.Readable != nil || len(r.Damage) > 0 {
		t.Fatalf("the mirror: %v, %+v", err, r)
	}
	there := newMachine(here.store).open(t)
	goBack(t, there, 5, 4, 30)
	want := branchOf(t, there)
	closeAll(t, there)
	wantSame(t, want, here)
}

// TestGoForward: a planner goes forward again to a step that it left. A copy that lacks what leads there goes on with
// the same steps, in the same branch, and one that is made of all that the mirror has has all branches.
func TestGoForward(t *testing.T) {
	all, late := copies(t)
	log := all.open(t)
	goBack(t, log, 5, 4, 7)
	goBack(t, log, 18, 17, 24)
	b := log.Branches()
	if want := (checkpoint.Branch{Number: 2, Parent: 0, From: 18, Next: 24}); len(b) != 3 || b[2] != want {
		t.Errorf("branches %v, want %v", b, want)
	}
	closeAll(t, log)
	repaired(t, newMachine(all.store), func(copied checkpoint.Log) {
		if got := copied.Branches(); !slices.Equal(got, b) {
			t.Errorf("a copy of all has the branches %v, want %v", got, b)
		}
	})
	for _, m := range []*machine{late, newMachine(all.store)} {
		log := m.open(t)
		if got := log.Branches(); got[len(got)-1].Number != 2 || got[len(got)-1].Next != 24 {
			t.Errorf("a copy has the branches %v, want the last of %v", got, b)
		}
		closeAll(t, log)
	}
}

// TestFrameOfNoStep: a key frame of the mirror that is written before the first step of a branch names the branch before
// it, so that what goes on from either does in every copy.
func TestFrameOfNoStep(t *testing.T) {
	here := newMachine(&object.Memory{})
	log := here.open(t)
	write := func(from, to int64) {
		t.Helper()
		for step := from; step < to; step++ {
			appendSteps(t, log, step, step+1)
			if err := log.SetDigest(step, [32]byte{byte(step)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(0, 12)
	goBack(t, log, 10, 9, 10)
	for range 2 { // the first may have been made before
		framed := slices.Max(append(keys(t, here.store, "keyframe/"), ""))
		await(t, log, func() bool {
			if err := log.AddChange([]byte("change")); err != nil {
				t.Fatal(err)
			}
			return slices.Max(append(keys(t, here.store, "keyframe/"), "")) > framed
		})
	}
	closeAll(t, log)
	there := newMachine(here.store).open(t)
	b := there.Branches()
	if want := (checkpoint.Branch{Number: 1, Parent: 0, From: 10, Next: 10}); b[len(b)-1] != want {
		t.Errorf("the copy has the branches %v, want %v", b, want)
	}
}
