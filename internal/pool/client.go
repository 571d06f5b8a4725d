package pool

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/worker"
)

const (
	// silentRounds of rpc.BeatEvery without a word: the pool counts as lost. One that is stopped, or cut off without
	// a word, costs a trainer no more than that.
	silentRounds = 5
	// longestPause is between two attempts to reach a pool: one that came back is soon found.
	longestPause = 2 * time.Second
	// mostKinds of errors of a pool that is not there are logged: there are a few, and a certificate that has ended gives two.
	mostKinds = 8
)

// Client lends the workers of pools to environments of this process. It is safe for concurrent use.
type Client struct {
	sec    rpc.Security
	log    *slog.Logger
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	pools  []*pool

	mu   sync.Mutex // guards uses
	uses []*use
}

// use is a function that pools are to serve.
type use struct {
	env  *worker.Environment
	open *pb.OpenFunction
}

// NewClient looks for pools until it is closed: those that are there, and those that come. Addresses are
// HOST:PORT or unix:PATH.
func NewClient(addresses []string, sec rpc.Security, log *slog.Logger) (*Client, error) {
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{sec: sec, log: log, cancel: cancel}
	for _, address := range addresses {
		conn, err := rpc.Dial(address, sec) // it connects at the first call: this one checks
		if err != nil {
			cancel()
			return nil, fault.As(fault.ClassOf(err), errors.Join(err))
		}
		_ = conn.Close()
		c.pools = append(c.pools, &pool{client: c, address: address, more: make(chan struct{}, 1)})
	}
	for _, p := range c.pools {
		c.tasks.Go(func() { p.keep(ctx) })
	}
	return c, nil
}

// Close gives all pools up. Batches that they have run elsewhere.
func (c *Client) Close() {
	c.cancel()
	c.tasks.Wait()
}

// Use has pools serve a function of an environment, with its limits, as long as they are there.
func (c *Client) Use(env *worker.Environment, d worker.Description) {
	l := env.Options()
	open := &pb.OpenFunction{
		Function: d.Name, Digest: d.Digest[:], Runtime: d.Runtime(), TimeoutMs: uint64(l.Timeout.Milliseconds()), StartMs: uint64(l.Start.Milliseconds()),
		Memory: l.Memory, MemoryDecides: l.MemoryDecides, Network: l.Network,
	}
	c.mu.Lock()
	known := slices.ContainsFunc(c.uses, func(u *use) bool {
		return u.env == env && u.open.Function == d.Name && bytes.Equal(u.open.Digest, open.Digest)
	})
	if !known {
		open.Id = uint32(len(c.uses))
		c.uses = append(c.uses, &use{env, open})
	}
	c.mu.Unlock()
	for _, p := range c.pools {
		select {
		case p.more <- struct{}{}:
		default:
		}
	}
}

// from are the functions from the i-th on.
func (c *Client) from(i int) []*use {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.uses[i:])
}

// Usage says what a pool does for an environment.
type Usage struct {
	Name          string
	Connected     bool
	Workers       int    // that serve the environment
	OnTheWay      int    // batches
	Batches       uint64 // done so far
	Losses        uint32 // batches that were lost with the pool or the way to it
	Problem       string // why it does not serve, or not all functions
	Busy, Waiting int    // workers with a batch, and batches that wait for one, whoever's
}

// Usage says what all pools do for an environment.
func (c *Client) Usage(env *worker.Environment) (all []Usage) {
	there := env.Status().Far
	for _, p := range c.pools {
		u := p.usage(env)
		for _, f := range there {
			if f.Name == u.Name {
				u.Workers, u.OnTheWay = f.Workers, f.Taken
			}
		}
		all = append(all, u)
	}
	return all
}

// pool is the client's side of one.
type pool struct {
	client  *Client
	address string
	more    chan struct{} // takes one: there are more functions

	mu      sync.Mutex
	there   bool
	beat    *pb.PoolBeat
	why     string          // it is not there
	absent  []string        // the kinds of errors that were logged since it was there last
	refused map[*use]string // why it does not serve a function
	counts  map[*worker.Environment]*counts
	logged  map[string]bool // refusals
}

// counts are of an environment's batches.
type counts struct {
	batches uint64
	losses  uint32
}

func (p *pool) usage(env *worker.Environment) Usage {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := Usage{Name: p.address, Connected: p.there, Problem: p.why, Busy: int(p.beat.GetBusy()), Waiting: int(p.beat.GetWaiting())}
	if c := p.counts[env]; c != nil {
		u.Batches, u.Losses = c.batches, c.losses
	}
	var problems []string
	for f, why := range p.refused {
		if f.env == env {
			problems = append(problems, "function "+f.open.Function+": "+why)
		}
	}
	if u.Problem == "" {
		slices.Sort(problems)
		u.Problem = strings.Join(problems, "; ")
	}
	return u
}

// count notes what became of a batch.
func (p *pool) count(env *worker.Environment, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts = map[*worker.Environment]*counts{}
	}
	c := p.counts[env]
	if c == nil {
		c = &counts{}
		p.counts[env] = c
	}
	if lost {
		c.losses++
	} else {
		c.batches++
	}
}

// keep looks for the pool, again and again, until ctx ends.
func (p *pool) keep(ctx context.Context) {
	pause := rpc.Backoff{Name: p.address, Longest: longestPause}
	for ctx.Err() == nil {
		worked, err := p.session(ctx)
		if worked {
			pause.Reset()
		}
		if ctx.Err() == nil {
			p.gone(err)
			_ = pause.Wait(ctx)
		}
	}
}

// gone notes why the pool is not there, and logs each kind of error once until it is there again.
func (p *pool) gone(err error) {
	why := rpc.FromStatus(err).Error()
	kind := rpc.Kind(why)
	p.mu.Lock()
	again := len(p.absent) >= mostKinds || slices.Contains(p.absent, kind)
	if !again {
		p.absent = append(p.absent, kind)
	}
	p.there, p.why, p.beat, p.refused = false, why, nil, nil
	p.mu.Unlock()
	if !again {
		p.client.log.Warn("a worker pool is not there: others have its batches, and it is looked for", "pool", p.address, "error", why)
	}
}

// here notes that the pool is there.
func (p *pool) here(b *pb.PoolBeat) {
	p.mu.Lock()
	first := !p.there
	p.there, p.why, p.beat, p.absent = true, "", b, nil
	p.mu.Unlock()
	if first {
		p.client.log.Info("a worker pool is there", "pool", p.address)
	}
}

// refuses notes why the pool does not serve a function, and logs it once.
func (p *pool) refuses(u *use, why string) {
	p.mu.Lock()
	if p.refused == nil {
		p.refused = map[*use]string{}
	}
	if p.logged == nil {
		p.logged = map[string]bool{}
	}
	p.refused[u] = why
	text := u.open.Function + ": " + rpc.Kind(why)
	again := p.logged[text]
	p.logged[text] = true
	p.mu.Unlock()
	if !again {
		p.client.log.Warn("a worker pool does not serve a function", "pool", p.address, "function", u.open.Function, "why", why)
	}
}

// serves notes that the pool serves a function, which it may have refused before.
func (p *pool) serves(u *use) {
	p.mu.Lock()
	_, refused := p.refused[u]
	delete(p.refused, u)
	p.mu.Unlock()
	if refused {
		p.client.log.Info("a worker pool serves a function again", "pool", p.address, "function", u.open.Function)
	}
}
