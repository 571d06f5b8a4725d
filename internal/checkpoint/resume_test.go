package checkpoint_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// TestResume opens a log without knowing whose it is, to raise its epoch.
func TestResume(t *testing.T) {
	fs := vfs.NewMem()
	if log, _, err := checkpoint.Resume("log", checkpoint.Options{FS: fs}); log != nil || err != nil {
		t.Fatalf("without a log: %v, %v", log, err)
	}
	if _, err := fs.Stat("log"); err == nil {
		t.Error("looking for a log made its folder")
	}
	log := open(t, "log", checkpoint.Options{FS: fs})
	if err := log.Append(0, []byte("a"), []byte("f")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := checkpoint.Resume("log", checkpoint.Options{FS: fs}); !errors.Is(err, checkpoint.ErrInUse) {
		t.Errorf("a log that is open: %v, want ErrInUse", err)
	}
	closeLog(t, log)

	log, identity, err := checkpoint.Resume("log", checkpoint.Options{FS: fs})
	if err != nil || identity != job {
		t.Fatalf("identity %x, %v", identity, err)
	}
	if err := errors.Join(log.Fence(log.Epoch()+1), log.Append(1, []byte("b"), nil)); err != nil {
		t.Fatal(err)
	}
	closeLog(t, log)
	log = open(t, "log", checkpoint.Options{FS: fs})
	if last, _ := log.Last(); last != 1 || log.Epoch() != 1 {
		t.Errorf("the log ends at step %d, with epoch %d", last, log.Epoch())
	}
	closeLog(t, log)
}
