package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/logtest"
	"github.com/millrace-data/millrace/internal/checkpoint/mirror"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
	"github.com/millrace-data/millrace/internal/object/objecttest"
)

var job = logtest.Job

// fixture is a place for a log whose mirror is in a store.
func fixture(store object.Store) *logtest.Fixture {
	mem := vfs.NewCrashableMem()
	return &logtest.Fixture{
		Open: func(opts checkpoint.Options) (checkpoint.Log, error) {
			opts.FS = mem
			if opts.ReadOnly {
				return checkpoint.Open("log", opts)
			}
			log, err := mirror.Open(context.Background(), mirror.Options{Dir: "log", Log: opts, Store: store, FrameEvery: 16, PackEvery: 4})
			if err != nil {
				return nil, err
			}
			return log, nil
		},
		Crash:    func() { mem = mem.CrashClone(vfs.CrashCloneCfg{}) },
		Mirrored: true,
	}
}

func TestLog(t *testing.T) {
	logtest.Run(t, func(*testing.T) *logtest.Fixture { return fixture(&object.Memory{}) })
}

// TestLogFromMirror runs the suite on a log whose folder is lost with every crash: all comes
// back from the mirror.
func TestLogFromMirror(t *testing.T) {
	logtest.Run(t, func(*testing.T) *logtest.Fixture {
		mem, store := vfs.NewMem(), &object.Memory{}
		f := fixture(store)
		f.Open = func(opts checkpoint.Options) (checkpoint.Log, error) {
			opts.FS = mem
			if opts.ReadOnly {
				return checkpoint.Open("log", opts)
			}
			log, err := mirror.Open(context.Background(), mirror.Options{Dir: "log", Log: opts, Store: store, FrameEvery: math.MaxInt})
			if err != nil {
				return nil, err
			}
			return log, nil
		}
		f.Crash = func() { mem = vfs.NewMem() }
		return f
	})
}

func TestDirectory(t *testing.T) {
	d, err := object.NewDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	useStore(t, d)
}

func TestS3(t *testing.T) {
	where := objecttest.Server(t)
	s, err := object.Open(strings.Replace(where, "s3://bucket", "s3://bucket/jobs/one", 1))
	if err != nil {
		t.Fatal(err)
	}
	useStore(t, s)
}

// machine is one on which a planner runs: its disk.
type machine struct {
	disk  *vfs.MemFS
	store object.Store
	every int
	dir   string // a folder of the operating system in place of the disk, if it is not empty
}

func newMachine(store object.Store) *machine { return &machine{vfs.NewMem(), store, 16, ""} }

func (m *machine) options() mirror.Options {
	opts := mirror.Options{Dir: m.dir, Log: checkpoint.Options{Identity: job}, Store: m.store, FrameEvery: m.every, PackEvery: 4}
	if m.dir == "" {
		opts.Dir, opts.Log.FS = "log", m.disk
	}
	return opts
}

func (m *machine) open(t testing.TB) *mirror.Log {
	t.Helper()
	log, err := mirror.Open(context.Background(), m.options())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() }) // it may have been deposed
	return log
}

func recordOf(step int64) []byte { return fmt.Appendf(nil, "record of step %d", step) }

func appendSteps(t testing.TB, log checkpoint.Log, from, to int64) {
	t.Helper()
	for step := from; step < to; step++ {
		var frame []byte
		if checkpoint.Begins(log) || step%8 == 0 {
			frame = fmt.Appendf(nil, "frame of step %d", step)
		}
		if err := log.Append(step, recordOf(step), frame); err != nil {
			t.Fatal(err)
		}
	}
}

