package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
)

// TestCancelled: however steps come, Next says that its context has ended, before it waits or while it does, and the client goes on
// afterwards; Close has the service know of the last batch that such a call acknowledged.
func TestCancelled(t *testing.T) {
	const spec = "name: two\nsources: [{name: web, files: web.txt}]\nbatch: {sequence_length: 48, sequences: 2}\nresources: {prefetch: 2}\n"
	for _, way := range []client.Way{client.WayShared, client.WayStream, client.WayCalls} {
		for _, prefetch := range []int{-1, 2} {
			t.Run(fmt.Sprint(way, " ", prefetch), func(t *testing.T) {
				withServiceOf(t, spec, func(ctx context.Context, address string) {
					c := open(ctx, t, address, client.Options{Way: way, Prefetch: prefetch})
					for range 2 {
						if _, err := c.Next(ctx); err != nil {
							t.Fatal(err)
						}
					}
					over, cancel := context.WithCancel(ctx)
					cancel()
					if _, err := c.Next(over); err != nil && (!errors.Is(err, context.Canceled) || fault.ClassOf(err) != fault.Lost) { // one that was there is given out
						t.Errorf("a context that was cancelled: %v", err)
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
					for end := time.Now().Add(time.Minute); statusOf(ctx, t, address).Acked != 2; time.Sleep(10 * time.Millisecond) {
						if time.Now().After(end) {
							t.Fatalf("%d steps are acknowledged, want 2", statusOf(ctx, t, address).Acked)
						}
					}
				})
			})
		}
	}
}

// TestCancelledWait: so it is for a call that waits, and for one whose time is up.
func TestCancelledWait(t *testing.T) {
	const spec = "name: two\nsources: [{name: web, files: web.txt}]\nbatch: {sequence_length: 48, sequences: 2}\ntopology: {dp: 2}\nresources: {prefetch: 2}\n"
	withServiceOf(t, spec, func(ctx context.Context, address string) {
		for _, way := range []client.Way{client.WayShared, client.WayStream, client.WayCalls} {
			for _, prefetch := range []int{-1, 2} {
				t.Run(fmt.Sprint(way, " ", prefetch), func(t *testing.T) {
					c := open(ctx, t, address, client.Options{Way: way, Prefetch: prefetch, Start: client.Beginning})
					for range 2 {
						if _, err := c.Next(ctx); err != nil {
							t.Fatal(err)
						}
					}
					over, cancel := context.WithCancel(ctx)
					waiting := &watched{Context: over, used: make(chan struct{})}
					ended := make(chan error, 1)
					go func() {
						_, err := c.Next(waiting)
						ended <- err
					}()
					<-waiting.used
					cancel()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("a context that was cancelled: %v", err)
					}
					late, end := context.WithTimeout(ctx, 50*time.Millisecond)
					if _, err := c.Next(late); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("a context whose time is up: %v", err)
					}
					end()
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	})
}
