package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// Options configure a mirrored log.
type Options struct {
	// Dir is the folder of the local log, and Log its options. Identity is needed.
	Dir string
	Log checkpoint.Options
	// Store keeps the mirror, one for each job.
	Store object.Store
	// FrameEvery is the number of slots from one key frame of the mirror to the next at most;
	// default 512, which a reader gets in some seconds where a request takes 10 ms. One that
	// follows a key frame of the log is small, and comes after a quarter of them.
	FrameEvery int
	// PackEvery is the number of segments that are packed into one object; default 64.
	PackEvery int
}

func (o Options) withDefaults() Options {
	if o.FrameEvery == 0 {
		o.FrameEvery = 512
	}
	if o.PackEvery == 0 {
		o.PackEvery = 64
	}
	if o.Log.Logger == nil {
		o.Log.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Log is a checkpoint.Log with a mirror. What is read comes from the local log. It differs
// from a log without a mirror in what it says of fencing: the first write after Open, if it
// is no Fence, fences the next epoch by itself. A Fence takes in what another writer wrote
// since Open; what was read before is void then.
type Log struct {
	checkpoint.Log // the local one
	opts           Options
	store          object.Store
	attempts       attempts // of writes to store
	ctx            context.Context
	cancel         context.CancelFunc
	work           sync.WaitGroup // background work, and the watch over the local log
	stopped        chan struct{}
	busy           chan struct{} // holds one token: who has taken it may write

	// The fields below belong to who holds the token.
	place    checkpoint.Place
	epoch    uint64 // of the last segment
	writer   uint64
	fenced   bool            // by this Log
	waiting  []checkpoint.Op // digests for the next segment
	packed   uint64          // slots before it are packed
	framed   uint64          // slot of the newest key frame
	fresh    uint64          // the slot after the last segment with a key frame of the log
	trimmed  int64           // the log's first step when objects were let go of last
	tidyable chan struct{}   // wakes tidy
	told     map[string]bool // what tidy has warned of

	leads   atomic.Bool   // it has fenced: it is who writes, as far as it knows
	refused atomic.Uint64 // writes of all writers that lost a slot, as far as is known

	mu    sync.Mutex // guards the fields below
	cause error      // set once, before stopped is closed
	ended bool
}

var _ checkpoint.Log = (*Log)(nil)

// Open opens the log in a folder and its mirror, or begins both. The store must create
// conditionally (object.Prove). The local log is brought to where the mirror stands; one
// that is damaged, or has what the mirror has not, is put aside beside its folder and made
// again, as one that is missing. A local log without a mirror, where the store holds none,
// is mirrored from there on. What is damaged in the mirror is read once more before it counts.
//
// Errors are those of checkpoint.Open, and of class fault.User for a mirror that is
// damaged, another job's, or lacks what the local log says it has.
func Open(ctx context.Context, opts Options) (*Log, error) {
	opts = opts.withDefaults()
	c, err := list(ctx, opts.Store)
	if err != nil {
		return nil, err
	}
	var st *state
	if !c.empty() {
		if st, err = c.load(ctx); err != nil {
			return nil, err
		}
		if st.job != opts.Log.Identity {
			return nil, fault.Userf("the mirror %s belongs to the job with identity %x, not to this one, %x (of spec and data together; `millrace lint` prints that of the spec): undo the change of the job spec or of the data, or give this job a mirror of its own",
				opts.Store, st.job, opts.Log.Identity)
		}
	}
	local, err := openLocal(opts, st)
	if err != nil {
		return nil, err
	}
	l := &Log{
		Log: local, opts: opts, stopped: make(chan struct{}), busy: make(chan struct{}, 1),
		place: checkpoint.Place{Chain: root(opts.Log.Identity)}, writer: rand.Uint64(), tidyable: make(chan struct{}, 1), told: map[string]bool{},
	}
	l.store = reread(beneath(opts.Store, &l.attempts.Store, &l.attempts))
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if st != nil {
		l.place, l.epoch, l.framed = st.place, st.epoch, st.first
	} else if err := l.seed(ctx); err != nil {
		return nil, errors.Join(err, local.Close())
	}
	for _, r := range c.runs {
		l.packed = max(l.packed, r.to)
	}
	l.busy <- struct{}{}
	l.work.Go(l.watch)
	l.work.Go(l.tidy)
	l.work.Go(l.renew)
	return l, nil
}

// Resume opens the log that is in the mirror, or in the folder if the mirror holds none,
// whichever job's it is, and returns its identity; nil if there is none. Errors are Open's.
func Resume(ctx context.Context, opts Options) (log *Log, identity [32]byte, err error) {
	c, err := list(ctx, opts.Store)
	if err != nil {
		return nil, identity, err
	}
	if !c.empty() {
		st, err := c.load(ctx)
		if err != nil {
			return nil, identity, err
		}
		if err := opts.accept(st.frame()); err != nil {
			return nil, identity, err
		}
		identity = st.job
	} else {
		local, whose, err := checkpoint.Resume(opts.Dir, opts.Log)
		if local == nil || err != nil {
			return nil, identity, err
		}
		if err := local.Close(); err != nil {
			return nil, identity, err
		}
		identity = whose
	}
	opts.Log.Identity = identity
	log, err = Open(ctx, opts)
	return log, identity, err
}

// logFrame returns a key frame of the log that is in a mirror; nil while that has no step.
func logFrame(ctx context.Context, store object.Store) ([]byte, error) {
	c, err := list(ctx, store)
	if err != nil || c.empty() {
		return nil, err
	}
	if n := len(c.frames); n > 0 {
		if f, err := c.readFrame(ctx, c.frames[n-1]); err == nil {
			if frame := frameIn(f.ops); frame != nil {
				return frame, nil
			}
		}
	}
	st, err := c.load(ctx)
	if err != nil {
		return nil, err
	}
	return st.frame(), nil
}

// CheckJob refuses a mirror whose log Log.Accept does not take. One that has no step yet, or cannot be read, is not refused.
func CheckJob(ctx context.Context, opts Options) error {
	frame, _ := logFrame(ctx, opts.Store)
	return opts.accept(frame)
}

// accept asks Log.Accept whether a log with this key frame is the caller's.
func (o *Options) accept(frame []byte) error {
	if o.Log.Accept == nil || frame == nil {
		return nil
	}
	if err := o.Log.Accept(frame); err != nil {
		return fault.Userf("the mirror %s %w: undo the change of the job spec, or give this job a mirror of its own", o.Store, err)
	}
	return nil
}

// seed begins the mirror of a local log that has none, with a key frame of all it holds.
func (l *Log) seed(ctx context.Context) error {
	empty, err := isEmpty(l.Log)
	if err != nil || empty {
		return err
	}
	f, err := l.frame()
	if err != nil {
		return err
	}
	f.chain = next(f.encode()) // no log that begins with nothing has this chain
	l.place.Chain = f.chain
	l.opts.Log.Logger.Warn("the log has no mirror there yet: it is mirrored from here on", "mirror", l.store.String())
	err = l.store.PutIfAbsent(ctx, frameName(0), f.encode())
	if errors.Is(err, object.ErrExists) {
		return fault.Lostf("another planner began the mirror %s while this one started, with a log of its own: this one ends: start it again when the other one has ended, or have it stand by (millrace planner --standby)", l.store)
	}
	if err != nil {
		return err
	}
	return l.Log.Write(l.place)
}

// attempts is a store that knows with what the last attempt to write a segment ended.
type attempts struct {
	object.Store
	failed atomic.Pointer[error] // nil: it was answered
}

func (a *attempts) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	err := a.Store.PutIfAbsent(ctx, key, data)
	switch {
	case !strings.HasPrefix(key, segments):
	case err == nil, errors.Is(err, object.ErrExists):
		a.failed.Store(nil)
	default:
		a.failed.Store(&err)
	}
	return err
}

// Trouble is why the last attempt to write a segment failed, while it is tried again, too; nil if it did not. Any goroutine
// may ask.
func (l *Log) Trouble() error {
	if err := l.attempts.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Refused is how many writes lost their slot to another writer, of all that ever wrote the mirror.
// Who writes it knows of another one's within a second.
func (l *Log) Refused() uint64 { return l.refused.Load() }

// watch stops the log with the local one.
func (l *Log) watch() {
	select {
	case <-l.Log.Stopped():
		l.stop(l.localErr())
	case <-l.ctx.Done():
	}
}

// stop ends the use of the log for good. The first cause stands.
func (l *Log) stop(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = cause
		close(l.stopped)
	}
	return l.cause
}

// Stopped is checkpoint.Log's: the local log has stopped, the store failed for longer than
// it is tried, or another writer has taken over.
func (l *Log) Stopped() <-chan struct{} { return l.stopped }

// Err is checkpoint.Log's.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		return l.localErr()
	}
	return l.cause
}

// localErr is why the local log has stopped, and what the mirror is good for then; nil if it has not.
func (l *Log) localErr() error {
	err := l.Log.Err()
	if err == nil {
		return nil
	}
	return fault.As(fault.ClassOf(err), fmt.Errorf("%w; as the mirror %s has all that was acknowledged, a planner that stands by goes on from it now, "+
		"and this one can be started again as it is", err, l.store))
}
