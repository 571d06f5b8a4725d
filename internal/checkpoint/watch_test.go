package checkpoint_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
)

// hangs is far longer than anything here takes on a busy machine.
const hangs = time.Minute

// TestFolderGone takes the folder away from under an open log: it stops, whether there is
// something to write or not, and takes nothing more.
func TestFolderGone(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"deleted": os.RemoveAll,
		"moved":   func(dir string) error { return os.Rename(dir, dir+".moved") },
		"replaced by an empty one": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".moved"), os.Mkdir(dir, 0o700))
		},
		"a file in its place": func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600))
		},
		"its mark deleted": func(dir string) error { return os.Remove(filepath.Join(dir, "HIGHWATER")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, idle := range []bool{true, false} {
				dir := filepath.Join(t.TempDir(), "log")
				log, err := checkpoint.Open(dir, checkpoint.Options{Identity: job})
				if err != nil {
					t.Fatal(err)
				}
				appendSteps(t, log, 0, 5)
				if err := log.Err(); err != nil {
					t.Fatal(err)
				}
				if err := take(dir); err != nil {
					t.Fatal(err)
				}
				if idle {
					waitStopped(t, log)
				}
				for _, err := range []error{log.Append(5, recordOf(5), nil), log.AddChange(nil), log.Err(), log.Close()} {
					wantError(t, err, fault.Lost, "log in "+dir, "deleted or replaced", "put the folder back")
				}
			}
		})
	}
}

func waitStopped(t *testing.T, log checkpoint.Log) {
	t.Helper()
	select {
	case <-log.Stopped():
	case <-time.After(hangs):
		t.Fatal("the log goes on")
	}
}

// TestFolderCopied puts a copy in the place of a log's folder: what is written after that
// would not be in it. The folder that was moved away has all that was acknowledged.
func TestFolderCopied(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	log, err := checkpoint.Open(dir, checkpoint.Options{Identity: job})
	if err != nil {
		t.Fatal(err)
	}
	appendSteps(t, log, 0, 5)
	moved := dir + ".moved"
	if err := errors.Join(os.Rename(dir, moved), os.CopyFS(dir, os.DirFS(moved))); err != nil {
		t.Fatal(err)
	}
	for step := int64(5); err == nil && step < 100; step++ { // a look may have come between
		err = log.Append(step, recordOf(step), nil)
	}
	wantError(t, err, fault.Lost, "deleted or replaced")
	log.Close()
	for folder, last := range map[string]int64{dir: 4, moved: 5} { // the last was not acknowledged
		wantSteps(t, open(t, folder, checkpoint.Options{}), 0, last)
	}
}

// TestDigestsAreWritten: a digest does not wait for the next step.
func TestDigestsAreWritten(t *testing.T) {
	mem := vfs.NewCrashableMem()
	log := open(t, "log", checkpoint.Options{FS: mem})
	appendSteps(t, log, 0, 2)
	if err := log.SetDigest(1, [32]byte{7}); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		after := open(t, "log", checkpoint.Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})})
		if digest, ok, err := after.ReadDigest(1); err != nil || ok && digest != [32]byte{7} {
			t.Fatal(digest, err)
		} else if ok {
			return
		}
		if time.Since(begun) > hangs {
			t.Fatal("the digest was never written")
		}
	}
}

// TestPrivate: nobody else can open what a log has.
func TestPrivate(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "state", "log")
	if err := checkpoint.Probe(dir, checkpoint.Options{}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // files that are made, and files that are used again
		log := open(t, dir, checkpoint.Options{})
		last, _ := log.Last()
		for step := last + 1; step < last+40; step++ {
			if err := log.Append(step, bulk(step), nil); err != nil {
				t.Fatal(err)
			}
		}
		wantPrivate(t, filepath.Join(top, "state"))
		closeLog(t, log)
		wantPrivate(t, filepath.Join(top, "state"))
	}
}

func wantPrivate(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return nil // Pebble removed it
		}
		want := os.FileMode(0o600)
		if entry.IsDir() {
			want = 0o700
		}
		if info, err := entry.Info(); err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWideFolder: a folder that somebody made keeps its mode; files in it are private, and
// others who could remove them learn of.
func TestWideFolder(t *testing.T) {
	for mode, warned := range map[os.FileMode]bool{0o755: false, 0o770: true, 0o777: true} {
		dir := t.TempDir()
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		log := open(t, dir, checkpoint.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		appendSteps(t, log, 0, 2)
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v: now %v, %v", mode, info.Mode(), err)
		}
		names, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range names {
			if info, err := entry.Info(); err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", entry.Name(), info.Mode())
			}
		}
		if strings.Contains(said.String(), "other users may write") != warned {
			t.Errorf("mode %v: the log says %q", mode, said.String())
		}
	}
}

// TestNewFolderStays: all folders that a log is the reason of survive a crash.
func TestNewFolderStays(t *testing.T) {
	mem := vfs.NewCrashableMem()
	dir := "/var/lib/job/log"
	if err := checkpoint.Probe(dir, checkpoint.Options{FS: mem}); err != nil {
		t.Fatal(err)
	}
	appendSteps(t, open(t, dir, checkpoint.Options{FS: mem}), 0, 3)
	wantSteps(t, open(t, dir, checkpoint.Options{FS: mem.CrashClone(vfs.CrashCloneCfg{})}), 0, 2)
}
