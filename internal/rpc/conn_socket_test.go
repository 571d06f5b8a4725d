package rpc_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
)

// leave leaves a socket behind that nobody listens on, as of a process that is killed.
func leave(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// wantReached wants somebody to listen on a socket.
func wantReached(t *testing.T, path string) {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

// TestSocketTakenTogether: of several that start at a time on a socket that was left behind, or on none, one listens,
// and is reached when the others are gone. Nothing is left in the folder.
func TestSocketTakenTogether(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	for round := range 300 {
		if round%3 > 0 {
			leave(t, path)
		}
		const starting = 3
		var listeners [starting]net.Listener
		var errs [starting]error
		begin := make(chan struct{})
		var done sync.WaitGroup
		for i := range starting {
			done.Go(func() {
				<-begin
				listeners[i], errs[i] = rpc.Listen("unix:"+path, rpc.Security{})
			})
		}
		close(begin)
		done.Wait()
		var winner net.Listener
		for i, l := range listeners {
			switch {
			case errs[i] == nil && winner == nil:
				winner = l
			case errs[i] == nil:
				l.Close()
				t.Errorf("round %d: two listen", round)
			case !errors.Is(errs[i], syscall.EADDRINUSE) || fault.ClassOf(errs[i]) != fault.User || !strings.Contains(errs[i].Error(), "is another service using it?"):
				t.Errorf("round %d: %v", round, errs[i])
			}
		}
		if winner == nil {
			t.Fatalf("round %d: nobody listens", round)
		}
		wantReached(t, path)
		if err := winner.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Fatalf("round %d: %v is left, %v", round, left, err)
		}
	}
}

// TestSocketOfAnother: who ends leaves a path alone that another one listens on by now, however often it is closed.
func TestSocketOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var both [2]net.Listener
	for i := range both {
		_ = os.Remove(path)
		l, err := rpc.Listen("unix:"+path, rpc.Security{})
		if err != nil {
			t.Fatal(err)
		}
		both[i] = l
	}
	for range 2 {
		both[0].Close()
		wantReached(t, path)
	}
	if err := both[1].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its own path is left: %v", err)
	}
}
