package rpc

import (
	"context"
	"time"
)

// Early returns a context that ends a moment before the caller's deadline, so
// that he still hears what was waited for instead of his own deadline.
func Early(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(time.Until(deadline)/10, time.Second)))
}
