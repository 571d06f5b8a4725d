package checkpoint_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/logtest"
	"github.com/millrace-data/millrace/internal/fault"
	"golang.org/x/sync/errgroup"
)

// files are the contents of a folder.
type files map[string][]byte

func filesOf(t testing.TB, disk vfs.FS) files {
	t.Helper()
	names, err := disk.List("log")
	if err != nil {
		t.Fatal(err)
	}
	all := files{}
	for _, name := range names {
		all[name] = contents(t, disk, name)
	}
	return all
}

// disk is a new one with these files on it.
func (f files) disk(t testing.TB) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewMem()
	if err := disk.MkdirAll("log", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, data := range f {
		putFile(t, disk, name, data)
	}
	return disk
}

func putFile(t testing.TB, disk vfs.FS, name string, data []byte) {
	t.Helper()
	f, err := disk.Create("log/"+name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(data)); err != nil { // under the race detector it is overwritten
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// with is f with another file, or without it if data is nil.
func (f files) with(name string, data []byte) files {
	other := maps.Clone(f)
	if other[name] = data; data == nil {
		delete(other, name)
	}
	return other
}

// history is what was acknowledged of a log, and what was on its way.
type history struct {
	model   *logtest.Model
	changes [][]byte
}

func newHistory() *history { return &history{model: logtest.NewModel()} }

func (h *history) clone() *history {
	m := *h.model
	m.Records, m.Frames, m.Digests = maps.Clone(m.Records), maps.Clone(m.Frames), maps.Clone(m.Digests)
	return &history{&m, slices.Clone(h.changes)}
}

// write is one thing that is done to a log, and to what it should hold.
type write struct {
	log   func(checkpoint.Log) error
	model func(*history)
}

func appended(step int64, record, frame []byte) write {
	return write{
		func(l checkpoint.Log) error { return l.Append(step, record, frame) },
		func(h *history) { h.model.Append(step, record, frame) },
	}
}

func changed(text string) write {
	return write{
		func(l checkpoint.Log) error { return l.AddChange([]byte(text)) },
		func(h *history) { h.changes = append(h.changes, []byte(text)) },
	}
}

func truncated(from int64) write {
	return write{
		func(l checkpoint.Log) error { return l.Truncate(from) },
		func(h *history) {
			if h.model.Truncate(from); h.model.First == h.model.Next {
				h.model.First, h.model.Next = 0, 0
			}
		},
	}
}

// aLife has something of everything: a branch, and a log that starts again.
func aLife(bytes int) (writes []write) {
	for step := range int64(6) {
		writes = append(writes, appended(step, noise(bytes, step), nil))
	}
	writes = append(writes, changed("first"), truncated(4), appended(4, noise(bytes, -4), []byte("frame 4")), changed("second"), truncated(0))
	for step := int64(70); step < 77; step++ {
		writes = append(writes, appended(step, noise(bytes, step), noise(int(step)%3*8, step)))
	}
	fence := write{func(l checkpoint.Log) error { return l.Fence(l.Epoch() + 1) }, func(*history) {}}
	return append(writes, changed("third"), fence)
}

// holds says what a log has not of what it should hold, or nil.
func (h *history) holds(l checkpoint.Log) error {
	next := h.model.First
	err := l.Records(0, math.MaxInt64, func(step int64, record []byte) error {
		if step != next || !bytes.Equal(record, h.model.Records[step]) {
			return fmt.Errorf("step %d, in the place of %d, has the record %x", step, next, record)
		}
		next++
		_, frame, ok, err := l.Frame(step)
		if want, has := h.model.Frames[step]; err == nil && has && (!ok || !bytes.Equal(frame, want)) {
			err = fmt.Errorf("step %d has the frame %x", step, frame)
		}
		return err
	})
	if err != nil {
		return err
	}
	if next != h.model.Next {
		return fmt.Errorf("the records end before step %d, not %d", next, h.model.Next)
	}
	changes, err := l.Changes()
	if err == nil && !slices.EqualFunc(changes, h.changes, bytes.Equal) {
		err = fmt.Errorf("the changes are %q, not %q", changes, h.changes)
	}
	for step, want := range h.model.Digests {
		got, ok, readErr := l.ReadDigest(step)
		if err = errors.Join(err, readErr); err == nil && (!ok || !bytes.Equal(got[:], want)) {
			err = fmt.Errorf("step %d has the digest %x (%v)", step, got, ok)
		}
	}
	return err
}

// live does a life's writes and returns what the log then holds. The log stays open: who
// clones its disk has it as after a kill.
func live(t testing.TB, disk vfs.FS, writes []write) *history {
	t.Helper()
	log := open(t, "log", checkpoint.Options{FS: disk})
	h := newHistory()
	for _, w := range writes {
		if err := w.log(log); err != nil {
			t.Fatal(err)
		}
		w.model(h)
	}
	return h
}

// refusedOrWhole opens the log of a disk to read it: it is refused, with what to do, or
// it has all that was acknowledged. It says which.
func refusedOrWhole(t testing.TB, what string, disk vfs.FS, want *history) (refused bool) {
	t.Helper()
	log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: disk, ReadOnly: true})
	if err != nil {
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "log in log") {
			t.Errorf("%s: class %v: %v", what, fault.ClassOf(err), err)
		}
		return true
	}
	defer log.Close()
	if err := want.holds(log); err != nil {
		t.Errorf("%s: the log is taken for whole: %v", what, err)
	}
	return false
}

