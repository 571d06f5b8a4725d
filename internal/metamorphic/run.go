package metamorphic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/rig"
	"github.com/millrace-data/millrace/internal/trainer"
)

// Result is what a run did.
type Result struct {
	Steps   int64         // compared with the reference; those after a rollback count again
	Longest time.Duration // wait of a rank, after the first step
	Took    time.Duration // of the clock of the run
	Forward int           // times that the ranks took up a branch that they had left
}

// Bounds of a run's time, far above what any timeout of a role needs.
const (
	longestRun  = time.Hour
	longestWait = 5 * time.Minute // of a rank for a step: what is isolated comes back within a minute
)

// Run runs a job under a list of operations. An error says what the ranks were given that
// they should not have been, which role failed, or who waits.
func Run(ctx context.Context, seed uint64, opts Options, ops []Op, log *slog.Logger) (*Result, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithTimeout(ctx, longestRun)
	defer stop()
	w, err := newWorld(ctx, seed, opts, log)
	if err != nil {
		return nil, err
	}
	t := &team{w: w, checker: trainer.NewChecker(w.job), ops: ops, tokens: map[int64][]byte{}}
	if t.want, err = opts.answer(w.job, w.changes); err != nil {
		return nil, err
	}
	begin := time.Now()
	w.group.Go(func() error {
		defer stop()
		defer t.close()
		return t.train(w.ctx)
	})
	err = w.group.Wait()
	t.out.Took = time.Since(begin)
	return &t.out, err
}

// team are the ranks of a run, which train in step.
type team struct {
	w       *world
	checker *trainer.Checker
	want    [][32]byte
	ops     []Op
	lives   int
	clients []*client.Client
	tokens  map[int64][]byte // by step
	out     Result
}

func (t *team) close() {
	for _, c := range t.clients {
		c.Close()
	}
	t.clients = nil
}

