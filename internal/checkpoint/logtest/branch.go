package logtest

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// checkBranches: what a truncation leaves stays, in a branch that has a number.
func checkBranches(t *testing.T, f *Fixture) {
	log := f.open(t)
	write := func(from, to int64, text string) {
		t.Helper()
		for step := from; step < to; step++ {
			a := checkpoint.Append{Step: step, Record: fmt.Appendf(nil, "%s %d", text, step)}
			if checkpoint.Begins(log) || step%4 == 0 {
				a.Frame = fmt.Appendf(nil, "%s before %d", text, step)
			}
			if err := log.Write(a, checkpoint.SetDigest{Step: step, Digest: [32]byte{text[0], byte(step)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	truncate := func(from int64) {
		t.Helper()
		if err := log.Truncate(from); err != nil {
			t.Fatal(err)
		}
	}
	write(10, 30, "a")
	truncate(20)
	write(20, 26, "b")
	truncate(15)
	truncate(12) // nothing was appended: branch 2 begins again
	write(12, 14, "c")
	truncate(10)
	write(400, 403, "d") // nothing of the steps before leads here
	want := map[uint64]string{0: "a10-30", 1: "a10-20 b20-26", 2: "a10-12 c12-14", 3: "d400-403"}
	for range 2 {
		var numbers []uint64
		for _, b := range log.Branches() {
			numbers = append(numbers, b.Number)
			if got := branchText(t, log, b.Number); got != want[b.Number] {
				t.Errorf("branch %d is %q, want %q", b.Number, got, want[b.Number])
			}
		}
		if !slices.Equal(numbers, []uint64{0, 1, 2, 3}) {
			t.Fatalf("branches %v", numbers)
		}
		log = f.again(t, log)
	}
	_, err := log.Branch(4)
	if fault.ClassOf(err) != fault.User {
		t.Errorf("branch 4: %v", err)
	}
}

// branchText says which words the records of a branch have for which steps, and fails unless
// frames and digests are the same branch's.
func branchText(t *testing.T, log checkpoint.Log, number uint64) (text string) {
	t.Helper()
	b, err := log.Branch(number)
	if err != nil {
		t.Fatal(err)
	}
	first, _ := b.First()
	last, _ := b.Last()
	word, from := "", first
	flush := func(to int64) {
		if word != "" {
			text += fmt.Sprintf(" %s%d-%d", word, from, to)
		}
	}
	err = b.Records(math.MinInt64, math.MaxInt64, func(step int64, record []byte) error {
		if now := string(record[:1]); now != word {
			flush(step)
			word, from = now, step
		}
		digest, ok, err := b.ReadDigest(step)
		if err != nil || !ok || digest[0] != record[0] {
			t.Errorf("branch %d: the digest of step %d is %x, %v, %v", number, step, digest, ok, err)
		}
		at, frame, ok, err := b.Frame(step)
		if err != nil || !ok || step-at >= 8 || at == step && !bytes.Equal(frame, fmt.Appendf(nil, "%s before %d", word, at)) {
			t.Errorf("branch %d: the frame of step %d is %q of step %d, %v, %v", number, step, frame, at, ok, err)
		}
		return nil
	})
	if flush(last + 1); err != nil || text == "" {
		t.Fatalf("branch %d: %q, %v", number, text, err)
	}
	return text[1:]
}

// checkTrim: a log lets go of steps up to a key frame, in all branches.
func checkTrim(t *testing.T, f *Fixture) {
	log := f.open(t)
	appendFramed(t, log, 300, 0, 1000)
	if err := log.Truncate(700); err != nil {
		t.Fatal(err)
	}
	appendFramed(t, log, 300, 700, 2000)
	for _, c := range []struct{ before, first, other int64 }{{299, 0, 0}, {650, 600, 600}, {650, 600, 600}, {200, 600, 600}, {950, 900, 900}, {1500, 1500, -1}, {1 << 40, 1800, -1}} {
		trimmed := max(c.before, log.Trimmed())
		if err := log.Trim(c.before); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			wantSteps(t, log, c.first, 1999)
			if at, frame, ok, err := log.Frame(c.first); err != nil || !ok || at != c.first || !bytes.Equal(frame, frameOf(at)) {
				t.Errorf("after Trim(%d), the frame of the first step is %q of step %d, %v, %v", c.before, frame, at, ok, err)
			}
			if log.Trimmed() != trimmed {
				t.Errorf("after Trim(%d), it was trimmed at %d", c.before, log.Trimmed())
			}
			b, err := log.Branch(0)
			if (err == nil) != (c.other >= 0) {
				t.Fatalf("after Trim(%d), branch 0: %v", c.before, err)
			}
			if err == nil {
				if first, _ := b.First(); first != c.other {
					t.Errorf("after Trim(%d), branch 0 begins with step %d, want %d", c.before, first, c.other)
				}
			}
			log = f.again(t, log)
		}
	}
	appendSteps(t, log, 2000, 2003)
	wantSteps(t, log, 1800, 2002)
}

// clone is a copy.
func (m *Model) clone() *Model {
	other := *m
	other.Records, other.Frames, other.Digests = maps.Clone(m.Records), maps.Clone(m.Frames), maps.Clone(m.Digests)
	return &other
}

// wantLeft compares a branch that was left with what it was then. Frames and digests of
// steps that the next branch has too may have come since.
func wantLeft(t *testing.T, log checkpoint.Log, number uint64, m *Model) {
	t.Helper()
	b, err := log.Branch(number)
	if err != nil {
		t.Fatal(err)
	}
	next := m.First
	err = b.Records(math.MinInt64, math.MaxInt64, func(step int64, record []byte) error {
		digest, _, err := b.ReadDigest(step)
		want, known := m.Digests[step]
		if step != next || !bytes.Equal(record, m.Records[step]) || err != nil || known && !bytes.Equal(digest[:], want) {
			t.Fatalf("branch %d: step %d, in the place of %d, has the record %.20q and the digest %x (%v)", number, step, next, record, digest, err)
		}
		next++
		return nil
	})
	if err != nil || next != m.Next {
		t.Fatalf("branch %d ends before step %d, want %d (%v)", number, next, m.Next, err)
	}
}
