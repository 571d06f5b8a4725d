package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/memlog"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

var job = [32]byte{7}

// lived is a mirror with everything in it, and the disk of the machine that wrote it.
func lived(t *testing.T) (map[string][]byte, *vfs.MemFS) {
	t.Helper()
	store, disk := &object.Memory{}, vfs.NewMem()
	for life := range 2 {
		l, err := Open(t.Context(), optionsFor(store, disk))
		if err != nil {
			t.Fatal(err)
		}
		from, _ := l.Last()
		for step := from + 1; step < int64(14+12*life); step++ {
			var frame []byte
			if checkpoint.Begins(l) || step%4 == 0 {
				frame = fmt.Appendf(nil, "frame %d", step)
			}
			if err := l.Append(step, fmt.Appendf(nil, "record %d", step), frame); err != nil {
				t.Fatal(err)
			}
		}
		awaitTidy(t, store)
		err = errors.Join(l.AddChange(fmt.Append(nil, life)), l.SetGeneration(checkpoint.Generation{Number: uint64(life), Step: 3}),
			l.Truncate(int64(11+12*life)), l.Append(int64(11+12*life), []byte("another branch"), nil), l.Close())
		if err != nil {
			t.Fatal(err)
		}
	}
	all := map[string][]byte{}
	list, err := store.List(t.Context(), "", "")
	for _, o := range list {
		all[o.Key], _ = store.Get(t.Context(), o.Key, object.Whole)
	}
	if err != nil || len(all) < 10 || !slices.ContainsFunc(list, func(o object.Info) bool { return strings.HasPrefix(o.Key, packs) }) ||
		!slices.ContainsFunc(list, func(o object.Info) bool { return strings.HasPrefix(o.Key, frames) }) {
		t.Fatalf("%v, %v", list, err)
	}
	return all, disk
}

