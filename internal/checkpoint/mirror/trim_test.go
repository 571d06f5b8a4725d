package mirror_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/object"
)

// TestLateDigests: a copy that begins with a key frame has no use for the digests of steps before
// it, which come later.
func TestLateDigests(t *testing.T) {
	here := newMachine(&object.Memory{})
	here.every = 40 // one key frame, at one of the slots 10 to 16, whenever tidy comes to it: each begins with step 8
	log := here.open(t)
	appendSteps(t, log, 0, 16)
	await(t, log, func() bool { return len(keys(t, here.store, "keyframe/")) > 0 })
	for step := range int64(16) {
		if err := log.SetDigest(step, [32]byte{byte(step)}); err != nil {
			t.Fatal(err)
		}
	}
	appendSteps(t, log, 16, 17)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	there := newMachine(here.store).open(t)
	wantTail(t, there, 8, 16)
	if first, _ := there.First(); first != 8 {
		t.Fatalf("the copy begins with step %d, want 8", first)
	}
	for step := range int64(16) {
		if digest, ok, err := there.ReadDigest(step); err != nil || ok != (step >= 8) || ok && digest != [32]byte{byte(step)} {
			t.Errorf("the digest of step %d is %x, %v, %v", step, digest, ok, err)
		}
	}
}

// TestBranchBelowFrame: a copy that begins with a key frame follows a log that goes back further,
// as the branch begins with a key frame of its own.
func TestBranchBelowFrame(t *testing.T) {
	here := newMachine(&object.Memory{})
	here.every = 64 // one key frame, at one of the slots 16 to 20, and none for the next 16
	log := here.open(t)
	appendSteps(t, log, 0, 20)
	await(t, log, func() bool { return len(keys(t, here.store, "keyframe/")) > 0 })
	framed := slices.Max(keys(t, here.store, "keyframe/"))
	if err := log.Truncate(5); err != nil {
		t.Fatal(err)
	}
	branch := func(step int64, frame []byte) {
		t.Helper()
		err := log.Write(checkpoint.SetDigest{Step: 4, Digest: [32]byte{4}}, checkpoint.Append{Step: step, Record: recordOf(step), Frame: frame})
		if err != nil {
			t.Fatal(err)
		}
	}
	branch(5, []byte("frame of step 5"))
	branch(6, nil)
	if now := slices.Max(keys(t, here.store, "keyframe/")); now != framed {
		t.Fatalf("the key frame %s came in between", now)
	}
	there := newMachine(here.store).open(t)
	wantTail(t, there, 5, 6)
	if at, _, ok, err := there.Frame(6); at != 5 || !ok || err != nil {
		t.Errorf("the key frame is of step %d, %v, %v", at, ok, err)
	}
	if a, b := log.Branches(), there.Branches(); a[len(a)-1].Number != 1 || b[len(b)-1].Number != 1 {
		t.Errorf("the branches are %v here and %v there", a, b)
	}
}