// TestEveryByte damages a killed log at each byte of each file, and cuts each file at every
// fourth: it is refused, or nothing that was acknowledged is missing.
func TestEveryByte(t *testing.T) {
	disk := vfs.NewCrashableMem()
	want := live(t, disk, aLife(16)[4:15])
	all := filesOf(t, disk.CrashClone(vfs.CrashCloneCfg{}))
	for name, data := range all {
		tried := int64(0)
		var refused atomic.Int64
		var work errgroup.Group
		work.SetLimit(32) // Pebble looks long for the bit, and a stopped log reads slowly
		for at := range data {
			if name == "HIGHWATER" && at%4096 > 120 || strings.HasPrefix(name, "OPTIONS") && at%64 != 0 {
				continue // zeros that nobody reads, and settings, of which some are enough
			}
			flipped := slices.Clone(data)
			flipped[at] ^= 1 << (at % 8)
			damaged := map[string][]byte{"flipped": flipped}
			if tried++; at%4 == 0 {
				damaged["cut"] = data[:at:at]
				tried++
			}
			for what, other := range damaged {
				work.Go(func() error {
					if refusedOrWhole(t, fmt.Sprintf("%s %s at byte %d of %d", name, what, at, len(data)), all.with(name, other).disk(t), want) {
						refused.Add(1)
					}
					return nil
				})
			}
		}
		work.Wait()
		t.Logf("%s: %d of %d refused", name, refused.Load(), tried)
		if strings.HasSuffix(name, ".log") && refused.Load() < tried-40 { // what follows the last write is nothing
			t.Errorf("%s: of %d, only %d were refused", name, tried, refused.Load())
		}
	}
}

// TestEveryFile loses each file of a log, or gets it back as it was at an earlier time,
// alone or with all others but one. A refused log stays as it is, and goes on when the
// files are back.
func TestEveryFile(t *testing.T) {
	disk := vfs.NewCrashableMem()
	log := open(t, "log", checkpoint.Options{FS: disk})
	want := newHistory()
	var copies []files
	for step := range int64(90) {
		switch step {
		case 10, 60:
			if err := log.AddChange(fmt.Append(nil, step)); err != nil {
				t.Fatal(err)
			}
			want.changes = append(want.changes, fmt.Append(nil, step))
		case 20, 80:
			copies = append(copies, filesOf(t, disk.CrashClone(vfs.CrashCloneCfg{})))
		case 50:
			closeLog(t, log)
			copies = append(copies, filesOf(t, disk))
			log = open(t, "log", checkpoint.Options{FS: disk})
		}
		if err := log.Append(step, noise(40<<10, step), nil); err != nil {
			t.Fatal(err)
		}
		want.model.Append(step, noise(40<<10, step), nil)
	}
	all := filesOf(t, disk.CrashClone(vfs.CrashCloneCfg{}))
	refused := 0
	try := func(what string, f files) {
		d := f.disk(t)
		if !refusedOrWhole(t, what, d, want) {
			return
		}
		refused++
		if _, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: d}); err == nil {
			t.Errorf("%s: it is refused to read only", what)
		}
		after := filesOf(t, d)
		delete(after, "LOCK")
		if before := f.with("LOCK", nil); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("%s: the refused log had the files %v, and has %v", what, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
		}
	}
	for name := range all {
		try("without "+name, all.with(name, nil))
		for i, older := range copies {
			if older[name] != nil {
				try(fmt.Sprintf("%s of copy %d", name, i), all.with(name, older[name]))
			}
		}
	}
	for i, older := range copies {
		try(fmt.Sprintf("the mark and copy %d", i), older.with("HIGHWATER", all["HIGHWATER"]))
	}
	if refused < 10 {
		t.Errorf("only %d were refused", refused)
	}
	if refusedOrWhole(t, "as it was", all.disk(t), want) {
		t.Error("an undamaged log is refused")
	}
}