// awaitTidy waits until the background work has made a pack and a key frame.
func awaitTidy(t *testing.T, store object.Store) {
	t.Helper()
	for range 3000 {
		packed, err := store.List(t.Context(), packs, "")
		framed, err2 := store.List(t.Context(), frames, "")
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if len(packed) > 0 && len(framed) > 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the mirror is not tidied")
}

func optionsFor(store object.Store, disk *vfs.MemFS) Options {
	return Options{Dir: "log", Log: checkpoint.Options{Identity: job, FS: disk}, Store: store, FrameEvery: 10, PackEvery: 4}
}

// storeOf is a store with these objects.
func storeOf(t *testing.T, all map[string][]byte) *object.Memory {
	t.Helper()
	store := &object.Memory{}
	for key, data := range all {
		if err := store.Put(t.Context(), key, data); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// tailOf says what a log holds from its newest key frame on, as text.
func tailOf(t *testing.T, log checkpoint.Log) string {
	t.Helper()
	ops, err := stepsOf(log)
	changes, err2 := log.Changes()
	generations, err3 := log.Generations()
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	last, _ := log.Last()
	return fmt.Sprintf("%q %q %v %d", ops, changes, generations, last)
}

// read brings what a mirror holds into a log in memory.
func read(t *testing.T, store object.Store) (string, error) {
	t.Helper()
	c, err := list(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	st, err := c.load(t.Context())
	if err != nil {
		return "", err
	}
	log, err := new(memlog.Store).Open(checkpoint.Options{Identity: job})
	if err != nil {
		t.Fatal(err)
	}
	if err := apply(log, st.groups); err != nil {
		t.Fatalf("a mirror that was read does not apply: %v", err)
	}
	return tailOf(t, log), nil
}

// garbling is a store of which the first read of each object but the lease gives other bytes than there are, or fewer.
type garbling struct {
	object.Store
	seen sync.Map // keys that were read
	cut  bool     // gives fewer
}

func (g *garbling) Get(ctx context.Context, key string, r object.Range) ([]byte, error) {
	data, err := g.Store.Get(ctx, key, r)
	if err != nil || key == lease {
		return data, err
	}
	if _, seen := g.seen.Swap(key, true); seen {
		return data, err
	}
	if g.cut {
		return data[:len(data)/2], nil
	}
	data = slices.Clone(data)
	data[len(data)/3] ^= 0x55
	return data, nil
}

// TestDamagedOnce: an object that one read gives damaged, and the next one whole, is not damaged: not for who goes on from
// the mirror, nor for who checks it or reads all of it.
func TestDamagedOnce(t *testing.T) {
	all, _ := lived(t)
	want, err := read(t, storeOf(t, all))
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []bool{false, true} {
		fresh := func() object.Store { return &garbling{Store: storeOf(t, all), cut: cut} }
		if got, err := read(t, fresh()); err != nil || got != want {
			t.Errorf("cut %v: it holds\n%s, want\n%s; %v", cut, got, want, err)
		}
		if r, err := Check(t.Context(), fresh()); err != nil || len(r.Damage) > 0 || r.Readable != nil {
			t.Errorf("cut %v: %+v, %v", cut, r, err)
		}
		if err := Walk(t.Context(), fresh(), func(uint64, uint64, checkpoint.Op) error { return nil }); err != nil {
			t.Errorf("cut %v: %v", cut, err)
		}
	}
}

// TestTidyDamagedOnce: who writes the mirror has nothing to warn of where it reads segments once damaged, to pack them.
func TestTidyDamagedOnce(t *testing.T) {
	store, warned := &object.Memory{}, bytes.Buffer{}
	opts := optionsFor(&garbling{Store: store}, vfs.NewMem())
	opts.Log.Logger = slog.New(slog.NewTextHandler(&warned, &slog.HandlerOptions{Level: slog.LevelWarn}))
	l, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(24) {
		if err := l.Append(step, fmt.Appendf(nil, "record %d", step), fmt.Appendf(nil, "frame %d", step)); err != nil {
			t.Fatal(err)
		}
	}
	awaitTidy(t, store)
	if err := l.Close(); err != nil || warned.String() != "" {
		t.Errorf("%v, warnings:\n%s", err, warned.String())
	}
}

// TestEveryByte flips each byte of each object of a mirror, and cuts each object at every
// fourth: the mirror is refused, or what it holds is what was written.
func TestEveryByte(t *testing.T) {
	all, _ := lived(t)
	want, err := read(t, storeOf(t, all))
	if err != nil {
		t.Fatal(err)
	}
	refused, harmless := 0, 0
	for key, data := range all {
		for at := range data {
			flipped := slices.Clone(data)
			flipped[at] ^= 1 << (at % 8)
			damaged := [][]byte{flipped}
			if at%4 == 0 {
				damaged = append(damaged, data[:at])
			}
			for _, other := range damaged {
				store := storeOf(t, all)
				if err := store.Put(t.Context(), key, other); err != nil {
					t.Fatal(err)
				}
				switch got, err := read(t, store); {
				case err == nil && got != want:
					t.Fatalf("%s at byte %d: the mirror is read as %s, and is %s", key, at, got, want)
				case err == nil:
					harmless++
				case fault.ClassOf(err) != fault.User || !errors.Is(err, checkpoint.ErrDamaged):
					t.Fatalf("%s at byte %d: class %v, %v", key, at, fault.ClassOf(err), err)
				default:
					refused++
				}
			}
		}
	}
	t.Logf("%d objects: %d cases refused, %d harmless", len(all), refused, harmless)
	if refused+harmless < 1000 {
		t.Errorf("%d refused, %d harmless", refused, harmless)
	}
}

// TestManyDamaged damages the key frames together with the last segment, or all objects: the error is the user's, in one line,
// and names the mirror and what mends it.
func TestManyDamaged(t *testing.T) {
	all, _ := lived(t)
	last := ""
	for key := range all {
		if strings.HasPrefix(key, segments) {
			last = max(last, key)
		}
	}
	for what, hit := range map[string]func(key string) bool{
		"key frames and a segment": func(key string) bool { return key == last || strings.HasPrefix(key, frames) },
		"all objects":              func(string) bool { return true },
	} {
		store := storeOf(t, all)
		for key := range all {
			if !hit(key) {
				continue
			}
			if err := store.Put(t.Context(), key, []byte("damaged")); err != nil {
				t.Fatal(err)
			}
		}
		_, err := read(t, store)
		if fault.ClassOf(err) != fault.User || !errors.Is(err, checkpoint.ErrDamaged) || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), "the mirror "+store.String()) || !strings.Contains(err.Error(), "millrace log repair") {
			t.Errorf("%s: class %v, %v", what, fault.ClassOf(err), err)
		}
	}
}

// TestEveryObject damages and removes each object of a mirror: with the folder that wrote
// it the mirror is repaired, goes on as it was, or is refused; Check finds the damage.
func TestEveryObject(t *testing.T) {
	all, disk := lived(t)
	log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: disk, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	want := tailOf(t, log)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]int{}
	for key, data := range all {
		for _, damaged := range [][]byte{nil, data[:len(data)/2], append(slices.Clone(data), 0)} {
			store := storeOf(t, all)
			err := store.Put(t.Context(), key, damaged)
			if damaged == nil {
				err = store.Delete(t.Context(), key)
			}
			if err != nil {
				t.Fatal(err)
			}
			outcomes[afterDamage(t, key, store, clone(t, disk), damaged == nil, want)]++
		}
	}
	t.Log(outcomes)
	if outcomes["repaired"]+outcomes["whole"] < 2*outcomes["refused"] {
		t.Errorf("%v", outcomes)
	}
}

// afterDamage repairs and opens a log whose mirror was damaged.
func afterDamage(t *testing.T, key string, store object.Store, disk *vfs.MemFS, removed bool, want string) string {
	t.Helper()
	report, err := Check(t.Context(), store)
	if err != nil || !removed && report.Readable == nil && len(report.Damage) == 0 && strings.HasPrefix(key, frames) {
		t.Fatalf("%s: Check finds nothing: %+v, %v", key, report, err)
	}
	outcome := "whole"
	if report.Readable != nil {
		outcome = "repaired"
	}
	if _, err := Repair(context.Background(), optionsFor(store, disk)); err != nil {
		if fault.ClassOf(err) != fault.User {
			t.Fatalf("%s: class %v, %v", key, fault.ClassOf(err), err)
		}
		if _, err := Open(context.Background(), optionsFor(store, disk)); err == nil {
			t.Fatalf("%s: it cannot be repaired, and is opened", key)
		}
		return "refused"
	}
	l, err := Open(context.Background(), optionsFor(store, disk))
	if err != nil {
		t.Fatalf("%s: it was repaired, and is refused: %v", key, err)
	}
	defer l.Close()
	if got := tailOf(t, l); got != want {
		if removed && key == lastSegment(t, store, key) {
			return "ends before" // a mirror does not know what was to come
		}
		t.Fatalf("%s: the log is %s, and was %s", key, got, want)
	}
	return outcome
}

// lastSegment is key if no segment comes after it.
func lastSegment(t *testing.T, store object.Store, key string) string {
	t.Helper()
	later, err := store.List(t.Context(), segments, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(later) > 0 {
		return later[0].Key
	}
	return key
}

func clone(t *testing.T, disk *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	to := vfs.NewMem()
	if _, err := vfs.Clone(disk, to, "log", "log"); err != nil {
		t.Fatal(err)
	}
	return to
}
