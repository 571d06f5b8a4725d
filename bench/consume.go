package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/jobspec"
)

// consumeArgs are the arguments of the role consume: ranks that take batches as
// fast as they arrive and do not read them.
type consumeArgs struct {
	Spec    string
	Address string
	Service int // process id of the service
	Warm    int // steps before the clock starts
	Steps   int // measured steps
	Profile string
	Way     client.Way    // "" = the client's default
	Pace    time.Duration // that a rank trains for after each step
	Python  string        // interpreter of ranks in Python; "" = they are in Go
}

// consumed sums up all ranks over the measured steps.
type consumed struct {
	Seconds    float64
	ServiceCPU float64 // seconds
	RanksCPU   float64
	Idle       float64   // seconds of idle cores
	Tokens     int64     // without padding
	Bytes      int64     // delivered to all ranks
	Received   int64     // bytes that came over the wire for them
	Batches    []int     // bytes of the last batch as delivered, by rank
	Waits      []float64 // ms, of each rank for each step, with a pace
}

// mark is a reading of all clocks.
type mark struct {
	at                   time.Time
	service, ranks, idle time.Duration
}

func markNow(service int) (mark, error) {
	cpu, err := processCPU(service)
	if err != nil {
		return mark{}, err
	}
	idle, err := machineIdle()
	return mark{time.Now(), cpu, selfCPU(), idle}, err
}

// between returns the time and CPU from first to last.
func between(first, last mark) consumed {
	return consumed{
		Seconds:    last.at.Sub(first.at).Seconds(),
		ServiceCPU: (last.service - first.service).Seconds(),
		RanksCPU:   (last.ranks - first.ranks).Seconds(),
		Idle:       (last.idle - first.idle).Seconds(),
	}
}

func consumeRole(ctx context.Context, arg string) error {
	var a consumeArgs
	if err := json.Unmarshal([]byte(arg), &a); err != nil {
		return err
	}
	job, err := jobspec.Load(a.Spec)
	if err != nil {
		return err
	}
	if a.Python != "" {
		got, end, err := consumePython(ctx, a, job)
		defer end()
		if err = errors.Join(err, emit(got)); err == nil {
			<-ctx.Done()
		}
		return err
	}
	defer profiled(a.Profile)()
	ranks, err := openRanks(ctx, a, job)
	if err != nil {
		return err
	}
	c := &consumer{args: a, sharers: job.Topology.CP * job.Topology.PP, batches: make([]int, len(ranks))}
	c.left = map[int]int{a.Warm: len(ranks), a.Warm + a.Steps: len(ranks)}
	g, gctx := errgroup.WithContext(ctx)
	for i, r := range ranks {
		g.Go(func() error { return c.consume(gctx, i, r) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	got := between(c.marks[a.Warm], c.marks[a.Warm+a.Steps])
	got.Tokens, got.Bytes, got.Received, got.Batches = c.tokens, c.bytes, c.received, c.batches
	got.Waits = c.waits
	if err := emit(got); err != nil {
		return err
	}
	<-ctx.Done() // connections and read-ahead stay, as in a trainer
	for _, r := range ranks {
		r.Close()
	}
	return nil
}

func openRanks(ctx context.Context, a consumeArgs, job *jobspec.Job) ([]*client.Client, error) {
	t := job.Topology
	var ranks []*client.Client
	for dp := range t.DP {
		for cp := range t.CP {
			for pp := range t.PP {
				c, err := client.Open(ctx, a.Address, client.Options{Rank: client.Rank{DP: dp, CP: cp, PP: pp}, Way: a.Way})
				if err != nil {
					return nil, err
				}
				ranks = append(ranks, c)
			}
		}
	}
	return ranks, nil
}

// consumer counts the batches of ranks.
type consumer struct {
	args    consumeArgs
	sharers int // consecutive ranks of a DP bucket

	mu       sync.Mutex  // guards the fields below
	left     map[int]int // by step count, the ranks that have not reached it
	marks    map[int]mark
	tokens   int64
	bytes    int64
	received int64
	batches  []int
	waits    []float64
}

// consume takes all steps of one rank.
func (c *consumer) consume(ctx context.Context, i int, r *client.Client) error {
	for n := 1; n <= c.args.Warm+c.args.Steps; n++ {
		began := time.Now()
		b, err := r.Next(ctx)
		if err != nil {
			return err
		}
		wait := time.Since(began)
		if err := c.took(i, n, b); err != nil {
			return err
		}
		b.Release()
		if c.args.Pace > 0 {
			c.train(n, wait)
		}
	}
	return nil
}

// train notes how long a rank has waited for its n-th batch, and takes the pace for it.
func (c *consumer) train(n int, wait time.Duration) {
	if n > c.args.Warm {
		c.mu.Lock()
		c.waits = append(c.waits, 1000*wait.Seconds())
		c.mu.Unlock()
	}
	time.Sleep(c.args.Pace)
}

// took counts the n-th batch of rank i, and takes the time when it is the last
// rank to get it.
func (c *consumer) took(i, n int, b *client.Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > c.args.Warm {
		c.bytes += int64(b.Bytes)
		c.received += int64(b.Received)
		c.batches[i] = b.Bytes
		if i%c.sharers == 0 { // they get the same rows
			n, err := tokensOf(b)
			if err != nil {
				return err
			}
			c.tokens += n
		}
	}
	left, marked := c.left[n]
	if !marked {
		return nil
	}
	if c.left[n] = left - 1; left > 1 {
		return nil
	}
	m, err := markNow(c.args.Service)
	if c.marks == nil {
		c.marks = map[int]mark{}
	}
	c.marks[n] = m
	return err
}

// tokensOf counts the tokens of a batch's rows.
func tokensOf(b *client.Batch) (n int64, err error) {
	for _, mb := range b.Microbatches {
		rows, err := mb.Rows()
		if err != nil {
			return 0, err
		}
		for _, row := range rows {
			for _, l := range row.Lengths {
				n += int64(l)
			}
		}
	}
	return n, nil
}
