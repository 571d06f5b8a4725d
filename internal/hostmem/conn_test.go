package hostmem

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is both sides of a line.
func pair(t *testing.T) (constructor, rank *Conn) {
	t.Helper()
	l, err := Listen(t.TempDir())
	if err != nil {
		t.Skip("no memory is shared here: ", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	came := make(chan *Conn, 1)
	go func() {
		c, _ := l.Accept()
		came <- c
	}()
	if rank, err = Dial(t.Context(), l.Path); err != nil {
		t.Fatal(err)
	}
	constructor = <-came
	t.Cleanup(func() { _ = constructor.Close(); _ = rank.Close() })
	return constructor, rank
}

func text(s string) func([]byte) []byte { return func(b []byte) []byte { return append(b, s...) } }

// TestMessages: messages of all sizes come whole and in order, bodies behind them.
func TestMessages(t *testing.T) {
	up, down := pair(t)
	sizes := []int{0, 1, headSize, bufferSize - headSize, bufferSize, 3*bufferSize + 1}
	go func() {
		for _, n := range sizes {
			_ = up.Send(Waits, 7, text(strings.Repeat("x", n)), nil)
			_ = up.Send(InLine, uint32(n), text(strings.Repeat("y", n)), bytes.Repeat([]byte("z"), 2*n))
		}
		_ = up.Close()
	}()
	for _, n := range sizes {
		m, err := down.Receive()
		if err != nil || m.Kind != Waits || m.Number != 7 || len(m.Payload) != n {
			t.Fatalf("%d bytes: got %d %d with %d bytes, %v", n, m.Kind, m.Number, len(m.Payload), err)
		}
		if m, err = down.Receive(); err != nil || m.Body != uint64(2*n) || string(m.Payload) != strings.Repeat("y", n) {
			t.Fatalf("%d bytes: got a table of %d bytes and a body of %d, %v", n, len(m.Payload), m.Body, err)
		}
		body := make([]byte, m.Body)
		if err := down.ReadBody(body, func() {}); err != nil || !bytes.Equal(body, bytes.Repeat([]byte("z"), 2*n)) {
			t.Fatalf("%d bytes: got another body, %v", n, err)
		}
	}
	if _, err := down.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last message: %v", err)
	}
}

// TestCutOff: a message of which a part came is an error, and no end.
func TestCutOff(t *testing.T) {
	up, down := pair(t)
	if err := errors.Join(up.Half(InRing, 0, text("0123456789"), nil), up.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := down.Receive(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a message: %v", err)
	}
}

// TestTooLarge: what a rank says is not taken at its word.
func TestTooLarge(t *testing.T) {
	up, down := pair(t)
	go func() { _ = down.Send(Where, 0, text(strings.Repeat("x", mostUp+1)), nil) }()
	if _, err := up.Receive(); err == nil || !strings.Contains(err.Error(), "the most is 65536") {
		t.Errorf("a word of more than %d bytes: %v", mostUp, err)
	}
}

// TestMemory: what one side writes, the other one reads and cannot write, and nobody changes its size.
func TestMemory(t *testing.T) {
	up, down := pair(t)
	m, err := Create(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := m.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("the memory was cut")
	}
	if _, err := unix.Mmap(fd, 0, 1<<16, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the memory was mapped for writing once more")
	}
	if _, err := unix.Pwrite(fd, []byte("x"), 0); err == nil {
		t.Error("the memory was written to through its descriptor")
	}
	if err := up.SendMemory(Place{Ring: 3, Size: 1 << 16}, fd); err != nil {
		t.Fatal(err)
	}
	if got, err := down.Receive(); err != nil || got.Kind != NewRing {
		t.Fatalf("got %v, %v", got, err)
	}
	v, err := down.Memory(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	copy(m.Bytes()[100:], "a body")
	if err := m.Close(); err != nil { // as its maker's end does
		t.Fatal(err)
	}
	if got := string(v.Bytes[100:106]); got != "a body" {
		t.Errorf("read %q", got)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnasked: descriptors that a rank sends are nobody's: none stays open in the constructor's process.
func TestUnasked(t *testing.T) {
	up, down := pair(t)
	m, err := Create(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fd, err := m.Descriptor()
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	before := descriptors(t)
	for range 3 {
		if err := down.SendMemory(Place{Ring: 3, Size: 1 << 16}, fd); err != nil {
			t.Fatal(err)
		}
		if got, err := up.Receive(); err != nil || got.Kind != NewRing {
			t.Fatalf("got %v, %v", got, err)
		}
	}
	if _, err := up.Memory(1 << 16); err == nil || descriptors(t) != before {
		t.Errorf("%d descriptors are open, were %d: %v", descriptors(t), before, err)
	}
}

// descriptors is how many of this process are open.
func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("descriptors cannot be counted here: ", err)
	}
	return len(all)
}

// TestForeignMemory: memory whose size could change under its reader is not mapped.
func TestForeignMemory(t *testing.T) {
	up, down := pair(t)
	fd, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Ftruncate(fd, 4096), up.SendMemory(Place{Size: 4096}, fd)); err != nil {
		t.Fatal(err)
	}
	if _, err := down.Receive(); err != nil {
		t.Fatal(err)
	}
	if _, err := down.Memory(4096); err == nil || !strings.Contains(err.Error(), "not sealed") {
		t.Errorf("memory without seals: %v", err)
	}
	if _, err := down.Memory(4096); err == nil || !strings.Contains(err.Error(), "no descriptor") {
		t.Errorf("memory that did not come: %v", err)
	}
}

// TestSocket: a socket is its user's alone, and those of processes that were killed go.
func TestSocket(t *testing.T) {
	dir := t.TempDir()
	dead := filepath.Join(dir, "millrace-1-AAAA.sock")
	gone, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	gone.SetUnlinkOnClose(false)
	old := time.Now().Add(-2 * stale)
	if err := errors.Join(gone.Close(), os.Chtimes(dead, old, old)); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(dir)
	if err != nil {
		t.Skip("no memory is shared here: ", err)
	}
	defer l.Close()
	if _, err := os.Lstat(dead); err == nil {
		t.Error("the socket of a process that is gone is there")
	}
	info, err := os.Lstat(l.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, %v", info.Mode(), err)
	}
	long := filepath.Join(dir, strings.Repeat("x", 120))
	if _, err := Listen(long); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a path of more than 108 bytes: %v", err)
	}
}

func FuzzPosition(f *testing.F) {
	f.Add((&Position{1, 2, 3, 4, []uint64{5}}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := ReadPosition(b); err == nil && !bytes.Equal(p.Append(nil), b) {
			t.Errorf("%x became %x", b, p.Append(nil))
		}
	})
}
