// Package handover gives a constructor the samples of loaders, wherever these run: from one
// of the same process as they are, from another over gRPC.
//
// It owns that choice, the list of a process's loaders, and the connections to all others.
// It never decides which loader is asked, retries nothing, and knows no sample.
package handover

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/samples"
)

// Source is a loader that hands out samples. It is safe for concurrent use.
type Source interface {
	// Samples returns one set for each block asked for, in their order. The sets are the
	// caller's; values of kept columns, data of images and tokens in samples.Set.Lent are only lent, and never change.
	// It is idempotent. After an error of class fault.Lost another loader may be asked.
	Samples(ctx context.Context, req *pb.FetchRequest) ([]samples.Set, error)
}

// Exchange holds the loaders of a process by the addresses that others reach them at. The
// zero value is ready, nil holds none and takes none. It is safe for concurrent use.
type Exchange struct {
	mu    sync.Mutex
	local map[string]*local
}

// local is a loader of this process.
type local struct {
	Source
	address   string
	withdrawn atomic.Bool
}

// Samples implements Source.
func (l *local) Samples(ctx context.Context, req *pb.FetchRequest) ([]samples.Set, error) {
	if l.withdrawn.Load() {
		return nil, fault.Lostf("the loader at %s has stopped", l.address)
	}
	return l.Source.Samples(ctx, req)
}

// Offer adds a loader until the function it returns is called.
func (e *Exchange) Offer(address string, s Source) (withdraw func()) {
	if e == nil {
		return func() {}
	}
	l := &local{Source: s, address: address}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.local == nil {
		e.local = map[string]*local{}
	}
	e.local[address] = l
	return func() {
		l.withdrawn.Store(true)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.local, address)
	}
}

// Has says whether a loader of this process has an address.
func (e *Exchange) Has(address string) bool {
	_, ok := e.at(address)
	return ok
}

// at returns the loader of this process at an address.
func (e *Exchange) at(address string) (l *local, ok bool) {
	if e == nil {
		return nil, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	l, ok = e.local[address]
	return l, ok
}

// Directory finds the loaders of a placement. It is safe for concurrent use.
type Directory struct {
	exchange *Exchange
	security rpc.Security

	mu     sync.Mutex // guards remote
	remote map[string]*remote
}

// NewDirectory returns a directory of the loaders in exchange, which may be nil, and of all
// that can be called.
func NewDirectory(exchange *Exchange, security rpc.Security) *Directory {
	return &Directory{exchange: exchange, security: security, remote: map[string]*remote{}}
}

// Place returns the loaders at some addresses, in their order. It is called with all that
// there are: the connection to another one is closed after the calls under way.
func (d *Directory) Place(addresses []string) []Source {
	placed, gone := d.place(addresses)
	for _, r := range gone {
		r.leave()
	}
	return placed
}

// place is Place, but for the connections that are to be closed.
func (d *Directory) place(addresses []string) (placed []Source, gone map[string]*remote) {
	d.mu.Lock()
	defer d.mu.Unlock()
	placed = make([]Source, len(addresses))
	kept := map[string]*remote{}
	for i, address := range addresses {
		if l, ok := d.exchange.at(address); ok {
			placed[i] = l
			continue
		}
		r, ok := kept[address]
		if !ok {
			if r, ok = d.remote[address]; !ok {
				r = d.dial(address)
			}
			delete(d.remote, address)
			kept[address] = r
		}
		placed[i] = r
	}
	gone, d.remote = d.remote, kept
	return placed, gone
}

// Close closes all connections after the calls under way.
func (d *Directory) Close() { d.Place(nil) }

func (d *Directory) dial(address string) *remote {
	conn, err := rpc.Dial(address, d.security)
	return &remote{address: address, conn: conn, err: err}
}

// remote is a loader of another process.
type remote struct {
	address string
	conn    rpc.Conn // connects at the first call
	err     error    // why it cannot be called

	mu    sync.Mutex // guards the fields below
	calls int        // under way
	left  bool       // the connection is closed after them
}

// Samples implements Source.
func (r *remote) Samples(ctx context.Context, req *pb.FetchRequest) ([]samples.Set, error) {
	if err := r.begin(); err != nil {
		return nil, err
	}
	defer r.end()
	stream, err := pb.NewLoaderClient(r.conn).Fetch(ctx, &pb.FetchRequest{Blocks: req.Blocks, Epoch: req.Epoch, Hears: true})
	if err != nil {
		return nil, rpc.Lost(rpc.FromStatus(err))
	}
	body, err := rpc.ReceiveBody(stream, &pb.FetchHeader{}, nil)
	if err != nil {
		return nil, rpc.Lost(rpc.FromStatus(err))
	}
	return samples.Decode(body)
}

func (r *remote) begin() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
		return r.err
	case r.left:
		return fault.Lostf("the loader at %s has left", r.address)
	}
	r.calls++
	return nil
}

func (r *remote) end() {
	r.mu.Lock()
	r.calls--
	last := r.calls == 0 && r.left
	r.mu.Unlock()
	if last {
		r.conn.Close()
	}
}

// leave closes the connection after the calls under way.
func (r *remote) leave() {
	r.mu.Lock()
	r.left = true
	last := r.calls == 0 && r.err == nil
	r.mu.Unlock()
	if last {
		r.conn.Close()
	}
}
