package checkpoint_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
)

// TestChanges: changes come back in their order, after a crash too, and a
// truncation leaves them.
func TestChanges(t *testing.T) {
	fs := vfs.NewCrashableMem()
	log, err := checkpoint.Open("log", checkpoint.Options{Identity: job, FS: fs})
	if err != nil {
		t.Fatal(err)
	}
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
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	closeLog(t, log)
	again := open(t, "log", checkpoint.Options{FS: crashed})
	if err := again.AddChange([]byte("last")); err != nil {
		t.Fatal(err)
	}
	got, err := again.Changes()
	if want = append(want, "last"); err != nil || fmt.Sprintf("%s", got) != fmt.Sprint(want) {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	wantSteps(t, again, 0, 3)
}

func TestNoChanges(t *testing.T) {
	log := open(t, t.TempDir(), checkpoint.Options{})
	if got, err := log.Changes(); len(got) != 0 || err != nil {
		t.Error(got, err)
	}
}
