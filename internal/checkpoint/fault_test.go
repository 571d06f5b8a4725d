package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// failFrom makes the n-th operation that writes to fs fail, and, if sticky, all
// after it. Left out are those whose failure Pebble rightly shrugs off.
func failFrom(fs vfs.FS, n int64, sticky bool, cause error) (faulty vfs.FS, hit *atomic.Bool) {
	hit = new(atomic.Bool)
	var ops atomic.Int64
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpRemove, errorfs.OpRemoveAll, errorfs.OpLock, errorfs.OpFileClose, errorfs.OpFilePreallocate:
			return nil
		}
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		if i := ops.Add(1); i == n || sticky && i > n {
			hit.Store(true)
			return cause
		}
		return nil
	})), hit
}

// bulk is a record large enough that 60 of them rotate and flush Pebble's 1 MB
// memory table twice.
func bulk(step int64) []byte { return bytes.Repeat(recordOf(step), 2000) }

// TestDiskFails lets each of a run's writes and syncs fail in turn, once or for
// good. The log must report it (from then on, always), never panic or hang, and
// lose no step for which Append returned nil, also if the machine crashes next.
func TestDiskFails(t *testing.T) {
	failures := 0
	for n := int64(1); ; n++ {
		if n > 40 { // the writes of Open and the first steps; then a sample
			n += 12
		}
		mem := vfs.NewCrashableMem()
		cause := []error{syscall.ENOSPC, syscall.EIO}[n%2]
		fs, hit := failFrom(mem, n, n%3 == 0, cause)
		acked := runUntilFailure(t, fs, cause)
		if !hit.Load() {
			break
		}
		failures++
		crashed := mem.CrashClone(vfs.CrashCloneCfg{})
		wantAcked(t, fmt.Sprintf("after failure %d", n), mem, acked)
		wantAcked(t, fmt.Sprintf("after failure %d and a crash", n), crashed, acked)
	}
	if failures < 45 {
		t.Errorf("only %d failures were tried", failures)
	}
}

// runUntilFailure returns the last step that was acknowledged, or -1.
func runUntilFailure(t *testing.T, fs vfs.FS, cause error) int64 {
	t.Helper()
	log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: fs})
	if err != nil {
		wantLost(t, err, cause)
		return -1
	}
	for step := range int64(60) {
		if err := log.Append(step, bulk(step), frameOf(step)); err != nil {
			wantLost(t, err, cause)
			wantLost(t, log.Append(step, bulk(step), nil), cause)
			wantLost(t, log.Append(step+1, nil, nil), cause)
			wantLost(t, log.SetDigest(0, [32]byte{}), cause)
			wantLost(t, log.Truncate(0), cause)
			_, _, _, err = log.Frame(step)
			wantLost(t, err, cause)
			wantLost(t, log.Close(), cause)
			return step - 1
		}
	}
	if err := log.Close(); err != nil {
		wantLost(t, err, cause)
	}
	return 59
}

func wantLost(t *testing.T, err, cause error) {
	t.Helper()
	wantError(t, err, fault.Lost, "log", cause.Error())
	if !errors.Is(err, cause) {
		t.Errorf("the error does not wrap %v: %v", cause, err)
	}
}

// wantAcked opens the log after a failure: it holds the acknowledged steps, and
// the one that was being written wholly or not at all.
func wantAcked(t *testing.T, when string, fs vfs.FS, acked int64) {
	t.Helper()
	log := open(t, "log", checkpoint.Options{FS: fs})
	last, ok := log.Last()
	if !ok {
		last = -1
	}
	if last != acked && last != acked+1 {
		t.Fatalf("%s: the log ends with step %d, step %d was acknowledged", when, last, acked)
	}
	err := log.Records(0, last+1, func(step int64, record []byte) error {
		if !bytes.Equal(record, bulk(step)) {
			t.Errorf("%s: step %d has another record", when, step)
		}
		at, frame, _, err := log.Frame(step)
		if at != step || !bytes.Equal(frame, frameOf(step)) {
			t.Errorf("%s: step %d has the frame %q of step %d", when, step, frame, at)
		}
		return err
	})
	if err != nil {
		t.Errorf("%s: %v", when, err)
	}
	if err := log.Append(last+1, []byte("on it goes"), nil); err != nil {
		t.Errorf("%s: %v", when, err)
	}
}

// TestCrash takes the disk away at random moments of a run: synced steps
// survive, the one in flight is there as a whole or gone.
func TestCrash(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	mem := vfs.NewCrashableMem()
	log := open(t, "log", checkpoint.Options{FS: mem})
	var acked, begun atomic.Int64
	acked.Store(-1)
	var run sync.WaitGroup
	run.Go(func() {
		for step := range int64(300) {
			begun.Store(step)
			if err := log.Append(step, bulk(step), frameOf(step)); err != nil {
				t.Error(err)
				return
			}
			acked.Store(step)
		}
	})
	for acked.Load() < 299 && !t.Failed() {
		before := acked.Load()
		crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 25 * rng.IntN(5), RNG: rng})
		after := begun.Load()
		log := open(t, "log", checkpoint.Options{FS: crashed})
		last, ok := log.Last()
		if !ok {
			last = -1
		}
		if last < before || last > after {
			t.Fatalf("the log ends with step %d, %d to %d are possible", last, before, after)
		}
		closeLog(t, log)
		wantAcked(t, "after a crash", crashed, last)
	}
	run.Wait()
}

