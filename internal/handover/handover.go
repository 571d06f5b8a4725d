// Package handover lets a constructor take samples from a loader of the same
// process without a wire between them: what gRPC would frame, copy through the
// kernel and put together again is one copy.
//
// It owns the list of a process's loaders and nothing else. Requests, answers and
// errors are those of the Loader service, and a constructor that finds no loader
// here calls it as ever.
package handover

import (
	"context"
	"sync"

	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/samples"
)

// Loader answers what a Loader service's Fetch does: one set for each block asked
// for. The sets are the caller's; the values of kept columns are only lent, and
// never change. It is safe for concurrent use.
type Loader interface {
	Samples(ctx context.Context, req *pb.FetchRequest) ([]samples.Set, error)
}

// Exchange holds the loaders of a process by the addresses that others reach them
// at. The zero value is ready, nil holds none and takes none. It is safe for
// concurrent use.
type Exchange struct {
	mu      sync.Mutex
	loaders map[string]Loader
}

// Offer adds a loader until the function it returns is called.
func (e *Exchange) Offer(address string, l Loader) (withdraw func()) {
	if e == nil {
		return func() {}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loaders == nil {
		e.loaders = map[string]Loader{}
	}
	e.loaders[address] = l
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.loaders, address)
	}
}

// At returns the loader at an address, or nil if it is not of this process.
func (e *Exchange) At(address string) Loader {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.loaders[address]
}
