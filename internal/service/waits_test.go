package service_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/faultproxy"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// stuck is a store whose reads of a file wait, as those of a file system do that is gone.
type stuck struct {
	store.Store
	on    atomic.Bool
	until chan struct{}
}

func (s *stuck) Open(ctx context.Context, obj store.Object) (store.Handle, error) {
	h, err := s.Store.Open(ctx, obj)
	if err != nil {
		return nil, err
	}
	return &stuckHandle{h, s}, nil
}

type stuckHandle struct {
	store.Handle
	of *stuck
}

func (h *stuckHandle) ReadAt(p []byte, off int64) (int, error) {
	if h.of.on.Load() {
		<-h.of.until
	}
	return h.Handle.ReadAt(p, off)
}

// stallTime is far below the default, and above what a recovery takes here.
const stallTime = 6 * time.Second

// waitOf takes steps of rank 0 until one does not come, and returns why.
func waitOf(t *testing.T, address string, security rpc.Security, prefetch int, at int64, harm func()) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := client.Open(ctx, address, client.Options{Prefetch: prefetch, Stall: stallTime, Security: security})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for {
		b, err := c.Next(ctx)
		if err != nil {
			return err
		}
		if b.Step == at {
			harm()
		}
	}
}

// TestWhoWaitsForWhom: a rank whose service does not move hears so after a while, by an error that
// names each hop: of the constructor, the planner, the loader and its file, or of an address where
// nobody is.
func TestWhoWaitsForWhom(t *testing.T) {
	dir := writeSources(t)
	r := recipe{"one rank", mixed + "\nbatch: {sequence_length: 512, sequences: 8, microbatch_size: 2}\ntopology: {dp: 1}\n", 0, ""}
	for _, c := range []struct {
		name string
		harm func(s *proxied, front *faultproxy.Proxy, disk *stuck)
		says func(s *proxied, front string) []string
		or   func(s *proxied) []string // what may be said instead
	}{
		{"a constructor is cut off, and there is no other", func(s *proxied, _ *faultproxy.Proxy, _ *stuck) {
			s.data["constructor-0"].Set(faultproxy.Stall)
			s.session["constructor-0"].Set(faultproxy.Stall)
		}, func(s *proxied, front string) []string {
			return []string{"the constructor at " + s.data["constructor-0"].Address() + " is lost", "has said nothing for", "the planner at " + front + " waits: "}
		}, nil},
		{"the planner is gone for good", func(s *proxied, front *faultproxy.Proxy, _ *stuck) {
			front.Set(faultproxy.Stall)
			for _, p := range s.session {
				p.Set(faultproxy.Stall)
			}
		}, func(s *proxied, _ string) []string {
			return []string{"the constructor at " + s.data["constructor-0"].Address() + " is lost: ", "there has been no planner for", "another constructor may serve it", "the session with the planner at " + s.session["constructor-0"].Address() + " ended"}
		}, func(s *proxied) []string { // of a machine that is so busy that the constructor's beats are late
			return []string{"has said nothing for", "the constructor at " + s.data["constructor-0"].Address() + " is lost: "}
		}},
		{"a loader's files do not answer", func(_ *proxied, _ *faultproxy.Proxy, disk *stuck) {
			disk.on.Store(true)
		}, func(s *proxied, _ string) []string {
			return []string{"the constructor at " + s.data["constructor-0"].Address() + " waits: ", "the planner waits for block", "to be read by loader-", "which reads " + dir}
		}, func(s *proxied) []string { // a block that was evicted, and is read again for the step
			return []string{"the constructor at " + s.data["constructor-0"].Address() + " waits: its samples are being fetched: the loader at ", " is at block ", " of source ", "and reads " + dir}
		}},
	} {
		for _, prefetch := range []int{-1, 2} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				disk := &stuck{Store: store.Local{}, until: make(chan struct{})}
				s := startProxiedOn(t, dir, r, 2, 1, disk)
				t.Cleanup(func() { close(disk.until) })
				front, err := faultproxy.Start()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(front.Close)
				front.Forward(s.address)
				begin := time.Now()
				err = waitOf(t, front.Address(), s.security, prefetch, 3, func() { begin = time.Now(); c.harm(s, front, disk) })
				late, ok := errors.AsType[*client.WaitError](err)
				if !ok || fault.ClassOf(err) != fault.Lost || late.Ranks || late.Idle < stallTime {
					t.Fatalf("after %v: %v", time.Since(begin), err)
				}
				t.Logf("after %v: %v", time.Since(begin), err)
				words := c.says(s, front.Address())
				if c.or != nil && strings.Contains(err.Error(), c.or(s)[0]) {
					words = c.or(s)
				}
				for _, part := range words {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("it does not say %q: %v", part, err)
					}
				}
			})
		}
	}
}

