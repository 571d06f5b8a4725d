package checkpoint

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace-data/millrace/internal/fault"
)

// TestReadOnly reads a log without knowing whose it is, and makes none where there
// is none.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{Identity: [32]byte{1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AddChange([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err = Open(dir, Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		changes, err := l.Changes()
		if err != nil || len(changes) != 1 || string(changes[0]) != "one" {
			t.Errorf("%q, %v", changes, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if l, err := Open(dir, Options{ReadOnly: true, Identity: [32]byte{1}}); err != nil || l.Close() != nil {
		t.Errorf("read by its job: %v", err)
	}
	if _, err := Open(dir, Options{ReadOnly: true, Identity: [32]byte{2}}); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "belongs to the job with identity") {
		t.Errorf("read by another job: %v", err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, nowhere := range []string{empty, filepath.Join(dir, "nowhere")} {
		_, err := Open(nowhere, Options{ReadOnly: true})
		if err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "there is no log in "+nowhere) {
			t.Errorf("%s: %v", nowhere, err)
		}
		if left, _ := filepath.Glob(filepath.Join(nowhere, "*")); len(left) > 0 {
			t.Errorf("it left %v", left)
		}
	}
}

// lockless is a file system whose files cannot be locked.
type lockless struct {
	vfs.FS
	refusal error
}

func (l lockless) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: l.refusal}
}

// TestReadOnlyDisk reads a log on a file system that takes no write, and no lock; where only this user may not lock
// it, the message says so.
func TestReadOnlyDisk(t *testing.T) {
	disk := vfs.NewMem()
	logWith(t, "log", disk, "one")
	refused := func(refusal error) vfs.FS {
		return lockless{errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpFileClose {
				return refusal
			}
			return nil
		})), refusal}
	}
	wantLogWith(t, "log", refused(syscall.EROFS), "one")
	_, err := Open("log", Options{FS: refused(syscall.EROFS), Identity: [32]byte{1}})
	if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "a folder that it may write to") {
		t.Errorf("opened to be written: %v", err)
	}
	_, err = Open("log", Options{FS: refused(syscall.EACCES), ReadOnly: true})
	if fault.ClassOf(err) != fault.User || errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "this user must be able to open LOCK") {
		t.Errorf("where the lock is another user's: %v", err)
	}
}
