package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace-data/millrace/internal/fault"
)

// mounted is a file system in which the folder log is a mount point. Renaming fails for good after a number of files.
type mounted struct {
	vfs.FS
	refusal error
	left    int
}

func (m *mounted) Rename(from, to string) error {
	if from == "log" {
		return m.refusal
	}
	if m.left--; m.left < 0 {
		return syscall.EIO
	}
	return m.FS.Rename(from, to)
}

// logWith begins a log with a change.
func logWith(t *testing.T, dir string, disk vfs.FS, change string) {
	t.Helper()
	log, err := Open(dir, Options{Identity: [32]byte{1}, FS: disk})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(log.AddChange([]byte(change)), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// wantLogWith wants a log that has a change.
func wantLogWith(t *testing.T, dir string, disk vfs.FS, change string) {
	t.Helper()
	log, err := Open(dir, Options{FS: disk, ReadOnly: true, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := log.Changes(); err != nil || len(changes) != 1 || string(changes[0]) != change {
		t.Errorf("%s has %q, want %s: %v", dir, changes, change, err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

// TestSetAsideMounted: a folder that cannot be renamed keeps what was put aside in a folder of its own, and a second
// time in place of that. What is cut off leaves no log, and goes on.
func TestSetAsideMounted(t *testing.T) {
	for _, refusal := range []error{syscall.EBUSY, syscall.EXDEV, syscall.EROFS, syscall.EACCES} {
		for n := 0; ; n++ {
			disk := vfs.NewMem()
			logWith(t, "log", disk, "zero")
			if err := SetAside("log", Options{FS: &mounted{disk, refusal, 99}}); err != nil {
				t.Fatalf("%v: %v", refusal, err)
			}
			if err := disk.MkdirAll("log/lost+found", 0o700); err != nil {
				t.Fatal(err)
			}
			logWith(t, "log", disk, "one")
			err := SetAside("log", Options{FS: &mounted{disk, refusal, n}})
			if err == nil && n > 5 { // none failed
				break
			}
			if fault.ClassOf(err) != fault.Lost {
				t.Fatalf("%v, and the end after %d files: class %v, %v", refusal, n, fault.ClassOf(err), err)
			}
			for _, readOnly := range []bool{true, false} {
				if _, err := Open("log", Options{Identity: [32]byte{1}, FS: disk, ReadOnly: readOnly}); !errors.Is(err, ErrDamaged) {
					t.Fatalf("opened where putting aside ended after %d files: %v", n, err)
				}
			}
			if err := SetAside("log/", Options{FS: &mounted{disk, refusal, 99}}); err != nil {
				t.Fatal(err)
			}
			if names, err := disk.List("log"); err != nil || len(names) != 2 {
				t.Fatalf("the folder has %v, %v", names, err)
			}
			wantLogWith(t, "log/replaced", disk, "one")
			logWith(t, "log", disk, "two")
			wantLogWith(t, "log", disk, "two")
		}
	}
}

// TestSetAsideLink: what a link leads to stays where it is.
func TestSetAsideLink(t *testing.T) {
	dir := t.TempDir()
	folder, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	logWith(t, folder, nil, "one")
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	if err := SetAside(link, Options{}); err != nil {
		t.Fatal(err)
	}
	logWith(t, link, nil, "two")
	wantLogWith(t, filepath.Join(folder, "replaced"), nil, "one")
	wantLogWith(t, folder, nil, "two")
	if err := SetAside(folder, Options{}); err != nil {
		t.Fatal(err)
	}
	wantLogWith(t, Aside(folder), nil, "two")
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || !slices.Equal(names, []string{link, Aside(folder)}) {
		t.Errorf("%v, %v", names, err)
	}
}