// wantTail wants the steps of a log up to a last one, at least those from a step on.
func wantTail(t testing.TB, log checkpoint.Log, from, last int64) {
	t.Helper()
	first, _ := log.First()
	got, ok := log.Last()
	if !ok || got != last || first > from {
		t.Fatalf("the log has the steps %d to %d (%v), want %d to %d", first, got, ok, from, last)
	}
	err := log.Records(first, math.MaxInt64, func(step int64, record []byte) error {
		if !bytes.Equal(record, recordOf(step)) {
			return fmt.Errorf("step %d has the record %q", step, record)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// useStore writes a log for long enough that it is packed and framed, and takes it over on
// another machine.
func useStore(t *testing.T, store object.Store) {
	a := newMachine(store)
	log := a.open(t)
	if err := errors.Join(log.Fence(1), log.AddChange([]byte("change")), log.SetGeneration(checkpoint.Generation{Number: 3, Step: 0})); err != nil {
		t.Fatal(err)
	}
	appendSteps(t, log, 0, 100)
	if err := log.SetDigest(99, [32]byte{99}); err != nil {
		t.Fatal(err)
	}
	appendSteps(t, log, 100, 101)
	other := newMachine(store).open(t)
	if err := other.Fence(2); err != nil {
		t.Fatal(err)
	}
	wantTail(t, other, 96, 100)
	changes, err := other.Changes()
	generations, err2 := other.Generations()
	digest, ok, err3 := other.ReadDigest(99)
	if err := errors.Join(err, err2, err3); err != nil || len(changes) != 1 || string(changes[0]) != "change" ||
		!slices.Equal(generations, []checkpoint.Generation{{Number: 3, Step: 0}}) || !ok || digest != [32]byte{99} || other.Epoch() != 2 {
		t.Errorf("changes %q, generations %v, digest %x (%v), epoch %d, %v", changes, generations, digest, ok, other.Epoch(), err)
	}
	appendSteps(t, other, 101, 110)
	wantDeposed(t, log, 2)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	wantTail(t, a.open(t), 104, 109) // the first machine again, whose folder is behind
}

// wantDeposed wants a log to refuse every write, since another writer has fenced epoch.
func wantDeposed(t *testing.T, log *mirror.Log, epoch uint64) {
	t.Helper()
	last, _ := log.Last()
	for range 2 {
		err := log.Append(last+1, recordOf(last+1), nil)
		if !errors.Is(err, checkpoint.ErrDeposed) || fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), fmt.Sprintf("(epoch %d)", epoch)) {
			t.Fatalf("a write of a deposed planner: class %v, %v", fault.ClassOf(err), err)
		}
	}
	<-log.Stopped()
	for _, err := range []error{log.Err(), log.Truncate(0), log.Fence(99), log.SetDigest(0, [32]byte{}), log.Records(0, 1, nil), log.Close()} {
		if !errors.Is(err, checkpoint.ErrDeposed) {
			t.Errorf("after that: %v", err)
		}
	}
}

// TestSplitBrain: of two planners that open a log, the one that fences later writes on, and
// every stale write is refused; what the first wrote meanwhile is in the second's log. No time passes
// before the stale writes: a planner that renews its lease may find before that another one took over.
func TestSplitBrain(t *testing.T) { synctest.Test(t, testSplitBrain) }

func testSplitBrain(t *testing.T) {
	store := &object.Memory{}
	a := newMachine(store).open(t)
	if err := a.Fence(1); err != nil {
		t.Fatal(err)
	}
	appendSteps(t, a, 0, 10)
	b := newMachine(store).open(t)
	appendSteps(t, a, 10, 50) // b opened the log before, and fences it after
	if err := b.Fence(1); !errors.Is(err, checkpoint.ErrOrder) {
		t.Errorf("Fence of an epoch that is taken: %v", err)
	}
	if err := b.Fence(2); err != nil {
		t.Fatal(err)
	}
	wantTail(t, b, 10, 49)
	appendSteps(t, b, 50, 60)
	wantDeposed(t, a, 2)
	appendSteps(t, b, 60, 70)
	wantTail(t, newMachine(store).open(t), 64, 69)

	// One that did not fence itself is refused too.
	late := newMachine(store).open(t)
	appendSteps(t, b, 70, 71)
	wantDeposed(t, late, 2)

	if a.Refused() != 1 || late.Refused() == 0 {
		t.Errorf("those who were refused know of %d and %d refused writes", a.Refused(), late.Refused())
	}
	for begin := time.Now(); b.Refused() != 2; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("the writer knows of %d refused writes, want 2", b.Refused())
		}
	}
}

// TestFenceFollowed: a writer that is slow to go on after its fence leaves it where it is, though
// another one has followed it by then.
func TestFenceFollowed(t *testing.T) {
	memory := &object.Memory{}
	first := newMachine(memory).open(t)
	if err := first.Fence(1); err != nil {
		t.Fatal(err)
	}
	appendSteps(t, first, 0, 1)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	fast := newMachine(memory)
	var other *mirror.Log
	slow := newMachine(&followed{Store: memory, then: func() {
		other = fast.open(t)
		if err := other.Fence(3); err != nil {
			t.Fatal(err)
		}
		appendSteps(t, other, 1, 5)
	}}).open(t)
	if err := slow.Fence(2); err == nil {
		wantDeposed(t, slow, 3)
	} else if !errors.Is(err, checkpoint.ErrOrder) { // the fence is in a pack by now: it hears at once who followed
		t.Fatal(err)
	}
	appendSteps(t, other, 5, 10)
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if r, err := mirror.Check(t.Context(), memory); err != nil || r.Readable != nil || len(r.Damage) > 0 {
		t.Errorf("the mirror: %v, %+v", err, r)
	}
	wantTail(t, newMachine(memory).open(t), 8, 9)
}

// followed is a store in which something happens after the first segment is created.
type followed struct {
	object.Store
	then func()
}

