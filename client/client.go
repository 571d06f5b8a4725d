// Package client is the Go client of Millrace: one Client feeds one trainer rank.
//
// It owns the connection of a rank, its read-ahead and its position. It never
// decides what a batch holds and keeps no data once a batch is the caller's.
// client/python is the same for Python.
package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/batch"
	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Rank is a trainer's place in the mesh.
type Rank struct{ DP, CP, PP, TP int }

// String names the rank in messages.
func (r Rank) String() string { return r.wire().Name() }

func (r Rank) wire() *pb.Coordinates {
	return &pb.Coordinates{Dp: uint32(r.DP), Cp: uint32(r.CP), Pp: uint32(r.PP), Tp: uint32(r.TP)}
}

// check refuses what is no place at all: it would come to the service as another number.
func (r Rank) check() error {
	if !counts(r.DP, r.CP, r.PP, r.TP) {
		return fault.Userf("the rank is dp=%d cp=%d pp=%d tp=%d: places count up from 0", r.DP, r.CP, r.PP, r.TP)
	}
	return nil
}

// Mesh gives the sizes a trainer runs with; 0 is not checked.
type Mesh struct{ DP, CP, PP, TP int }

func (m Mesh) check() error {
	if !counts(m.DP, m.CP, m.PP, m.TP) {
		return fault.Userf("the mesh is dp %d cp %d pp %d tp %d: sizes are 1 or more, and 0 is not checked", m.DP, m.CP, m.PP, m.TP)
	}
	return nil
}

// counts says whether all numbers can be counts of ranks.
func counts(all ...int) bool {
	for _, n := range all {
		if n < 0 || n > math.MaxInt32 {
			return false
		}
	}
	return true
}

// Security configures how client and service authenticate each other. The zero value is plain
// text, which the service offers on loopback only.
type Security = rpc.Security

// Start is where a rank without a token begins.
type Start string

const (
	// Fresh begins at the first step. If the job is past it, the rank waits until all other
	// ranks join like this, and is refused if they go on instead: it never restarts them.
	Fresh Start = ""
	// Beginning restarts the job at its first step, wherever it is. Ranks that do not join
	// again get an error that tells them to.
	Beginning Start = "beginning"
)

func (s Start) wire() (pb.Start, error) {
	switch s {
	case Fresh:
		return pb.Start_START_UNSPECIFIED, nil
	case Beginning:
		return pb.Start_START_BEGINNING, nil
	}
	return 0, fault.Userf("start is %q: valid is %q, or nothing", string(s), string(Beginning))
}

// Options configure a client. The zero value is rank 0 of any job, from the start.
type Options struct {
	Rank     Rank
	Mesh     Mesh          // checked against the job's topology
	Job      string        // checked against the job's name, if set
	Identity []byte        // checked against the spec's identity, if set
	Token    []byte        // position to resume from; nil = the first step, empty is refused
	Start    Start         // where to begin without a token
	Prefetch int           // steps to read ahead; default 2, negative = none; more than 1024 are refused
	Stall    time.Duration // how long a call may wait while nothing moves anywhere in the service; default 40 s, negative: Deadline alone counts
	Deadline time.Duration // how long a call may wait at all, as for other ranks; default 10 minutes
	Way      Way           // how batches come; default: the best that is possible
	// SharedDir is the folder of the constructor's socket as this process sees it; default: MILLRACE_SHARED_DIR, or
	// as the constructor says. Two containers of a pod mount one volume for it.
	SharedDir string
	Security  rpc.Security //
	Log       *slog.Logger // gets what the service waits for when a call takes more than 10 s, and requests that were lost; default: slog.Default()
}

// defaultStall is above what any recovery takes, and below a minute, when people look and
// collectives are given up.
const defaultStall = 40 * time.Second

func (o *Options) withDefaults() {
	if o.Prefetch == 0 {
		o.Prefetch = 2
	}
	if o.Deadline == 0 {
		o.Deadline = 10 * time.Minute
	}
	if o.Stall == 0 {
		o.Stall = defaultStall
	}
	if o.Stall < 0 {
		o.Stall = o.Deadline
	}
	if o.Log == nil {
		o.Log = slog.Default() // a rank that waits holds up the whole job, so it is logged by default
	}
}

func (o *Options) check() error {
	switch {
	case o.Way != "" && o.Way != WayShared && o.Way != WayStream && o.Way != WayCalls:
		return fault.Userf("Options.Way is %q: give %q, %q or %q, or leave it out", o.Way, WayShared, WayStream, WayCalls)
	case o.Token != nil && len(o.Token) == 0:
		return fault.Userf("Options.Token is empty, as a file that was cut: give the token of a whole checkpoint, or nil for the first step")
	case o.Prefetch > maxPrefetch:
		return fault.Userf("Options.Prefetch is %d, valid is %d or less", o.Prefetch, maxPrefetch)
	}
	return cmp.Or(o.Rank.check(), o.Mesh.check())
}