// TestLookWaits: a look at a step ends as a rank's call does when nothing moves, and says why: where
// the constructor that has the step is cut off, where the planner is, and where the files of a loader
// do not answer.
func TestLookWaits(t *testing.T) {
	dir := writeSources(t)
	r := recipe{"one rank", mixed + "\nbatch: {sequence_length: 512, sequences: 8, microbatch_size: 2}\ntopology: {dp: 1}\n", 0, ""}
	for _, c := range []struct {
		name  string
		harm  func(s *proxied, front *faultproxy.Proxy, disk *stuck)
		step  int64
		words string
	}{
		{"a constructor is cut off", func(s *proxied, _ *faultproxy.Proxy, _ *stuck) { s.data["constructor-0"].Set(faultproxy.Stall) }, 0, "nothing has come from"},
		{"the planner is cut off", func(_ *proxied, front *faultproxy.Proxy, _ *stuck) { front.Set(faultproxy.Stall) }, 0, "from the service at"},
		{"a loader's files do not answer", func(_ *proxied, _ *faultproxy.Proxy, disk *stuck) { disk.on.Store(true) }, client.Newest, "to be indexed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			disk := &stuck{Store: store.Local{}, until: make(chan struct{})}
			disk.on.Store(c.step == client.Newest) // nothing is ever assembled
			s := startProxiedOn(t, dir, r, 2, 1, disk)
			t.Cleanup(func() { close(disk.until) })
			front, err := faultproxy.Start()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(front.Close)
			front.Forward(s.address)
			opts := client.Options{Stall: 4 * time.Second, Security: s.security} // connections that nobody answers are given up after 5 s
			if c.step != client.Newest {
				if _, err := client.Peek(t.Context(), front.Address(), c.step, opts); err != nil {
					t.Fatalf("before: %v", err)
				}
			}
			c.harm(s, front, disk)
			begin := time.Now()
			_, err = client.Peek(t.Context(), front.Address(), c.step, opts)
			late, ok := errors.AsType[*client.WaitError](err)
			if !ok || fault.ClassOf(err) != fault.Lost || late.Idle < opts.Stall || time.Since(begin) > 30*time.Second {
				t.Fatalf("after %v: %v", time.Since(begin), err)
			}
			if !strings.Contains(err.Error(), c.words) {
				t.Errorf("it does not say %q: %v", c.words, err)
			}
		})
	}
}

// TestNobodyListens: a rank that reaches no service hears at which addresses it has tried.
func TestNobodyListens(t *testing.T) {
	for _, count := range []int{1, 2} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			t.Parallel()
			var addresses []string
			for range count {
				addresses = append(addresses, freeAddress(t))
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := client.Open(ctx, strings.Join(addresses, ","), client.Options{Stall: stallTime})
			if _, ok := errors.AsType[*client.WaitError](err); !ok || fault.ClassOf(err) != fault.Lost {
				t.Fatal(err)
			}
			for _, a := range addresses {
				if !strings.Contains(err.Error(), "the planner at "+a+" is lost") || !strings.Contains(err.Error(), "connection") {
					t.Errorf("it does not say that nobody is at %s: %v", a, err)
				}
			}
			t.Log(err)
		})
	}
}

// TestPeersAreWaitedFor: a rank whose neighbour takes no batch waits longer than for a service that does
// not move, and hears who it is when its deadline is over.
func TestPeersAreWaitedFor(t *testing.T) {
	t.Parallel()
	dir := writeSources(t)
	s := startProxied(t, dir, recipes[0], 2, 2)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := client.Open(ctx, s.address, client.Options{Prefetch: 2, Stall: stallTime, Deadline: 3 * stallTime / 2, Security: s.security})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for err == nil {
		_, err = c.Next(ctx)
	}
	late, ok := errors.AsType[*client.WaitError](err)
	if !ok || !late.Ranks || late.Waited < 3*stallTime/2 || !strings.Contains(err.Error(), "other ranks are waited for") || !strings.Contains(err.Error(), "rank dp=") {
		t.Errorf("got %v", err)
	}
}
