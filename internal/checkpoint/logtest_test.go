package checkpoint_test

import (
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/checkpoint/logtest"
)

func TestLog(t *testing.T) {
	logtest.Run(t, func(*testing.T) *logtest.Fixture {
		mem := vfs.NewCrashableMem()
		return &logtest.Fixture{
			Open: func(opts checkpoint.Options) (checkpoint.Log, error) {
				opts.FS = mem
				return checkpoint.Open("log", opts)
			},
			Crash: func() { mem = mem.CrashClone(vfs.CrashCloneCfg{}) },
		}
	})
}

// TestLogInFolder: on a real disk, a log makes its folder, and is there when it is opened
// again.
func TestLogInFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	log := open(t, dir, checkpoint.Options{})
	appendFramed(t, log, 4, 6, 20)
	closeLog(t, log)
	wantSteps(t, open(t, dir, checkpoint.Options{}), 6, 19)
}
