package logtest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// Model is what a log should hold: maps by step, of the steps First <= step < Next.
type Model struct {
	Records, Frames, Digests map[int64][]byte
	First, Next              int64
}

// NewModel is of an empty log.
func NewModel() *Model {
	return &Model{Records: map[int64][]byte{}, Frames: map[int64][]byte{}, Digests: map[int64][]byte{}}
}

func (m *Model) has(step int64) bool { return m.First <= step && step < m.Next }

// Append is Log.Append; it returns the sentinel of its error.
func (m *Model) Append(step int64, record, frame []byte) error {
	switch {
	case m.has(step):
		known, framed := m.Frames[step]
		if !bytes.Equal(m.Records[step], record) || frame != nil && framed && !bytes.Equal(known, frame) {
			return checkpoint.ErrDiverged
		}
	case step < 0 || m.First < m.Next && step != m.Next:
		return checkpoint.ErrOrder
	default:
		if m.First == m.Next {
			m.First = step
		}
		m.Next = step + 1
		m.Records[step] = record
	}
	if frame != nil {
		m.Frames[step] = frame
	}
	return nil
}

// SetDigest is Log.SetDigest.
func (m *Model) SetDigest(step int64, digest []byte) error {
	if !m.has(step) {
		return checkpoint.ErrOrder
	}
	if known, ok := m.Digests[step]; ok && !bytes.Equal(known, digest) {
		return checkpoint.ErrDiverged
	}
	m.Digests[step] = digest
	return nil
}

// Truncate is Log.Truncate.
func (m *Model) Truncate(from int64) {
	from = max(from, m.First)
	for step := from; step < m.Next; step++ {
		delete(m.Records, step)
		delete(m.Frames, step)
		delete(m.Digests, step)
	}
	m.Next = min(m.Next, from)
}

// checkModel does random things to a log and to maps, closing, crashing and opening it
// now and then, and compares all there is to see.
func checkModel(t *testing.T, f *Fixture) {
	rng := rand.New(rand.NewPCG(1, 14))
	m := NewModel()
	log := f.open(t)
	left := map[uint64]*Model{}
	number := func() uint64 { all := log.Branches(); return all[len(all)-1].Number }
	rounds := 1200
	if testing.Short() { // with the race detector; one goroutine writes here
		rounds = 600
	}
	for range rounds {
		step := m.Next + rng.Int64N(3)*rng.Int64N(2) - rng.Int64N(8)*rng.Int64N(2)
		switch op := rng.IntN(20); {
		case op < 13:
			record, frame := value(rng, step), []byte(nil)
			if rng.IntN(4) == 0 {
				frame = value(rng, -step)
			}
			wantSame(t, log.Append(step, record, frame), m.Append(step, record, frame))
		case op < 16:
			var digest [32]byte
			binary.BigEndian.PutUint64(digest[:], uint64(step)+rng.Uint64N(8)/7)
			wantSame(t, log.SetDigest(step, digest), m.SetDigest(step, digest[:]))
		case op == 16:
			before, was := number(), m.clone()
			wantSame(t, log.Truncate(step), nil)
			m.Truncate(step)
			if number() > before {
				left[before] = was
			}
		case op == 17:
			closeLog(t, log)
			log = f.open(t)
		case op == 18 && f.Crash != nil:
			f.Crash()
			log = f.open(t)
			keepDigests(t, log, m)
			for _, was := range left {
				clear(was.Digests)
			}
		}
		if rng.IntN(25) == 0 {
			wantModel(t, log, m)
		}
	}
	wantModel(t, log, m)
	for number, was := range left {
		wantLeft(t, log, number, was)
	}
	if len(left) < 10 {
		t.Errorf("only %d branches were left", len(left))
	}
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
func keepDigests(t *testing.T, log checkpoint.Log, m *Model) {
	t.Helper()
	for step, want := range m.Digests {
		got, ok, err := log.ReadDigest(step)
		if err != nil || ok && !bytes.Equal(got[:], want) {
			t.Fatalf("digest of step %d after a crash: %x, %v, %v", step, got, ok, err)
		}
		if !ok {
			delete(m.Digests, step)
		}
	}
}

func wantModel(t *testing.T, log checkpoint.Log, m *Model) {
	t.Helper()
	first, ok := log.First()
	last, ok2 := log.Last()
	if ok != (m.First < m.Next) || ok2 != ok || ok && (first != m.First || last != m.Next-1) {
		t.Fatalf("steps %d to %d (%v), want %d to %d", first, last, ok, m.First, m.Next-1)
	}
	next := m.First
	err := log.Records(math.MinInt64, math.MaxInt64, func(step int64, record []byte) error {
		if step != next || !bytes.Equal(record, m.Records[step]) {
			t.Fatalf("step %d, in the place of %d, has the record %.20q", step, next, record)
		}
		next++
		return nil
	})
	if err != nil || next != m.Next {
		t.Fatalf("records end before step %d, want %d (error %v)", next, m.Next, err)
	}
	wantFrame, framed := int64(0), false
	for step := m.First - 1; step <= m.Next; step++ {
		if _, ok := m.Frames[step]; ok {
			wantFrame, framed = step, true
		}
		at, frame, ok, err := log.Frame(step)
		if err != nil || ok != framed || ok && (at != wantFrame || !bytes.Equal(frame, m.Frames[at])) {
			t.Fatalf("Frame(%d) = step %d, %.20q, %v, %v; want step %d, %v", step, at, frame, ok, err, wantFrame, framed)
		}
		digest, ok, err := log.ReadDigest(step)
		want, has := m.Digests[step]
		if err != nil || ok != has || ok && !bytes.Equal(digest[:], want) {
			t.Fatalf("ReadDigest(%d) = %x, %v, %v; want %x", step, digest, ok, err, want)
		}
	}
}
