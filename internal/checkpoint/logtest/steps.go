package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

func checkRecords(t *testing.T, f *Fixture) {
	log := f.open(t)
	appendSteps(t, log, 10, 20)
	for _, test := range []struct {
		from, to int64
		want     string
	}{
		{0, 100, "[10 11 12 13 14 15 16 17 18 19]"}, {12, 14, "[12 13]"}, {19, 20, "[19]"},
		{-5, 11, "[10]"}, {20, 30, "[]"}, {0, 10, "[]"}, {14, 12, "[]"}, {math.MinInt64, math.MaxInt64, "[10 11 12 13 14 15 16 17 18 19]"},
	} {
		if got := fmt.Sprint(records(t, log, test.from, test.to)); got != test.want {
			t.Errorf("Records(%d, %d) gave %s, want %s", test.from, test.to, got, test.want)
		}
	}
	stop := errors.New("enough")
	seen := 0
	err := log.Records(10, 20, func(step int64, _ []byte) error {
		if seen++; step == 12 {
			return stop
		}
		return nil
	})
	if err != stop || seen != 3 {
		t.Errorf("after %d records: %v, want the callback's own error after 3", seen, err)
	}
}

func checkOrder(t *testing.T, f *Fixture) {
	log := f.open(t)
	for _, step := range []int64{-1, math.MaxInt64} {
		if err := log.Append(step, nil, nil); !errors.Is(err, checkpoint.ErrOrder) {
			t.Errorf("Append(%d) on an empty log: %v, want ErrOrder", step, err)
		}
	}
	appendSteps(t, log, 5, 10)
	for _, step := range []int64{0, 4, 11, 100} {
		err := log.Append(step, recordOf(step), nil)
		if !errors.Is(err, checkpoint.ErrOrder) || fault.ClassOf(err) != fault.Bug {
			t.Errorf("Append(%d) on a log of 5 to 9: %v, want ErrOrder", step, err)
		}
	}
	for _, step := range []int64{4, 10} {
		if err := log.SetDigest(step, [32]byte{}); !errors.Is(err, checkpoint.ErrOrder) {
			t.Errorf("SetDigest(%d): %v, want ErrOrder", step, err)
		}
	}
	wantSteps(t, log, 5, 9)
}

func checkReplay(t *testing.T, f *Fixture) {
	log := f.open(t)
	appendSteps(t, log, 0, 3) // a frame with step 0
	if err := log.SetDigest(1, [32]byte{1}); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		log.Append(1, recordOf(1), nil),
		log.Append(0, recordOf(0), nil), // no word about the frame there is
		log.Append(0, recordOf(0), frameOf(0)),
		log.Append(2, recordOf(2), frameOf(2)), // a frame where there was none
		log.Append(2, recordOf(2), frameOf(2)),
		log.SetDigest(1, [32]byte{1}),
	} {
		if err != nil {
			t.Errorf("an exact replay: %v", err)
		}
	}
	for _, err := range []error{
		log.Append(1, []byte("record of step X"), nil),
		log.Append(1, nil, nil),
		log.Append(1, append(recordOf(1), 0), nil),
		log.Append(0, recordOf(0), []byte{}),
		log.Append(2, recordOf(2), []byte("other")),
		log.SetDigest(1, [32]byte{2}),
	} {
		if !errors.Is(err, checkpoint.ErrDiverged) || !strings.Contains(err.Error(), "step ") {
			t.Errorf("a replay with other bytes: %v, want ErrDiverged with the step", err)
		}
	}
	if step, frame, ok, err := log.Frame(2); step != 2 || !bytes.Equal(frame, frameOf(2)) || !ok || err != nil {
		t.Errorf("Frame(2) = %d, %q, %v, %v", step, frame, ok, err)
	}
	wantSteps(t, log, 0, 2)
}

func checkSizes(t *testing.T, f *Fixture) {
	log := f.open(t)
	large := bytes.Repeat([]byte("a frame larger than a database's memory table. "), 1<<17) // 5.6 MB
	for step, frame := range [][]byte{nil, {}, large, nil} {
		if err := log.Append(int64(step), nil, frame); err != nil {
			t.Fatal(err)
		}
	}
	closeLog(t, log)
	log = f.open(t)
	if step, frame, ok, err := log.Frame(1); step != 1 || len(frame) != 0 || frame == nil || !ok || err != nil {
		t.Errorf("the empty frame: %d, %v, %v, %v", step, frame, ok, err)
	}
	if step, frame, ok, err := log.Frame(3); step != 2 || !bytes.Equal(frame, large) || !ok || err != nil {
		t.Errorf("the large frame: %d, %d bytes, %v, %v", step, len(frame), ok, err)
	}
	if err := log.Append(4, make([]byte, checkpoint.MaxBytes), []byte{0}); err == nil {
		t.Error("a record and frame above MaxBytes were taken")
	}
}

// checkTruncate truncates one log again and again, from the end on.
func checkTruncate(t *testing.T, f *Fixture) {
	log := f.open(t)
	appendFramed(t, log, 5, 10, 20)
	for step := int64(10); step < 20; step++ {
		if err := log.SetDigest(step, [32]byte{byte(step)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		from, last, frame int64
	}{{25, 19, 15}, {20, 19, 15}, {19, 18, 15}, {15, 14, 10}, {11, 10, 10}, {3, -1, -1}, {-7, -1, -1}} {
		if err := log.Truncate(test.from); err != nil {
			t.Fatal(err)
		}
		closeLog(t, log)
		log = f.open(t)
		last, ok := log.Last()
		if ok != (test.last >= 0) || ok && last != test.last {
			t.Fatalf("Truncate(%d) left the last step %d (%v), want %d", test.from, last, ok, test.last)
		}
		if step, _, ok, err := log.Frame(math.MaxInt64); err != nil || ok != (test.frame >= 0) || ok && step != test.frame {
			t.Errorf("Truncate(%d) left the frame of step %d (%v, %v), want %d", test.from, step, ok, err, test.frame)
		}
		for step := int64(10); step < 20; step++ {
			if _, ok, err := log.ReadDigest(step); err != nil || ok != (step <= test.last) {
				t.Errorf("Truncate(%d): the digest of step %d is there: %v, %v", test.from, step, ok, err)
			}
		}
	}
	if err := log.Append(15, []byte("the record of another branch"), nil); err != nil {
		t.Error(err)
	}
}
