package regular

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestNoRegularFile: what is no regular file is refused, by its name and what it is, and nobody waits for it.
func TestNoRegularFile(t *testing.T) {
	for path, what := range map[string]string{pipe(t): "a named pipe", "/dev/null": "a device"} {
		if _, err := Read(path); err == nil || !strings.HasPrefix(err.Error(), path+" is "+what+", and has to be a regular file") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestText: a pipe that somebody writes to is read to its end, and one that nobody does is an error.
func TestText(t *testing.T) {
	path := pipe(t)
	if _, err := Text(path); err == nil || !strings.HasPrefix(err.Error(), path+" is a named pipe, and nothing comes out of it") {
		t.Errorf("a pipe without a writer: %v", err)
	}
	writer, err := os.OpenFile(path, os.O_RDWR, 0) // it waits for nobody
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("name: x\n", 100_000)
	wrote := make(chan error)
	go func() {
		_, err := writer.WriteString(want)
		wrote <- errors.Join(err, writer.Close())
	}()
	if got, err := Text(path); err != nil || string(got) != want {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	if err := <-wrote; err != nil {
		t.Error(err)
	}
}
