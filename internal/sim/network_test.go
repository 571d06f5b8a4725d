package sim_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/sim"
)

const delay = 10 * time.Millisecond

// pair connects the host "a" with one that listens as "b:1".
func pair(t *testing.T, faults sim.Faults) (n *sim.Network, dialled, accepted net.Conn) {
	t.Helper()
	n = sim.NewNetwork(1, faults)
	l, err := n.Host("b").Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	if dialled, err = n.Host("a").Dial(t.Context(), "b:1"); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return n, dialled, accepted
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestOrder: writes come in their order, after some time, and then the end.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, sim.Faults{Delay: delay, Slow: 0.5})
		begin := time.Now()
		var want bytes.Buffer
		for i := range 100 {
			text := string(bytes.Repeat([]byte{byte(i)}, i))
			want.WriteString(text)
			send(t, a, text)
		}
		a.Close()
		got, err := io.ReadAll(b)
		if took := time.Since(begin); err != nil || !bytes.Equal(got, want.Bytes()) || took < delay || took > 50*delay {
			t.Errorf("%d bytes of %d after %v: %v", len(got), want.Len(), took, err)
		}
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading what was closed: %v", err)
		}
	})
}

// TestKill: the end of a host is seen by those who wait for it, and nobody reaches it.
func TestKill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, _ := pair(t, sim.Faults{Delay: delay})
		time.AfterFunc(time.Second, func() { n.Kill("b") })
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reading from a dead host: %v", err)
		}
		if _, err := n.Host("a").Dial(t.Context(), "b:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialling a dead host: %v", err)
		}
		if _, err := n.Host("b2").Listen("b:1"); err != nil {
			t.Errorf("its address is not free: %v", err)
		}
	})
}

// TestIsolate: what is sent while a host is apart comes when it is back.
func TestIsolate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, sim.Faults{Delay: delay})
		n.Isolate("b", time.Minute)
		begin := time.Now()
		send(t, a, "x")
		if _, err := io.ReadFull(b, make([]byte, 1)); err != nil || time.Since(begin) < time.Minute {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		n.Isolate("b", time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Host("a").Dial(ctx, "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialling a host that is apart: %v", err)
		}
	})
}

// TestSever: one host does not reach an address any more, others do.
func TestSever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, _ := pair(t, sim.Faults{Delay: delay})
		n.Sever("a", "b:1")
		if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("writing: %v", err)
		}
		_, refused := n.Host("a").Dial(t.Context(), "b:1")
		_, err := n.Host("c").Dial(t.Context(), "b:1")
		if !errors.Is(refused, syscall.ECONNREFUSED) || err != nil {
			t.Errorf("dialling: %v, and from another host: %v", refused, err)
		}
	})
}

// TestHole: nothing comes through a hole until the network is calm, which breaks it.
func TestHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, a, b := pair(t, sim.Faults{Delay: delay, Hole: 1})
		send(t, a, "x")
		if err := b.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading from a hole: %v", err)
		}
		n.Calm()
		if _, err := b.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reading when it is calm: %v", err)
		}
		if c := n.Counts(); c.Holes != 1 || c.Conns != 1 {
			t.Errorf("counted %+v", c)
		}
	})
}

// TestReset: a reset is seen at both ends, and what was under way is lost.
func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t, sim.Faults{Delay: delay, Reset: 1})
		for _, c := range []net.Conn{a, b} {
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("writing: %v", err)
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reading: %v", err)
			}
		}
	})
}
