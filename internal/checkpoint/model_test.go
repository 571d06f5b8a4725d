package checkpoint_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
)

// model is what a Log should hold: maps by step.
type model struct {
	records, frames, digests map[int64][]byte
	first, next              int64
}

func newModel() *model {
	return &model{records: map[int64][]byte{}, frames: map[int64][]byte{}, digests: map[int64][]byte{}}
}

func (m *model) has(step int64) bool { return m.first <= step && step < m.next }

// append returns the sentinel that Log.Append should give.
func (m *model) append(step int64, record, frame []byte) error {
	switch {
	case m.has(step):
		known, framed := m.frames[step]
		if !bytes.Equal(m.records[step], record) || frame != nil && framed && !bytes.Equal(known, frame) {
			return checkpoint.ErrDiverged
		}
	case step < 0 || m.first < m.next && step != m.next:
		return checkpoint.ErrOrder
	default:
		if m.first == m.next {
			m.first = step
		}
		m.next = step + 1
		m.records[step] = record
	}
	if frame != nil {
		m.frames[step] = frame
	}
	return nil
}

func (m *model) setDigest(step int64, digest []byte) error {
	if !m.has(step) {
		return checkpoint.ErrOrder
	}
	if known, ok := m.digests[step]; ok && !bytes.Equal(known, digest) {
		return checkpoint.ErrDiverged
	}
	m.digests[step] = digest
	return nil
}

func (m *model) truncate(from int64) {
	from = max(from, m.first)
	for step := from; step < m.next; step++ {
		delete(m.records, step)
		delete(m.frames, step)
		delete(m.digests, step)
	}
	m.next = min(m.next, from)
}

// TestModel does random things to a Log and to maps, closing, crashing and
// opening it now and then, and compares all there is to see.
func TestModel(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { runModel(t, rand.New(rand.NewPCG(seed, 14))) })
	}
}

func runModel(t *testing.T, rng *rand.Rand) {
	mem := vfs.NewCrashableMem()
	m := newModel()
	log := open(t, "log", checkpoint.Options{FS: mem})
	for range 300 {
		step := m.next + rng.Int64N(3)*rng.Int64N(2) - rng.Int64N(8)*rng.Int64N(2)
		switch op := rng.IntN(20); {
		case op < 13:
			record, frame := value(rng, step), []byte(nil)
			if rng.IntN(4) == 0 {
				frame = value(rng, -step)
			}
			wantSame(t, log.Append(step, record, frame), m.append(step, record, frame))
		case op < 16:
			var digest [32]byte
			binary.BigEndian.PutUint64(digest[:], uint64(step)+rng.Uint64N(8)/7)
			wantSame(t, log.SetDigest(step, digest), m.setDigest(step, digest[:]))
		case op == 16:
			wantSame(t, log.Truncate(step), nil)
			m.truncate(step)
		case op == 17:
			closeLog(t, log)
			log = open(t, "log", checkpoint.Options{FS: mem})
		case op == 18: // a crash that loses nothing but digests: all else is synced
			mem = mem.CrashClone(vfs.CrashCloneCfg{})
			log = open(t, "log", checkpoint.Options{FS: mem})
			keepDigests(t, log, m)
		}
		if rng.IntN(25) == 0 {
			wantModel(t, log, m)
		}
	}
	wantModel(t, log, m)
}

// value mostly depends on the step alone, so that replays are exact; sizes
// from 7 bytes to 9 KB.
func value(rng *rand.Rand, step int64) []byte {
	v := fmt.Appendf(nil, "value %d", step)
	if step%16 == 0 {
		v = bytes.Repeat(v, 1000)
	}
	if rng.IntN(16) == 0 {
		v = append(v, '!')
	}
	return v
}

