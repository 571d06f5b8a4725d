package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace-data/millrace/client"
)

// watched is a context that says when a call has begun to wait for its end.
type watched struct {
	context.Context
	once sync.Once
	used chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	w.once.Do(func() { close(w.used) })
	return w.Context.Done()
}

// TestCloseEndsNext: Close in another goroutine ends a call of Next that waits, however steps come, with an error of its own; so do all
// calls end from then on. Calls of Close at the same time are fine.
func TestCloseEndsNext(t *testing.T) {
	const spec = "name: two\nsources: [{name: web, files: web.txt}]\nbatch: {sequence_length: 48, sequences: 2}\ntopology: {dp: 2}\nresources: {prefetch: 2}\n"
	withServiceOf(t, spec, func(ctx context.Context, address string) {
		for _, way := range []client.Way{client.WayShared, client.WayStream, client.WayCalls} {
			for _, prefetch := range []int{-1, 2} {
				for _, pause := range []time.Duration{0, 100 * time.Millisecond} { // Close finds Next before it waits, or while it does
					t.Run(fmt.Sprint(way, " ", prefetch, " ", pause), func(t *testing.T) {
						closeEndsNext(ctx, t, address, client.Options{Way: way, Prefetch: prefetch, Start: client.Beginning}, pause)
					})
				}
			}
		}
	})
}

// closeEndsNext closes a rank whose third step waits for the other rank, which never comes.
func closeEndsNext(ctx context.Context, t *testing.T, address string, opts client.Options, pause time.Duration) {
	c := open(ctx, t, address, opts)
	for range 2 {
		b, err := c.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	waiting := &watched{Context: ctx, used: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Next(waiting)
		ended <- err
	}()
	<-waiting.used
	time.Sleep(pause)
	var closes sync.WaitGroup
	for range 2 {
		closes.Go(func() {
			if err := c.Close(); err != nil {
				t.Errorf("closing: %v", err)
			}
		})
	}
	if err := <-ended; !errors.Is(err, client.ErrClosed) {
		t.Errorf("Next, which waited: %v", err)
	}
	closes.Wait()
	for name, call := range map[string]func() error{
		"Next":   func() error { _, err := c.Next(ctx); return err },
		"At":     func() error { _, err := c.At(ctx, 0); return err },
		"State":  func() error { _, _, err := c.State(ctx); return err },
		"Report": func() error { return c.Report(ctx, client.Report{StepSeconds: 1}) },
		"Remesh": func() error { return c.Remesh(ctx, client.Mesh{DP: 1}, client.Rank{}, 0) },
		"Close":  func() error { return errors.Join(client.ErrClosed, c.Close()) },
	} {
		if err := call(); !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s of a client that is closed: %v", name, err)
		}
	}
}