// join opens the clients of all ranks. What is lost is tried again, as a launcher does.
func (t *team) join(ctx context.Context, step int64) error {
	t.close()
	t.lives++
	t.clients = make([]*client.Client, len(t.checker.Ranks()))
	defer func() { t.clients = withoutNil(t.clients) }()
	g, ctx := errgroup.WithContext(ctx)
	for i, place := range t.checker.Ranks() {
		host := fmt.Sprintf("rank-%d.%d", i, t.lives)
		g.Go(func() error {
			for pause := 10 * time.Millisecond; ; pause *= 2 {
				c, err := client.Open(ctx, plannerAddress, client.Options{
					Rank: place, Token: t.tokens[step], Prefetch: t.w.opts.Ahead, Deadline: longestWait,
					Security: t.w.on(host), Log: t.w.log.With("host", host),
				})
				if err == nil {
					if t.clients[i] = c; c.Step() != step {
						return fmt.Errorf("%s joined at step %d in place of %d", place, c.Step(), step)
					}
					return nil
				}
				if ctx.Err() != nil || fault.ClassOf(err) != fault.Lost || pause > longestWait {
					return fmt.Errorf("%s joins at step %d: %w", place, step, err)
				}
				if err := sleep(ctx, pause); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

func withoutNil(all []*client.Client) (there []*client.Client) {
	for _, c := range all {
		if c != nil {
			there = append(there, c)
		}
	}
	return there
}

// train takes all steps, and does the operations between them.
func (t *team) train(ctx context.Context) error {
	steps := int64(len(t.want)) - 1
	if err := t.join(ctx, 0); err != nil {
		return err
	}
	ops := t.ops
	for step := int64(0); step < steps; step++ {
		if err := t.step(ctx, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		next := step + 1
		for len(ops) > 0 && ops[0].At < next {
			at, err := t.do(ctx, ops[0], next)
			if err != nil {
				return fmt.Errorf("after step %d, %v: %w", step, ops[0], err)
			}
			next, ops = at, ops[1:]
		}
		step = next - 1
	}
	if rig.Recipes[t.w.opts.Recipe].Steps > 0 {
		return nil
	}
	return t.ended(ctx)
}

// ended checks that all ranks are at the end of the data.
func (t *team) ended(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range t.clients {
		g.Go(func() error {
			if _, err := c.Next(ctx); !errors.Is(err, io.EOF) {
				return fmt.Errorf("%s after the last step: %w, in place of the end of the data", t.checker.Ranks()[i], err)
			}
			return nil
		})
	}
	return g.Wait()
}

// step has all ranks take their next batch, and compares it with the reference.
func (t *team) step(ctx context.Context, step int64) error {
	batches, begin := make([]*client.Batch, len(t.clients)), time.Now()
	g, gctx := errgroup.WithContext(ctx)
	for i, c := range t.clients {
		g.Go(func() (err error) {
			if batches[i], err = c.Next(gctx); err != nil {
				return fmt.Errorf("%s: %w", t.checker.Ranks()[i], err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if t.out.Steps > 0 {
		t.out.Longest = max(t.out.Longest, time.Since(begin))
	}
	got, err := t.checker.Check(t.want[step], batches)
	if err != nil {
		return err
	}
	if want := t.want[step+1]; got.Digest != want {
		return fmt.Errorf("the batches have digest %x, the reference reader's have %x", got.Digest[:6], want[:6])
	}
	for _, b := range batches {
		b.Release()
	}
	t.out.Steps++
	return t.save(ctx, step+1)
}

// save remembers the token of a position, which is the same whenever the ranks are there.
func (t *team) save(ctx context.Context, step int64) error {
	if step%3 != 0 && !t.wanted(step) {
		return nil
	}
	token, digest, err := t.clients[0].State(ctx)
	if err != nil && fault.ClassOf(err) == fault.Lost {
		return nil // there is an older one
	}
	if err != nil {
		return fmt.Errorf("the state: %w", err)
	}
	if want := t.want[step]; digest != want {
		return fmt.Errorf("the state has digest %x, the reference reader's is %x", digest[:6], want[:6])
	}
	if known := t.tokens[step]; known != nil && string(known) != string(token) {
		return errors.New("the token differs from the one that was saved there before")
	}
	t.tokens[step] = token
	return nil
}

// wanted says whether the ranks go on from a position.
func (t *team) wanted(step int64) bool {
	for _, o := range t.ops {
		if o.Kind == Rejoin && o.At+1 == step {
			return true
		}
	}
	return false
}

// do does an operation and returns the step that comes next.
func (t *team) do(ctx context.Context, o Op, next int64) (int64, error) {
	t.w.log.Info("operation", "op", o.String(), "next", next)
	switch o.Kind {
	case Kill:
		t.w.kill(o.Role, o.For, false)
	case Add:
		t.w.start(o.Role)
	case Remove:
		t.w.remove(o.Role)
	case Isolate:
		t.w.isolate(o.Role, o.For)
	case Slow:
		t.w.files.delay.Store(int64(o.For))
	case Pause:
		return next, sleep(ctx, o.For)
	case Rejoin:
		return t.back(ctx, next)
	case Back:
		return t.back(ctx, next-o.N)
	case Forward:
		for at := next + o.N; at > next; at-- {
			if t.tokens[at] != nil {
				t.out.Forward++
				return at, t.join(ctx, at)
			}
		}
	default:
		return next, fmt.Errorf("there is no operation %q", o.Kind)
	}
	return next, nil
}

// back starts all ranks again at the newest position with a token that is not after a step.
func (t *team) back(ctx context.Context, step int64) (int64, error) {
	for step = max(step, 0); step > 0 && t.tokens[step] == nil; step-- {
	}
	if t.tokens[step] == nil {
		return t.clients[0].Step(), nil // nothing is saved there
	}
	return step, t.join(ctx, step)
}