func wantSame(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// keepDigests forgets the model's digests that a crash took.
func keepDigests(t *testing.T, log *checkpoint.Log, m *model) {
	t.Helper()
	for step, want := range m.digests {
		got, ok, err := log.ReadDigest(step)
		if err != nil || ok && !bytes.Equal(got[:], want) {
			t.Fatalf("digest of step %d after a crash: %x, %v, %v", step, got, ok, err)
		}
		if !ok {
			delete(m.digests, step)
		}
	}
}

func wantModel(t *testing.T, log *checkpoint.Log, m *model) {
	t.Helper()
	first, ok := log.First()
	last, ok2 := log.Last()
	if ok != (m.first < m.next) || ok2 != ok || ok && (first != m.first || last != m.next-1) {
		t.Fatalf("steps %d to %d (%v), want %d to %d", first, last, ok, m.first, m.next-1)
	}
	next := m.first
	err := log.Records(math.MinInt64, math.MaxInt64, func(step int64, record []byte) error {
		if step != next || !bytes.Equal(record, m.records[step]) {
			t.Fatalf("step %d, in the place of %d, has the record %.20q", step, next, record)
		}
		next++
		return nil
	})
	if err != nil || next != m.next {
		t.Fatalf("records end before step %d, want %d (error %v)", next, m.next, err)
	}
	wantFrame, framed := int64(0), false
	for step := m.first - 1; step <= m.next; step++ {
		if _, ok := m.frames[step]; ok {
			wantFrame, framed = step, true
		}
		at, frame, ok, err := log.Frame(step)
		if err != nil || ok != framed || ok && (at != wantFrame || !bytes.Equal(frame, m.frames[at])) {
			t.Fatalf("Frame(%d) = step %d, %.20q, %v, %v; want step %d, %v", step, at, frame, ok, err, wantFrame, framed)
		}
		digest, ok, err := log.ReadDigest(step)
		want, has := m.digests[step]
		if err != nil || ok != has || ok && !bytes.Equal(digest[:], want) {
			t.Fatalf("ReadDigest(%d) = %x, %v, %v; want %x", step, digest, ok, err, want)
		}
	}
}

// TestConcurrentReaders reads all the time while steps are appended: readers see
// a prefix without holes, and never wait for a writer's end.
func TestConcurrentReaders(t *testing.T) {
	log := open(t, "log", checkpoint.Options{FS: vfs.NewMem(), KeyFrameEvery: 8})
	const steps = 400
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for seen := int64(0); seen < steps; {
				last, ok := log.Last()
				got := records(t, log, 0, math.MaxInt64)
				if ok && int64(len(got)) <= last {
					t.Errorf("%d records after step %d was there", len(got), last)
					return
				}
				seen = int64(len(got))
				at, frame, ok, err := log.Frame(seen - 1)
				if err != nil || ok && !bytes.Equal(frame, frameOf(at)) {
					t.Errorf("frame %q of step %d, error %v", frame, at, err)
					return
				}
			}
		})
	}
	all.Go(func() { appendSteps(t, log, 0, steps) })
	all.Wait()
}

// TestConcurrentWriters: of several that append the same steps, all succeed.
func TestConcurrentWriters(t *testing.T) {
	log := open(t, "log", checkpoint.Options{FS: vfs.NewMem()})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for step := range int64(50) {
				if err := log.Append(step, recordOf(step), nil); err != nil {
					t.Error(err)
				}
				if err := log.SetDigest(step, [32]byte{byte(step)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	wantSteps(t, log, 0, 49)
}

// TestCloseWaits closes while calls are in progress: they end well or with ErrClosed.
func TestCloseWaits(t *testing.T) {
	for range 8 {
		fs := vfs.NewMem()
		log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		started := make(chan struct{})
		all.Go(func() {
			for step := int64(0); ; step++ {
				if err := log.Append(step, recordOf(step), nil); err != nil {
					if !errors.Is(err, checkpoint.ErrClosed) {
						t.Error(err)
					}
					return
				}
				if step == 3 {
					close(started)
				}
			}
		})
		all.Go(func() {
			for {
				err := log.Records(0, math.MaxInt64, func(int64, []byte) error { return nil })
				if errors.Is(err, checkpoint.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
		<-started
		closeLog(t, log)
		all.Wait()
		open(t, "log", checkpoint.Options{FS: fs})
	}
}
