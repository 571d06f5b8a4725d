package constructor

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
	"github.com/millrace-data/millrace/internal/samples"
)

// maxAttempts is how many attempts of a fetch are under way at a time: the first, a hedge, and
// one where the planner says that the samples are now.
const maxAttempts = 3

// race is a fetch of samples that had one place when it began.
type race struct {
	c       *Constructor
	blocks  []wanted
	begun   time.Time
	view    *view           // of the last attempt
	skip    map[string]bool // addresses that were asked
	running map[*attempt]bool
	ended   chan *attempt
	tries   int
	hedged  bool
	pauses  rpc.Backoff
	last    *attempt
	err     error // why the last one that ended did
}

// attempt asks the loaders of some groups.
type attempt struct {
	groups []group
	first  bool
	sets   []samples.Set
	err    error
}

// fetchFrom fetches samples: from the loader that has them and, while that one is lost, late or
// in doubt, from others.
func (c *Constructor) fetchFrom(ctx context.Context, blocks []wanted) ([]samples.Set, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of all attempts but the one that was first
	begin := time.Now()
	r := &race{c: c, begun: begin, blocks: blocks, skip: map[string]bool{}, running: map[*attempt]bool{}, ended: make(chan *attempt, maxAttempts), pauses: rpc.Backoff{Name: c.opts.ID}}
	won, err := r.run(ctx)
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("fetching samples of source %d, block %d from loader %s: %w",
			blocks[0].Source, blocks[0].Seq, r.last, err))
	}
	for a := range r.running {
		c.peers.overtaken(a)
	}
	c.peers.answered(won)
	c.peers.paced(func(p *pace) {
		p.done()
		if won.first {
			p.took(time.Since(begin))
		} else {
			p.won++
		}
	})
	return won.sets, nil
}

// String names the loaders of an attempt; there was none if it is nil.
func (a *attempt) String() string {
	if a == nil {
		return "(none)"
	}
	var names []string
	for _, g := range a.groups {
		names = append(names, g.address)
	}
	return strings.Join(names, ", ")
}

// run makes attempts until one has all samples, or fails for good.
func (r *race) run(ctx context.Context) (*attempt, error) {
	var patience time.Duration
	r.c.peers.paced(func(p *pace) { patience = p.patience })
	late := time.NewTimer(patience)
	defer late.Stop()
	var pause <-chan time.Time
	for {
		v := r.c.peers.view()
		switch {
		case len(r.running) == 0 && (pause == nil || v != r.view):
			pause = r.begin(ctx, v)
			late.Reset(patience)
		case len(r.running) > 0 && v != r.view:
			r.follow(ctx, v)
		}
		select {
		case a := <-r.ended:
			delete(r.running, a)
			if a.err == nil || ctx.Err() != nil || fault.ClassOf(a.err) != fault.Lost {
				return a, a.err
			}
			r.c.peers.failed(a)
			r.err, pause = a.err, r.lost(a)
			rpc.Tell(ctx, a.String(), &pb.Waiting{Reason: "is lost: " + a.err.Error(), IdleMs: uint64(time.Since(r.begun).Milliseconds())})
		case <-late.C:
			r.hedge(ctx, v)
		case <-pause:
			pause = nil
		case <-v.over:
		case <-ctx.Done():
			return nil, fault.As(fault.Lost, cmp.Or(r.err, ctx.Err()))
		}
	}
}

// begin makes an attempt when none is under way. When nobody is left to ask, all are asked
// again after the pause that it returns.
func (r *race) begin(ctx context.Context, v *view) (pause <-chan time.Time) {
	r.view = v
	err := r.start(ctx, v)
	if err == nil {
		return nil
	}
	r.err = cmp.Or(r.err, err)
	clear(r.skip)
	return time.After(r.pauses.Next())
}

// lost logs that an attempt failed. The first time others are asked at once, later after the
// pause that it returns.
func (r *race) lost(a *attempt) (pause <-chan time.Time) {
	r.c.lostLoader(a.String(), a.err)
	if len(r.running) > 0 || r.tries == 1 {
		return nil
	}
	return time.After(r.pauses.Next())
}

// start asks the loaders that are next.
func (r *race) start(ctx context.Context, v *view) error {
	groups, err := v.route(r.blocks, r.skip)
	if err != nil {
		return err
	}
	r.tries++
	a := &attempt{groups: groups, first: r.tries == 1}
	for _, g := range groups {
		r.skip[g.address] = true
	}
	r.running[a], r.last = true, a
	r.c.attempts.Go(func() {
		a.sets, a.err = ask(ctx, groups, r.blocks, r.c.epochs.Highest())
		r.ended <- a
	})
	return nil
}

// hedge asks another loader beside the one that is late.
func (r *race) hedge(ctx context.Context, v *view) {
	if r.hedged || len(r.running) != 1 {
		return
	}
	if groups, err := v.route(r.blocks, r.skip); err != nil || len(groups) == 0 {
		return
	}
	r.c.peers.paced(func(p *pace) { r.hedged = p.hedge() })
	if r.hedged {
		_ = r.start(ctx, v) // there is somebody, as route just said
	}
}

// follow asks where the samples are by a new placement, unless somebody there is asked.
func (r *race) follow(ctx context.Context, v *view) {
	r.view = v
	if len(r.running) >= maxAttempts {
		return
	}
	groups, err := v.route(r.blocks, nil)
	if err != nil {
		return
	}
	for _, g := range groups {
		if r.skip[g.address] {
			return // it is asked, or was lost a moment ago
		}
	}
	if r.start(ctx, v) == nil {
		r.c.peers.paced(func(p *pace) { p.moved++ })
	}
}

// ask asks each group's loader for its blocks, and puts the answers together. epoch is the
// highest of a planner that is known here.
func ask(ctx context.Context, groups []group, blocks []wanted, epoch uint64) ([]samples.Set, error) {
	sets := make([]samples.Set, len(blocks))
	g, ctx := errgroup.WithContext(ctx)
	for _, of := range groups {
		g.Go(func() error {
			req := &pb.FetchRequest{Epoch: epoch}
			for _, b := range of.blocks {
				req.Blocks = append(req.Blocks, blocks[b].BlockSamples)
			}
			if err := failpoint.Error(failpoint.FetchBefore); err != nil {
				return err
			}
			got, err := of.Samples(ctx, req)
			if err == nil && len(got) != len(of.blocks) {
				err = fmt.Errorf("it gave %d blocks of %d", len(got), len(of.blocks))
			}
			if err != nil {
				return err
			}
			for i, b := range of.blocks {
				sets[b] = got[i]
			}
			return nil
		})
	}
	return sets, g.Wait()
}

// lostLoader logs the loss of a loader, once in a while for each: every
// fetch from it meets it, several times a second.
func (c *Constructor) lostLoader(address string, err error) {
	if c.peers.shouldLog(address, time.Now()) {
		c.opts.Log.Warn("loader lost, trying the loaders in turn", "address", address, "err", err)
	}
}
