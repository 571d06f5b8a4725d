package checkpoint_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// TestOldStretch: what was changed or taken away of the steps before the last key frame, in a
// way that no file's checksum tells, is found when it is read. What a planner goes on from is
// read all the same.
func TestOldStretch(t *testing.T) {
	key := func(kind string, numbers ...uint64) []byte {
		b := []byte(kind)
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, n)
		}
		return b
	}
	for what, c := range map[string]struct {
		key  []byte
		left bool // it is of steps that were left
	}{
		"a record of branch 0":    {key("r", 300), true},
		"a record of branch 1":    {key("R", 1, 300), false},
		"a key frame of branch 1": {key("F", 1, 300), false},
		"a digest of branch 1":    {key("D", 1, 300), false},
	} {
		for _, value := range [][]byte{nil, []byte("other")} {
			fs := vfs.NewMem()
			log := open(t, "log", checkpoint.Options{FS: fs})
			appendFramed(t, log, 100, 0, 600)
			if err := log.Truncate(20); err != nil {
				t.Fatal(err)
			}
			appendFramed(t, log, 100, 20, 1000)
			if err := errors.Join(log.SetDigest(300, [32]byte{2}), log.Truncate(950)); err != nil {
				t.Fatal(err)
			}
			appendSteps(t, log, 950, 1000)
			closeLog(t, log)
			tamper(t, fs, c.key, value)
			t.Run(what, func(t *testing.T) { wantFound(t, fs, c.left) })
		}
	}
}

// tamper changes a key with Pebble alone, or takes it away.
func tamper(t *testing.T, fs vfs.FS, key, value []byte) {
	t.Helper()
	if getKey(t, fs, string(key)); value != nil { // it is there
		setKey(t, fs, string(key), value)
		return
	}
	db, err := pebble.Open("log", &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatNewest, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Delete(key, pebble.Sync), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// wantFound wants the damage at step 300 found where it is read, and not before.
func wantFound(t *testing.T, fs vfs.FS, left bool) {
	log := open(t, "log", checkpoint.Options{FS: fs})
	appendSteps(t, log, 1000, 1010)
	at, _, ok, err := log.Frame(math.MaxInt64)
	if err != nil || !ok {
		t.Fatalf("the last key frame: step %d, %v, %v", at, ok, err)
	}
	if got := records(t, log, at, 1010); len(got) != int(1010-at) {
		t.Errorf("%d records from step %d on", len(got), at)
	}
	branch, err := log.Branch(0)
	if err != nil {
		t.Fatal(err)
	}
	var steps checkpoint.Steps = log
	if left {
		records(t, log, 0, 1010)
		steps = branch
	}
	damaged := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, checkpoint.ErrDamaged) || fault.ClassOf(err) != fault.User {
			t.Errorf("%s: %v, want damage", what, err)
		}
	}
	_, _, err = steps.ReadDigest(301)
	damaged("a digest", err)
	_, _, _, err = steps.Frame(310)
	damaged("a key frame", err)
	damaged("records", steps.Records(0, 400, func(int64, []byte) error { return nil }))
	if !left {
		damaged("a replay", log.Append(299, recordOf(299), nil))
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{true, false} {
		_, err = checkpoint.Open("log", checkpoint.Options{FS: fs, Identity: job, ReadOnly: readOnly, Whole: true})
		damaged("all of it", err)
	}
}