// TestTrim: objects go away with the steps, but what a planner goes on from, and the key frame
// where the rest begins.
func TestTrim(t *testing.T) {
	here := newMachine(&object.Memory{})
	log := here.open(t)
	trimmed := func() bool {
		packs := keys(t, here.store, "pack/")
		return len(packs) > 0 && slices.Min(packs) > "pack/0000000000000000" && len(packs) <= 60 // of 256 slots, once they are merged; closing adds a few
	}
	next := int64(0)
	for ; next < 800 || next < 30000 && !trimmed(); next += 20 {
		if next >= 800 { // tidying is behind, and goes on with what is written
			time.Sleep(20 * time.Millisecond)
		}
		appendSteps(t, log, next, next+20)
		if next >= 100 {
			if err := log.Trim(next - 100); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, log, trimmed)
	first, _ := log.First()
	if err := log.Close(); err != nil { // or objects go away while they are checked
		t.Fatal(err)
	}
	if packs, frames := keys(t, here.store, "pack/"), keys(t, here.store, "keyframe/"); len(packs) > 70 || len(frames) > 30 {
		t.Errorf("%d packs and %d key frames are left", len(packs), len(frames))
	}
	r, err := mirror.Check(t.Context(), here.store)
	if err != nil || r.Readable != nil || len(r.Damage) > 0 {
		t.Fatalf("the trimmed mirror: %v, %+v", err, r)
	}
	least, last := int64(math.MaxInt64), int64(0)
	err = mirror.Walk(t.Context(), here.store, func(_, _ uint64, op checkpoint.Op) error {
		if a, ok := op.(checkpoint.Append); ok {
			least, last = min(least, a.Step), max(last, a.Step)
		}
		return nil
	})
	if err != nil || least > first || last != next-1 {
		t.Errorf("the mirror has steps %d to %d, and the log begins with %d: %v", least, last, first, err)
	}
	there := newMachine(here.store).open(t)
	if there.Trimmed() != log.Trimmed() {
		t.Errorf("the other machine's log is trimmed at %d, this one at %d", there.Trimmed(), log.Trimmed())
	}
	wantTail(t, there, (next-1)/8*8, next-1) // from the last key frame on
	if err := there.Close(); err != nil {    // or packs are merged while one goes away
		t.Fatal(err)
	}
	all, err := here.store.List(t.Context(), "pack/", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := here.store.Delete(t.Context(), all[len(all)/2].Key); err != nil {
		t.Fatal(err)
	}
	if r, err := mirror.Check(t.Context(), here.store); err != nil || len(r.Damage) == 0 {
		t.Errorf("a pack that is missing in the middle: %v, %+v", err, r)
	}
}

// TestCheckLive: packs and key frames that are let go of while a mirror is checked are no damage;
// what is missing besides is.
func TestCheckLive(t *testing.T) {
	for name, damaged := range map[string]bool{"whole": false, "damaged": true} {
		t.Run(name, func(t *testing.T) {
			memory := &object.Memory{}
			log := newMachine(memory).open(t)
			appendSteps(t, log, 0, 1)
			if err := log.Trim(1); err != nil { // of a log that is trimmed all key frames stay
				t.Fatal(err)
			}
			for next := int64(1); next < 1600; next += 20 {
				appendSteps(t, log, next, next+20)
				await(t, log, func() bool { return len(keys(t, memory, "segment/")) < 30 })
			}
			packs := func() []string { return keys(t, memory, "pack/") } // of 256 slots, but for the last ones
			if damaged {
				if err := memory.Delete(t.Context(), packs()[len(packs())-2]); err != nil {
					t.Fatal(err)
				}
			}
			cuts := 0
			store := &interrupted{Store: memory, next: func() {
				if cuts++; cuts > 3 {
					return
				}
				first := packs()[0]
				if err := log.Trim(int64(300 + 300*cuts)); err != nil {
					t.Error(err)
				}
				await(t, log, func() bool { return packs()[0] > first })
			}}
			r, err := mirror.Check(t.Context(), store)
			if err != nil || cuts < 3 {
				t.Fatalf("%v, after %d cuts", err, cuts)
			}
			if (r.Readable != nil || len(r.Damage) > 0) != damaged {
				t.Errorf("%+v", r)
			}
		})
	}
}

// interrupted is a store in which something happens when a pack is read.
type interrupted struct {
	object.Store
	next func()
}

func (i *interrupted) Get(ctx context.Context, key string, r object.Range) ([]byte, error) {
	if strings.HasPrefix(key, "pack/") {
		i.next()
	}
	return i.Store.Get(ctx, key, r)
}

// TestTrimDies takes the store away at each of the deletions of a trim: what is left is whole, and
// the next writer finishes it.
func TestTrimDies(t *testing.T) {
	for n := range 12 {
		memory := &object.Memory{}
		dying := &mortal{Store: memory, left: n}
		here := newMachine(dying)
		log := here.open(t)
		for next := int64(0); next < 400; next += 20 {
			appendSteps(t, log, next, next+20)
			await(t, log, func() bool { return len(keys(t, memory, "segment/")) < 30 })
			if next == 340 {
				dying.armed.Store(true)
			}
			if next >= 200 {
				if err := log.Trim(next - 100); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = log.Close()
		r, err := mirror.Check(t.Context(), memory)
		if err != nil || r.Readable != nil || len(r.Damage) > 0 {
			t.Fatalf("after %d deletions: %v, %+v", n, err, r)
		}
		there := newMachine(memory).open(t)
		wantTail(t, there, 392, 399)
		appendSteps(t, there, 400, 440)
		if r, err := mirror.Check(t.Context(), memory); err != nil || r.Readable != nil {
			t.Fatalf("after %d deletions, and more steps: %v, %+v", n, err, r)
		}
	}
}

// mortal is a store that deletes a number of key frames and packs once it is armed, and no more.
type mortal struct {
	object.Store
	armed atomic.Bool
	left  int // tidy's, once it is armed
}

var errGone = errors.New("gone")

func (m *mortal) Delete(ctx context.Context, key string) error {
	if m.armed.Load() && !strings.HasPrefix(key, "segment/") {
		if m.left == 0 {
			return errGone
		}
		m.left--
	}
	return m.Store.Delete(ctx, key)
}

func keys(t *testing.T, s object.Store, prefix string) (names []string) {
	t.Helper()
	all, err := s.List(t.Context(), prefix, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		names = append(names, o.Key)
	}
	return names
}

// await waits for what the log does in the background.
func await(t *testing.T, log *mirror.Log, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("what is awaited does not come; the log says %v", log.Err())
}