// TestDigestsMayBeLostStepsNot: digests are not synced on their own account, but with the
// next step.
func TestDigestsMayBeLostStepsNot(t *testing.T) {
	mem := vfs.NewCrashableMem()
	log := open(t, "log", checkpoint.Options{FS: mem})
	appendSteps(t, log, 0, 2)
	for step := range int64(2) {
		if err := log.SetDigest(step, [32]byte{byte(step + 1)}); err != nil {
			t.Fatal(err)
		}
		if step == 0 {
			appendSteps(t, log, 2, 3)
		}
	}
	after := open(t, "log", checkpoint.Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
	wantSteps(t, after, 0, 2)
	for step := range int64(2) {
		digest, ok, err := after.ReadDigest(step)
		if err != nil || !ok && step == 0 || ok && digest != [32]byte{byte(step + 1)} {
			t.Errorf("digest of step %d after the crash: %x, %v, %v", step, digest, ok, err)
		}
	}
}

// TestDamage flips single bytes all over a log's files. Whatever is hit, the log says so
// or gives exactly the bytes that were written.
func TestDamage(t *testing.T) {
	for _, test := range []struct {
		name   string
		closed bool
	}{{"closed", true}, {"crashed", false}} {
		t.Run(test.name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			log := open(t, "log", checkpoint.Options{FS: mem})
			for step := range int64(damagedSteps) {
				if step == 40 {
					closeLog(t, log)
					log = open(t, "log", checkpoint.Options{FS: mem})
				}
				if err := log.Append(step, noise(200, step), noise(200, -step)); err != nil {
					t.Fatal(err)
				}
			}
			if test.closed {
				closeLog(t, log)
			}
			if noticed := flipAll(t, mem.CrashClone(vfs.CrashCloneCfg{})); noticed < 20 {
				t.Errorf("only %d flipped bytes were noticed", noticed)
			}
		})
	}
}

const (
	damagedSteps = 200
	flips        = 12 // in each file: Pebble takes long to say which bit it was
)

func flipAll(t *testing.T, fs vfs.FS) (noticed int) {
	t.Helper()
	all := filesOf(t, fs)
	for name, data := range all {
		for at := 0; at < len(data); at += 1 + len(data)/flips {
			flipped := slices.Clone(data)
			flipped[at] ^= 0x10
			steps, err := readAll(t, all.with(name, flipped).disk(t))
			if err == nil && steps < damagedSteps {
				t.Errorf("byte %d of %d in %s: no error, and only %d steps are left", at, len(data), name, steps)
			}
			if err == nil {
				continue
			}
			noticed++
			wantError(t, err, fault.User, "log")
		}
	}
	return noticed
}

// noise returns n bytes, a multiple of 8, that do not compress and so fill blocks.
func noise(n int, seed int64) []byte {
	rng := rand.New(rand.NewPCG(uint64(seed), 13))
	b := make([]byte, 0, n)
	for len(b) < n {
		b = binary.BigEndian.AppendUint64(b, rng.Uint64())
	}
	return b
}

// readAll reads everything in log up to the first error, and checks the bytes.
func readAll(t *testing.T, fs vfs.FS) (steps int64, err error) {
	log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: fs})
	if err != nil {
		return 0, err
	}
	defer log.Close()
	err = log.Records(0, math.MaxInt64, func(step int64, record []byte) error {
		if step != steps || !bytes.Equal(record, noise(200, step)) {
			t.Errorf("step %d, in place %d, has another record", step, steps)
		}
		steps++
		return nil
	})
	for step := int64(0); step < steps && err == nil; step++ {
		var at int64
		var frame []byte
		if at, frame, _, err = log.Frame(step); err == nil && (at != step || !bytes.Equal(frame, noise(200, -step))) {
			t.Errorf("step %d has another frame, of step %d", step, at)
		}
	}
	return steps, err
}

// rottenFS gives wrong bytes out of tables once it is rotten.
type rottenFS struct {
	vfs.FS
	rotten atomic.Bool
}

func (fs *rottenFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := fs.FS.Open(name, opts...)
	if err != nil || !strings.HasSuffix(name, ".sst") {
		return f, err
	}
	return &rottenFile{f, fs}, nil
}

type rottenFile struct {
	vfs.File
	fs *rottenFS
}

func (f *rottenFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	if n > 0 && f.fs.rotten.Load() {
		p[n/2] ^= 1
	}
	return n, err
}

// TestRot lets the disk rot under an open log: the read that meets it names the
// step, and the log does nothing more.
func TestRot(t *testing.T) {
	fs := &rottenFS{FS: vfs.NewMem()}
	log := open(t, "log", checkpoint.Options{FS: fs})
	for step := range int64(60) {
		if err := log.Append(step, noise(1536, step), nil); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, log)
	log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append(60, noise(1536, 60), nil); err != nil {
		t.Fatal(err)
	}
	fs.rotten.Store(true)
	met := int64(-1)
	err = log.Records(0, 61, func(step int64, record []byte) error {
		if met = step; !bytes.Equal(record, noise(1536, step)) {
			t.Errorf("step %d has another record", step)
		}
		return nil
	})
	wantError(t, err, fault.User, "log", fmt.Sprintf("record of step %d", met+1), "damaged")
	wantError(t, log.Append(61, nil, nil), fault.User, "log", "damaged")
	wantError(t, log.Close(), fault.User, "log", "damaged")
}

func contents(t testing.TB, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open("log/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