// TestMissing: the error for a log that was cut says what is missing, and what to do.
func TestMissing(t *testing.T) {
	disk := vfs.NewCrashableMem()
	want := live(t, disk, aLife(16))
	all := filesOf(t, disk.CrashClone(vfs.CrashCloneCfg{}))
	for name := range all {
		if strings.HasSuffix(name, ".log") {
			delete(all, name)
		}
	}
	for what, c := range map[string]struct {
		files files
		words []string
	}{
		"no write-ahead log": {all, []string{"steps 70 to 76", "last 3 of 3 changes", "it has no step and 0 changes"}},
		"only the mark":      {files{"HIGHWATER": all["HIGHWATER"]}, []string{"steps 70 to 76", "last 3 of 3 changes"}},
		"no mark":            {filesOf(t, disk).with("HIGHWATER", nil), []string{"HIGHWATER", "is missing"}},
		"an empty mark":      {filesOf(t, disk).with("HIGHWATER", []byte{}), []string{"HIGHWATER", "is damaged"}},
		"a broken mark":      {filesOf(t, disk).with("HIGHWATER", make([]byte, 8192)), []string{"HIGHWATER", "is damaged"}},
	} {
		for _, readOnly := range []bool{false, true} {
			_, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: c.files.disk(t), ReadOnly: readOnly})
			if err == nil {
				t.Errorf("%s: the log is opened", what)
				continue
			}
			wantError(t, err, fault.User, append(c.words, "log in log is damaged", "from a copy", "resume it from a token")...)
		}
	}
	other := vfs.NewCrashableMem()
	live(t, other, aLife(24))
	_, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: filesOf(t, disk).with("HIGHWATER", contents(t, other, "HIGHWATER")).disk(t)})
	wantError(t, err, fault.User, "another log's")
	if refusedOrWhole(t, "as it was", filesOf(t, disk).disk(t), want) {
		t.Error("an undamaged log is refused")
	}
}

// TestCrashAnywhere takes the machine away before each write and each sync of a log's
// life, with nothing, some or all of what was not synced on the disk. The log opens, to
// be read and to be written, and holds what was acknowledged, and at most the write that
// was on its way.
func TestCrashAnywhere(t *testing.T) {
	for _, size := range []int{16, 40 << 10} { // in the write-ahead log alone, and in tables too
		t.Run(fmt.Sprint("size=", size), func(t *testing.T) { crashAnywhere(t, size) })
	}
}

func crashAnywhere(t *testing.T, size int) {
	life := aLife(size)
	states := []*history{newHistory()}
	for _, w := range life {
		next := states[len(states)-1].clone()
		w.model(next)
		states = append(states, next)
	}
	mem := vfs.NewCrashableMem()
	rng := rand.New(rand.NewPCG(3, 5))
	var mu sync.Mutex // Pebble writes in the background too
	crashes, acked := 0, -1
	spy := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || t.Failed() {
			return nil
		}
		crashes++
		for _, percent := range []int{0, 50, 100} {
			if size > 1000 && (crashes+percent/50)%7 != 0 {
				continue // some are enough
			}
			crashed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})
			what := fmt.Sprintf("crash %d, %d %% unsynced, before operation %d of %s", crashes, percent, op.Kind, op.Path)
			if op.Kind == errorfs.OpFileWriteAt && strings.HasSuffix(op.Path, "HIGHWATER") && percent == 50 {
				mark := contents(t, crashed, "HIGHWATER") // a torn write
				copy(mark[op.Offset+30:], noise(64, int64(crashes)))
				putFile(t, crashed, "HIGHWATER", mark)
			}
			survives(t, what, crashed, states, acked)
		}
		return nil
	}))
	done := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		acked = n
	}
	log := open(t, "log", checkpoint.Options{FS: spy})
	done(0)
	for i, w := range life {
		if i == 8 || i == 15 {
			closeLog(t, log)
			log = open(t, "log", checkpoint.Options{FS: spy})
		}
		if err := w.log(log); err != nil {
			t.Fatal(err)
		}
		done(i + 1)
		if last, ok := log.Last(); ok {
			if err := log.SetDigest(last, [32]byte{byte(i)}); err != nil && !errors.Is(err, checkpoint.ErrDiverged) {
				t.Fatal(err)
			}
		}
	}
	closeLog(t, log)
	t.Logf("%d crashes", crashes)
	if crashes < 100 {
		t.Errorf("only %d crashes were tried", crashes)
	}
}

// survives opens the log after a crash: acked writes were acknowledged, -1 if it was
// never opened.
func survives(t *testing.T, what string, disk *vfs.MemFS, states []*history, acked int) {
	t.Helper()
	for _, readOnly := range []bool{true, false} {
		if readOnly && acked < 0 {
			continue
		}
		log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: disk, ReadOnly: readOnly})
		if err != nil {
			t.Errorf("%s, after %d writes: %v", what, acked, err)
			return
		}
		err = states[max(acked, 0)].holds(log)
		if next := acked + 1; err != nil && 0 < next && next < len(states) && states[next].holds(log) == nil {
			err = nil
		}
		if last, ok := log.Last(); ok && err == nil && !readOnly {
			err = log.Append(last+1, []byte("on it goes"), nil)
		}
		if err := errors.Join(err, log.Close()); err != nil {
			t.Errorf("%s, after %d writes: %v", what, acked, err)
		}
	}
}