// Tensor is a dense array: little-endian, C order, at a 64-byte boundary.
type Tensor = batch.Tensor

// DType is the type of a tensor's elements: Uint8, Int32, Int64, Float32.
type DType = batch.DType

// The element types of tensors.
const (
	Uint8   = batch.Uint8
	Int32   = batch.Int32
	Int64   = batch.Int64
	Float32 = batch.Float32
)

// TopologyError is returned by Next where the data continues for ranks of another mesh:
// save the state, and start the ranks of that mesh from it.
type TopologyError struct {
	Step     int64  // the first step of the other mesh
	Topology string // as in "tp2 cp1 dp4 pp2"
}

func (e *TopologyError) Error() string {
	return fmt.Sprintf("the topology changes at step %d: the data goes on for ranks of the mesh %s; save the state and start those from it", e.Step, e.Topology)
}

// Batch is a rank's part of one step. It belongs to the caller. Tensors of the types that they travel in (pixels and
// kept columns, not ids and masks) may lie in memory that the constructor shares, which can be read only: to
// write to one is a fault. They do so once the caller has released a batch.
type Batch struct {
	Step           int64
	Rows           int // of the global batch, over all ranks
	SequenceLength int // tokens of a row
	Microbatches   []Microbatch
	Bytes          int           // of its tensors
	Received       int           // bytes that came for them: less, as ids and positions travel narrow
	Wait           time.Duration // how long Next waited for it

	memory     *memory
	home       chan<- *memory
	generation uint64 // of the job, 0 of a service that does not say it
}

// memory is what the tensors of a batch are views of.
type memory struct {
	body []byte // as received
	wide []byte // tensors that were widened
	head []byte // the table, of a batch in shared memory
	slot *slot  // what is shared of it; nil: nothing
}

// maxSpares bounds the released batches whose memory is kept: more than a usual read-ahead.
const maxSpares = 8

// Release gives the batch's memory to a later batch of the same client: fresh
// memory costs as much as the copy into it. The tensors must not be used any
// more. A batch that is not released is left to the garbage collector, but for what lies in memory that the
// constructor shares: tensors may outlive their batch, so that this stays mapped until the process ends.
func (b *Batch) Release() {
	if b.home != nil {
		b.unshare()
		select {
		case b.home <- b.memory:
		default:
		}
		*b = Batch{Step: b.Step, Bytes: b.Bytes, Received: b.Received, Wait: b.Wait}
	}
}

// unshare gives back what is shared of the batch's memory.
func (b *Batch) unshare() {
	if b != nil && b.memory != nil {
		b.memory.slot.free()
		b.memory.slot = nil
	}
}

// Client feeds one rank. It is not safe for concurrent use, but for Close.
type Client struct {
	opts     Options
	address  string
	planners *planners
	session  session
	next     int64        // step that Next returns
	begun    bool         // Next has returned a batch
	position atomic.Int64 // the trainer is done with all steps before it
	carried  atomic.Int64 // the position that the last request for a step took along
	began    bool         // it has joined, and is not being moved to another place
	waited   waited
	progress progress
	stream   atomic.Pointer[stream]
	until    atomic.Int64 // steps before it may come
	reader   *reader      // nil if nothing is read ahead
	acks     *acks        // beside reader
	failed   error        // what Next returns from now on
	spares   chan *memory // of released batches; a sync.Pool would be emptied by each collection
	releases atomic.Bool  // the caller releases batches
	closing  closing
	leaving  atomic.Bool // Close was called: the last word is that nothing more comes
}

