package nvml

import (
	"context"
	"sync/atomic"
)

// Watch keeps the last samples of the GPUs of a machine. It is safe for concurrent use.
type Watch struct{ last atomic.Pointer[[]Sample] }

// Run samples the GPUs of a library, which it alone uses meanwhile, until ctx ends. Without GPUs it returns at once.
func (w *Watch) Run(ctx context.Context, l *Library) {
	l.Samples(ctx, Every, func(all []Sample) { w.last.Store(&all) })
}

// Last are the last samples, one of each GPU that could be read; none before the first second.
func (w *Watch) Last() (read []Sample) {
	all := w.last.Load()
	if all == nil {
		return nil
	}
	for _, s := range *all {
		if s.Err == nil {
			read = append(read, s)
		}
	}
	return read
}
