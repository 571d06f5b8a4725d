package rpc_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rpc"
)

// TestPortReady: a port that can be opened is found to be so, whatever its kind, and is free again; one that is taken, or not
// this machine's, is refused, and found to be free when it is.
func TestPortReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	port := func(address string) *rpc.Port { return rpc.NewPort(address, "", rpc.Security{}, rpc.MaxControl) }
	for _, address := range []string{"127.0.0.1:0", "unix:" + path} {
		if err := port(address).Ready(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		l, err := rpc.Listen(address, rpc.Security{})
		if err != nil {
			t.Fatalf("%s after the check: %v", address, err)
		}
		taken := port(rpc.Address(l))
		if err := taken.Ready(); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s, which is taken: %v", address, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := taken.Ready(); err != nil {
			t.Errorf("%s, which is free again: %v", address, err)
		}
	}
	if left, err := filepath.Glob(path + "*"); len(left) > 0 || err != nil {
		t.Errorf("%q are left, %v", left, err)
	}
	if err := rpc.NewPort("192.0.2.7:7070", "", rpc.Security{Insecure: true}, rpc.MaxControl).Ready(); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "no such address") {
		t.Errorf("an address of another machine: %v", err)
	}
}

// TestPortTaken: a port that is taken after it was looked at is looked at again once it could not be opened, and no more often.
func TestPortTaken(t *testing.T) {
	address := "unix:" + filepath.Join(t.TempDir(), "s")
	port := rpc.NewPort(address, "", rpc.Security{}, rpc.MaxControl)
	if err := port.Ready(); err != nil {
		t.Fatal(err)
	}
	l, err := rpc.Listen(address, rpc.Security{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := port.Ready(); err != nil {
		t.Errorf("before it is opened: %v", err)
	}
	if err := port.Open(); fault.ClassOf(err) != fault.User || err == nil {
		t.Errorf("it opens: %v", err)
	}
	if err := port.Ready(); fault.ClassOf(err) != fault.User || err == nil {
		t.Errorf("after it could not be opened: %v", err)
	}
}

// TestPortShut: a port refuses calls until it is open, and one that is shut again leaves neither its address taken nor an access key.
func TestPortShut(t *testing.T) {
	keys, path := t.TempDir(), filepath.Join(t.TempDir(), "s")
	t.Setenv("MILLRACE_KEY_DIR", keys)
	t.Setenv("MILLRACE_ACCESS_KEY", "")
	t.Setenv("MILLRACE_ACCESS_KEY_FILE", "")
	port := rpc.NewPort("unix:"+path, "", rpc.Security{}, rpc.MaxControl)
	for range 2 {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			t.Error("a port that is shut takes a call")
		}
		if err := port.Open(); err != nil {
			t.Fatal(err)
		}
		if conn, err := net.Dial("unix", path); err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
		if left, _ := os.ReadDir(keys); len(left) == 0 {
			t.Error("a planner's port has no access key")
		}
		port.Shut()
	}
	if left, _ := os.ReadDir(keys); len(left) > 0 {
		t.Errorf("%s is left", left[0].Name())
	}
}