func (f *followed) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	err := f.Store.PutIfAbsent(ctx, key, data)
	if then := f.then; then != nil && strings.HasPrefix(key, "segment/") {
		f.then = nil
		then()
	}
	return err
}

// TestUnacknowledged: what the local log has and the mirror has not was never acknowledged,
// and goes.
func TestUnacknowledged(t *testing.T) {
	store := &failing{}
	m := newMachine(store)
	log := m.open(t)
	appendSteps(t, log, 0, 10)
	store.fail.Store(true)
	err := log.Append(10, []byte("never acknowledged"), nil)
	if fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "mirror") {
		t.Fatalf("class %v, %v", fault.ClassOf(err), err)
	}
	if err := log.Close(); fault.ClassOf(err) != fault.Lost {
		t.Errorf("Close: %v", err)
	}
	store.fail.Store(false)
	log = m.open(t)
	wantTail(t, log, 8, 9)
	appendSteps(t, log, 10, 20)
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if _, err := m.disk.Stat("log.replaced"); err != nil {
		t.Errorf("the folder was not put aside: %v", err)
	}
}

// failing is a store that can fail.
type failing struct {
	object.Memory
	fail atomic.Bool
}

func (f *failing) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if f.fail.Load() {
		return fault.Lostf("no route to host")
	}
	return f.Memory.PutIfAbsent(ctx, key, data)
}

// local appends steps to the machine's log without its mirror.
func (m *machine) local(t *testing.T, from, to int64) {
	t.Helper()
	log, err := checkpoint.Open("log", m.options().Log)
	if err != nil {
		t.Fatal(err)
	}
	appendSteps(t, log, from, to)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSeed mirrors a log that was there before its mirror, and refuses one that was written
// without it since.
func TestSeed(t *testing.T) {
	store := &object.Memory{}
	m := newMachine(store)
	m.local(t, 0, 20)
	log := m.open(t)
	wantTail(t, log, 0, 19)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	log = m.open(t) // nothing was written in between
	appendSteps(t, log, 20, 30)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	wantTail(t, newMachine(store).open(t), 24, 29)
	m.local(t, 30, 31)
	_, err := mirror.Open(t.Context(), m.options())
	if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "without the mirror") {
		t.Errorf("class %v, %v", fault.ClassOf(err), err)
	}
}

// TestSeededAtOnce: of two planners that begin a mirror with logs of their own at a time, the one that comes second hears so.
func TestSeededAtOnce(t *testing.T) {
	m := newMachine(faster{&object.Memory{}})
	m.local(t, 0, 5)
	if _, err := mirror.Open(t.Context(), m.options()); fault.ClassOf(err) != fault.Lost || !strings.Contains(err.Error(), "another planner began the mirror") {
		t.Errorf("class %v, %v", fault.ClassOf(err), err)
	}
}

// faster is a store in which another writer creates each object first.
type faster struct{ *object.Memory }

func (f faster) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := f.Put(ctx, key, []byte("of another writer")); err != nil {
		return err
	}
	return f.Memory.PutIfAbsent(ctx, key, data)
}

func TestRefused(t *testing.T) {
	store := &object.Memory{}
	m := newMachine(store)
	m.every = math.MaxInt // a key frame would have what is cut
	log := m.open(t)
	appendSteps(t, log, 0, 10)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	opts := newMachine(store).options()
	opts.Log.Identity = [32]byte{0xab}
	if _, err := mirror.Open(t.Context(), opts); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "belongs to the job") {
		t.Errorf("another job: %v", err)
	}
	// A mirror that lacks what was acknowledged is not trusted.
	all, err := store.List(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all[len(all)-3:] {
		if err := store.Delete(t.Context(), o.Key); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := mirror.Open(t.Context(), m.options()); fault.ClassOf(err) != fault.User || !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("a mirror that was cut: %v", err)
	}
}

// TestResume opens a log whoever's it is: from the mirror, or from a folder that has none.
func TestResume(t *testing.T) {
	store := &object.Memory{}
	m := newMachine(store)
	opts := m.options()
	opts.Log.Identity = [32]byte{}
	if log, _, err := mirror.Resume(t.Context(), opts); log != nil || err != nil {
		t.Fatalf("of nothing: %v, %v", log, err)
	}
	m.local(t, 0, 5)
	for range 2 { // the second time from the mirror
		log, whose, err := mirror.Resume(t.Context(), opts)
		if err != nil || whose != job {
			t.Fatalf("%x, %v", whose, err)
		}
		wantTail(t, log, 0, 4)
		if err := errors.Join(log.Fence(log.Epoch()+1), log.Close()); err != nil {
			t.Fatal(err)
		}
		opts.Log.FS = vfs.NewMem()
	}
}
