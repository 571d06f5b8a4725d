package rpc

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: on a link that is fast a body goes in frames, on one that carries little in pieces that take a second or a few,
// though the transport takes hundreds of KB of each body at once; and one that gets slower gets small ones.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// body sends a body, of which free bytes are taken at once, and returns its pieces and the most time of one.
		body := func(p *Pace, size, free, rate int) (pieces int, longest time.Duration) {
			p.begin()
			for rest := size; rest > 0; pieces++ {
				n := min(p.piece(), rest)
				rest -= n
				took := time.Duration(n) * time.Second / time.Duration(rate)
				longest = max(longest, took)
				if size-rest > free {
					time.Sleep(took)
				}
				p.sent(n)
			}
			return pieces, longest
		}
		fast := &Pace{}
		if n, _ := body(fast, 8<<20, 128<<10, 1e9); n > 50 {
			t.Errorf("the first body of a fast link went in %d pieces", n)
		}
		if n, _ := body(fast, 8<<20, 128<<10, 1e9); n != 9 {
			t.Errorf("the second body of a fast link went in %d pieces", n)
		}
		body(fast, 2<<20, 128<<10, 1e6) // of which some frames were on their way
		if _, longest := body(fast, 2<<20, 128<<10, 1e6); longest > 200*time.Millisecond {
			t.Errorf("on a link that got slow a piece took %v", longest)
		}
		told := &Pace{}
		for took, want := range map[time.Duration]int{time.Millisecond: 1, 100 * time.Millisecond: 1, 200 * time.Millisecond: 2, time.Minute: 5} {
			told.Arrived(132_000, took)
			if n, _ := body(told, 132_000, 0, 1e9); n != want {
				t.Errorf("a body went in %d pieces, want %d, where one had arrived after %v", n, want, took)
			}
		}
		for _, size := range []int{10_000, 132_000, 400_000, 4 << 20} {
			slow := &Pace{}
			for range 20 {
				if _, longest := body(slow, size, 512<<10, 10_000); longest > 8*time.Second {
					t.Errorf("of %d bytes over 10 KB/s a piece took %v", size, longest)
				}
				if _, longest := body(slow, size, 128<<10, 30_000); longest > 2*time.Second {
					t.Errorf("of %d bytes over 30 KB/s a piece took %v", size, longest)
				}
			}
		}
	})
}
