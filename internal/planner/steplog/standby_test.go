package steplog

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// TestStandbyRefused: a planner that stands by for a log which cannot be opened ends with the reason, and does not
// serve. Any other says it once it knows whose log it should be.
func TestStandbyRefused(t *testing.T) {
	opts := Options{Dir: "log", FS: vfs.NewMem()}
	log, err := checkpoint.Open("log", checkpoint.Options{FS: opts.FS})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.Append(0, []byte("record"), []byte("frame")), log.Close(), opts.FS.Remove("log/HIGHWATER")); err != nil {
		t.Fatal(err)
	}
	if taken, err := Take(t.Context(), &opts); taken.log != nil || taken.Epoch != 0 || err != nil {
		t.Errorf("one that does not stand by: %+v, %v", taken, err)
	}
	opts.Standby = true
	if taken, err := Take(t.Context(), &opts); taken.log != nil || !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("one that stands by: %+v, %v", taken, err)
	}
}
