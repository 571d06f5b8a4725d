package faultproxy_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/faultproxy"
)

// TestModes: bytes come, or not, or one in a while, and connections are reset.
func TestModes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	p, err := faultproxy.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	p.Forward(l.Addr().String())
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func(n int, patience time.Duration) (int, error) {
		if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(make([]byte, n)); err != nil {
			return 0, err
		}
		return io.ReadFull(c, make([]byte, n))
	}
	if n, err := echo(100_000, 10*time.Second); n != 100_000 {
		t.Fatalf("carried: %d, %v", n, err)
	}
	p.Set(faultproxy.Stall)
	if n, err := echo(10, 300*time.Millisecond); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("stalled: %d, %v", n, err)
	}
	p.Set(faultproxy.Trickle)
	n, err := echo(10, 4*time.Second)
	if n > 4 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("trickled: %d, %v", n, err)
	}
	p.Set(faultproxy.Carry)
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 20-n)); err != nil { // what is left of those before
		t.Fatal(err)
	}
	p.Limit(100_000)
	if begin := time.Now(); true {
		if n, err := echo(50_000, 10*time.Second); n != 50_000 || time.Since(begin) < 450*time.Millisecond {
			t.Errorf("limited: %d in %v, %v", n, time.Since(begin), err)
		}
	}
	p.Limit(0)
	p.Forget()
	if n, err := echo(10, 300*time.Millisecond); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("forgotten: %d, %v", n, err)
	}
	old := c
	defer old.Close()
	if c, err = net.Dial("tcp", p.Address()); err != nil {
		t.Fatal(err)
	}
	if n, err := echo(10, 10*time.Second); n != 10 {
		t.Errorf("a new connection: %d, %v", n, err)
	}
	if n := p.Made(); n != 2 {
		t.Errorf("%d connections were made", n)
	}
	p.Reset()
	if _, err := echo(10, 10*time.Second); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("reset: %v", err)
	}
}

// TestFreeAddress: each call gives an address of its own, on which nobody listens and somebody can, below those that systems give away.
func TestFreeAddress(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		address, err := faultproxy.FreeAddress()
		if err != nil || seen[address] || address >= "127.0.0.1:30000" {
			t.Fatalf("%q: %v", address, err)
		}
		seen[address] = true
		if conn, err := net.Dial("tcp", address); err == nil {
			t.Errorf("somebody listens at %s", conn.RemoteAddr())
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
