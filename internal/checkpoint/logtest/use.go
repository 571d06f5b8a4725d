package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// checkChanges: changes come back in their order, after a crash too, and a truncation
// leaves them.
func checkChanges(t *testing.T, f *Fixture) {
	log := f.open(t)
	var want []string
	for i := range 12 {
		want = append(want, fmt.Sprintf(`{"step":%d,"pause":"web"}`, 20-i))
		if err := log.AddChange([]byte(want[i])); err != nil {
			t.Fatal(err)
		}
	}
	appendSteps(t, log, 0, 10)
	if err := log.Truncate(4); err != nil {
		t.Fatal(err)
	}
	if f.Crash != nil {
		f.Crash()
	} else {
		closeLog(t, log)
	}
	log = f.open(t)
	if err := log.AddChange([]byte("last")); err != nil {
		t.Fatal(err)
	}
	got, err := log.Changes()
	if want = append(want, "last"); err != nil || fmt.Sprintf("%s", got) != fmt.Sprint(want) {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	wantSteps(t, log, 0, 3)
}

// checkCopies: what was written and what was read is nobody else's to change.
func checkCopies(t *testing.T, f *Fixture) {
	log := f.open(t)
	record, frame, change := recordOf(0), frameOf(0), []byte("change")
	if err := errors.Join(log.Append(0, record, frame), log.AddChange(change)); err != nil {
		t.Fatal(err)
	}
	record[0], frame[0], change[0] = 0, 0, 0
	for range 2 {
		_, gotFrame, _, err := log.Frame(0)
		changes, err2 := log.Changes()
		if err := errors.Join(err, err2); err != nil || string(gotFrame) != string(frameOf(0)) || string(changes[0]) != "change" {
			t.Fatalf("%q, %q, %v", gotFrame, changes, err)
		}
		gotFrame[0], changes[0][0] = 0, 0
	}
	wantSteps(t, log, 0, 0)
}

// checkWhose: a log is one job's, and in one hand at a time.
func checkWhose(t *testing.T, f *Fixture) {
	log := f.open(t)
	_, err := f.Open(checkpoint.Options{Identity: Job})
	wantUser(t, err, "open already")
	appendSteps(t, log, 0, 3) // the first one is not disturbed
	closeLog(t, log)
	_, err = f.Open(checkpoint.Options{Identity: [32]byte{0xab}})
	wantUser(t, err, fmt.Sprintf("%x", [32]byte{0xab}))
	wantSteps(t, f.open(t), 0, 2) // the refusals let go of it
}

// checkReadOnly: a log is read by its job and by whoever does not say whose it is, and
// none is made to be read.
func checkReadOnly(t *testing.T, f *Fixture) {
	_, err := f.Open(checkpoint.Options{ReadOnly: true})
	wantUser(t, err, "there is no log")
	log := f.open(t)
	appendSteps(t, log, 0, 3)
	closeLog(t, log)
	for _, whose := range [][32]byte{{}, Job} {
		log, err := f.Open(checkpoint.Options{ReadOnly: true, Identity: whose})
		if err != nil {
			t.Fatal(err)
		}
		wantSteps(t, log, 0, 2)
		closeLog(t, log)
	}
	_, err = f.Open(checkpoint.Options{ReadOnly: true, Identity: [32]byte{2}})
	wantUser(t, err, "identity")
}

func checkClosed(t *testing.T, f *Fixture) {
	log := f.open(t)
	appendSteps(t, log, 0, 3)
	closeLog(t, log)
	closeLog(t, log)
	_, _, _, errFrame := log.Frame(1)
	_, errChanges := log.Changes()
	_, _, errDigest := log.ReadDigest(1)
	_, errGenerations := log.Generations()
	for _, err := range []error{
		log.Append(3, nil, nil), log.SetDigest(1, [32]byte{}), log.Truncate(1), errFrame, errDigest,
		log.AddChange(nil), errChanges, log.Fence(1), log.SetGeneration(checkpoint.Generation{}), errGenerations, log.Records(0, 3, func(int64, []byte) error { return nil }),
	} {
		if !errors.Is(err, checkpoint.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	}
}

// checkReaders reads all the time while steps are appended: readers see
// a prefix without holes, and never wait for a writer's end.
func checkReaders(t *testing.T, f *Fixture) {
	log := f.open(t)
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
	all.Go(func() { appendFramed(t, log, 8, 0, steps) })
	all.Wait()
}

// checkWriters: of several that append the same steps, all succeed.
func checkWriters(t *testing.T, f *Fixture) {
	log := f.open(t)
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

// checkCloseWaits closes while calls are in progress: they end well or with ErrClosed.
func checkCloseWaits(t *testing.T, f *Fixture) {
	for range 8 {
		log := f.open(t)
		begin := int64(0)
		if last, ok := log.Last(); ok {
			begin = last + 1
		}
		var all sync.WaitGroup
		started := make(chan struct{})
		all.Go(func() {
			for step := begin; ; step++ {
				if err := log.Append(step, recordOf(step), nil); err != nil {
					if !errors.Is(err, checkpoint.ErrClosed) {
						t.Error(err)
					}
					return
				}
				if step == begin+3 {
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
	}
}