// Open joins the job served at address (the planner's, or that of `millrace
// serve`) as one rank. Several addresses, separated by commas, are those of the planner and
// of others that may take its place; each is tried in turn. A *UserError means that rank, spec or token do not
// fit the job.
func Open(ctx context.Context, address string, opts Options) (*Client, error) {
	opts.withDefaults()
	if err := opts.check(); err != nil {
		return nil, err
	}
	c := &Client{opts: opts, address: address, spares: make(chan *memory, maxSpares)}
	c.closing.begun = make(chan struct{})
	c.session.init()
	var err error
	if c.planners, err = dialPlanners(address, opts.Security); err != nil {
		return nil, err
	}
	if c.next, err = c.join(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.position.Store(c.next)
	c.begin()
	return c, nil
}

// depth is how many steps are read ahead.
func (c *Client) depth() int { return max(c.opts.Prefetch, 0) }

// begin reads ahead from the next step on, if the client reads ahead.
func (c *Client) begin() {
	c.until.Store(c.next + int64(c.depth()))
	c.began = true
	if c.depth() > 0 {
		c.acks = &acks{rank: c.opts.Rank.String(), position: &c.position, carried: &c.carried, leaving: &c.leaving, call: c.ack}
		c.acks.start()
		c.reader = c.readAhead(c.depth())
	}
}

// halt ends what begin began. Nothing more is acknowledged.
func (c *Client) halt() {
	if c.reader != nil {
		c.acks.cancel()
		c.acks.close()
		c.reader.close()
		c.reader, c.acks = nil, nil
	}
	c.began = false
	c.dropStream()
}

// Next returns the next step of this rank, or io.EOF at the end of the data,
// which is at the same step for all ranks. Calling it acknowledges the batch
// before. A call that ctx ended may be repeated; any other error stays. ErrClosed is
// that of a client that is closed, also while Next waits.
func (c *Client) Next(ctx context.Context) (*Batch, error) {
	if err := c.closing.enter(); err != nil {
		return nil, err
	}
	defer c.closing.leave()
	if c.failed == nil {
		c.failed = c.refusal()
	}
	if c.failed != nil {
		return nil, c.failed
	}
	begin := time.Now()
	logged := c.logWait(ctx, "for its next batch")
	if c.begun { // what comes before the first step is the start of a job, not a stall
		c.waited.begin(begin)
	}
	b, err := c.take(ctx)
	c.waited.end()
	logged()
	if err != nil {
		if ctx.Err() == nil {
			c.failed = err
		}
		return nil, err
	}
	b.Wait = time.Since(begin)
	c.next, c.begun = c.next+1, true
	return b, nil
}

func (c *Client) take(ctx context.Context) (b *Batch, err error) {
	c.position.Store(c.next)
	c.until.Store(c.next + 1 + int64(c.depth()))
	if c.reader == nil {
		return c.wait(ctx, c.next, func(ctx context.Context) (*Batch, error) { return c.fetch(ctx, c.next, c.fetchOnce) })
	}
	if !c.tell() {
		c.acks.notify()
	}
	if next, ok := c.reader.ready(); ok {
		return c.took(next)
	}
	return c.wait(ctx, c.next, func(ctx context.Context) (*Batch, error) {
		if next, ok := c.reader.take(ctx); ok {
			return c.took(next)
		}
		return nil, ctx.Err()
	})
}

// took is what the reader had. It ends with an error, which stays although ctx may have ended, too.
func (c *Client) took(next result) (*Batch, error) {
	c.failed = next.err
	return next.batch, next.err
}

// wait waits for a step, for as long as a call may.
func (c *Client) wait(ctx context.Context, step int64, get func(context.Context) (*Batch, error)) (b *Batch, err error) {
	err = c.within(ctx, fmt.Sprintf("step %d", step), func(ctx context.Context) (err error) {
		b, err = get(ctx)
		return err
	})
	return b, err
}

// At returns any step that is still served, without moving the client.
func (c *Client) At(ctx context.Context, step int64) (*Batch, error) {
	if err := c.closing.enter(); err != nil {
		return nil, err
	}
	defer c.closing.leave()
	if step < 0 {
		return nil, fault.Userf("there is no step %d: steps count up from 0", step)
	}
	return c.wait(ctx, step, func(ctx context.Context) (*Batch, error) { return c.fetch(ctx, step, c.callFor) })
}

// State returns the resume token of the position after the last batch returned,
// and the digest of everything before it. It is the same on all ranks. While there is no
// planner, it waits for one, for as long as for a batch. A file of these bytes is what
// Options.Token, and --resume and --from of the command line, take; the caller owns them.
func (c *Client) State(ctx context.Context) (token []byte, digest [32]byte, err error) {
	if err := c.closing.enter(); err != nil {
		return nil, digest, err
	}
	defer c.closing.leave()
	err = c.within(ctx, fmt.Sprintf("the state at step %d", c.next), func(ctx context.Context) error {
		pauses := rpc.Backoff{Name: c.opts.Rank.String()}
		for tries := 1; ; tries++ {
			reply, err := c.state(ctx, c.next)
			if err == nil {
				token = bytes.Clone(reply.Token) // the session has the other
				copy(digest[:], reply.Digest)
				return nil
			}
			if !again(ctx, err) {
				return err
			}
			if tries == 1 {
				c.opts.Log.Warn("the planner was lost, asking again", "rank", c.opts.Rank.String(), "for", "the state", "step", c.next, "err", err)
			}
			_ = pauses.Wait(ctx) // if ctx ends, so does the next attempt
		}
	})
	return token, digest, err
}

// Step is the step that Next returns next.
func (c *Client) Step() int64 { return c.next }

// Fetches reports whether this rank fetches batches; if not, another rank broadcasts to it.
func (c *Client) Fetches() bool { return c.session.now().reply.Fetches }

// Format is the job's output format.
func (c *Client) Format() string { return c.session.now().reply.Format }
