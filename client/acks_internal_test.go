package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestLastPosition: the service has answered to the last position when acks are closed, also if a request took it along, and is
// seen to have at the very moment of closing: it may be lost.
func TestLastPosition(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var position, carried, told atomic.Int64
			a := &acks{position: &position, carried: &carried, leaving: new(atomic.Bool), call: func(_ context.Context, p int64) error { told.Store(p); return nil }}
			a.start()
			position.Store(1)
			carried.Store(1)
			a.notify()
			synctest.Wait()
			time.Sleep(ackDelay) // both wake at once
			if a.close(); told.Load() != 1 {
				t.Fatalf("the service has answered to position %d, want 1", told.Load())
			}
		})
	}
}
