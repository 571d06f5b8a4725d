package rpc

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

// Port is an address to serve at, for those who are of use only where they can listen: a planner has it open
// before it takes the log from another one, which ends then, and not earlier, as whoever calls a planner that does not
// serve yet is to be refused at once, and tries another one. It is not safe for concurrent use.
type Port struct {
	address, advertise string
	security           Security
	largest            int
	doubt              bool // whether it can be opened is not known, or it could not when it was last tried

	server   Server // nil while it is shut
	at       string // the address at which others reach it
	withdraw func() // takes back the access key that was made for it, if one was
}

// NewPort returns a port that is shut. What the arguments are, Run says.
func NewPort(address, advertise string, sec Security, largest int) *Port {
	return &Port{address: address, advertise: advertise, security: sec, largest: largest, doubt: true}
}

// Ready says why a planner could not serve at the port now: what CheckPlanner says, or that it cannot listen. It opens the
// port for a moment if it never did, or could not the last time.
func (p *Port) Ready() error {
	if err := p.security.CheckPlanner(p.address); err != nil {
		return err
	}
	if p.doubt && p.server == nil && p.security.Local() {
		listener, err := Listen(p.address, p.security)
		if err != nil {
			return err
		}
		if err := listener.Close(); err != nil {
			return err
		}
	}
	p.doubt = false
	return nil
}

// Open opens the port, unless it is open. Those who call it wait until it is Run.
func (p *Port) Open() (err error) {
	if p.server != nil {
		return nil
	}
	p.server, err = p.listen()
	p.doubt = err != nil
	return err
}

func (p *Port) listen() (Server, error) {
	p.withdraw, p.at = func() {}, p.address
	sec := p.security
	if sec.carrier != nil {
		return sec.carrier.Listen(p.address, p.largest)
	}
	listener, err := Listen(p.address, sec)
	if err != nil {
		return nil, err
	}
	p.at = advertised(listener, p.advertise)
	if sec.planner == "" && sec.network == nil {
		if sec, p.withdraw, err = sec.issue(listener, p.at); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	calls, err := NewServer(sec, limits(p.largest)...)
	if err != nil {
		p.withdraw()
		return nil, errors.Join(err, listener.Close())
	}
	return &served{calls, listener, sec}, nil
}

// Shut closes the port, if it is open and not Run.
func (p *Port) Shut() {
	if p.server != nil {
		_ = p.server.Close() // nobody was served
		p.server = nil
		p.withdraw()
	}
}

// Run serves at the port as the function Run does, and closes it. It opens it first, unless it is open.
func (p *Port) Run(ctx context.Context, register func(grpc.ServiceRegistrar), work func(ctx context.Context, address string) error) error {
	if err := p.Open(); err != nil {
		return err
	}
	server := p.server
	p.server = nil
	defer p.withdraw()
	register(server)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return server.Serve(serving) })
	g.Go(func() error {
		defer stop()
		return work(ctx, p.at)
	})
	if err := g.Wait(); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
