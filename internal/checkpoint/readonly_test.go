package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
