package checkpoint_test

import (
	"bytes"
	"encoding/hex"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// olderLog is a copy of the log of version 4 in testdata, on a disk of its own.
func olderLog(t *testing.T) *vfs.MemFS {
	t.Helper()
	all := files{}
	names, err := os.ReadDir("testdata/v4/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if all[name.Name()], err = os.ReadFile("testdata/v4/log/" + name.Name()); err != nil {
			t.Fatal(err)
		}
	}
	return all.disk(t)
}

// contentsOf is all that a log gives back.
func contentsOf(t *testing.T, log checkpoint.Reader) (records, changes [][]byte) {
	t.Helper()
	err := log.Records(0, math.MaxInt64, func(_ int64, record []byte) error {
		records = append(records, slices.Clone(record))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if changes, err = log.Changes(); err != nil {
		t.Fatal(err)
	}
	return records, changes
}

// TestOlderLog reads a log that the version before wrote. It stays as it is until
// something is written to it, and is one of this version from then on.
func TestOlderLog(t *testing.T) {
	disk := olderLog(t)
	reader, err := checkpoint.Open("log", checkpoint.Options{ReadOnly: true, FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	records, changes := contentsOf(t, reader)
	if last, _ := reader.Last(); last < 12 || len(records) != int(last)+1 || len(changes) != 1 || reader.Epoch() != 0 {
		t.Fatalf("steps up to %d, %d records, changes %q, epoch %d", last, len(records), changes, reader.Epoch())
	}
	if digest, ok, err := reader.ReadDigest(11); err != nil || !ok || hex.EncodeToString(digest[:4]) != "7efcdac0" {
		t.Errorf("the digest after 12 steps is %x, %v, %v", digest, ok, err)
	}
	closeLog(t, reader)

	opts := checkpoint.Options{FS: disk, Identity: [32]byte(getKey(t, disk, "midentity"))}
	log, err := checkpoint.Open("log", opts)
	if err != nil {
		t.Fatal(err)
	}
	closeLog(t, log)
	if got := getKey(t, disk, "mformat"); got[3] != 4 {
		t.Errorf("it was only opened, and has format version %d", got)
	}
	if log, err = checkpoint.Open("log", opts); err != nil {
		t.Fatal(err)
	}
	if err := log.Fence(3); err != nil {
		t.Fatal(err)
	}
	closeLog(t, log)
	if got := getKey(t, disk, "mformat"); got[3] != 5 {
		t.Errorf("it was written, and has format version %d", got)
	}
	if log, err = checkpoint.Open("log", opts); err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, log)
	again, changesAgain := contentsOf(t, log)
	if !slices.EqualFunc(again, records, bytes.Equal) || !slices.EqualFunc(changesAgain, changes, bytes.Equal) || log.Epoch() != 3 {
		t.Errorf("after the fence: %d records, changes %q, epoch %d", len(again), changesAgain, log.Epoch())
	}
}
