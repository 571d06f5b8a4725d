package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/trainer"
)

// Training configures the ranks of a run. Address and Answer are required.
type Training struct {
	Address  string
	Answer   *Answer
	Prefetch int           // of each rank's client; 0: its default
	Pace     time.Duration // of a training step: the next one begins not earlier
	Steps    int64         // at most; 0: all
	Deadline time.Duration // of a batch; 0: the client's
	Log      *slog.Logger  // of the clients; default: discard
	OnStep   func(step int64)
	// Rollbacks are in the order of their steps; each happens once.
	Rollbacks []Rollback
}

// Rollback ends all ranks after the step At and starts them again from the token of the
// position before the step To.
type Rollback struct{ To, At int64 }

// Trained is what the ranks of a run had.
type Trained struct {
	Steps   int64             // delivered; those after a rollback count again
	Joined  time.Time         // when all ranks had joined
	Begins  []time.Time       // when the ranks asked for each step
	Waits   [][]time.Duration // of each step, by rank
	Samples int               // documents
	Token   []byte            // of the position after the last step
}

// Longest is the longest wait of a step's ranks, in all steps but the first warm ones.
func (t *Trained) Longest(warm int) (waits []time.Duration) {
	for _, of := range t.Waits[min(warm, len(t.Waits)):] {
		waits = append(waits, slices.Max(of))
	}
	return waits
}

// ranks are those of a run.
type ranks struct {
	opts    Training
	checker *trainer.Checker
	clients []*client.Client
	seen    map[Sample]int64 // the last step that each sample was in
	digest  [32]byte
	token   []byte // for the next rollback
	out     Trained
}

// Train runs all ranks of a job in step, one step after the other, and compares what they
// get with the reference. An error says what differs, or which rank got none.
func Train(ctx context.Context, opts Training) (*Trained, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	t := &ranks{opts: opts, checker: trainer.NewChecker(opts.Answer.Job), seen: map[Sample]int64{}, digest: opts.Answer.Digests[0]}
	t.clients = make([]*client.Client, len(t.checker.Ranks()))
	defer t.close()
	err := t.join(ctx, nil)
	t.out.Joined = time.Now()
	if err == nil {
		err = t.train(ctx)
	}
	return &t.out, err
}

func (t *ranks) close() {
	var all errgroup.Group
	for _, c := range t.clients {
		if c != nil {
			all.Go(c.Close)
		}
	}
	_ = all.Wait() // the roles may be gone
}

// join opens the clients of all ranks, at the position of a token if there is one.
func (t *ranks) join(ctx context.Context, token []byte) error {
	g, ctx := errgroup.WithContext(ctx)
	for i, place := range t.checker.Ranks() {
		g.Go(func() (err error) {
			t.clients[i], err = client.Open(ctx, t.opts.Address, client.Options{
				Rank: place, Token: token, Prefetch: t.opts.Prefetch, Deadline: t.opts.Deadline, Log: t.opts.Log,
			})
			return err
		})
	}
	return g.Wait()
}

func (t *ranks) train(ctx context.Context) error {
	steps, all := t.opts.Answer.Steps(), true
	if t.opts.Steps > 0 && t.opts.Steps < steps {
		steps, all = t.opts.Steps, false
	}
	rollbacks := t.opts.Rollbacks
	for step := int64(0); step < steps; step++ {
		begin := time.Now()
		if len(rollbacks) > 0 && step == rollbacks[0].To {
			var err error
			if t.token, _, err = t.clients[0].State(ctx); err != nil {
				return fmt.Errorf("the state of step %d: %w", step, err)
			}
		}
		if err := t.step(ctx, step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		if t.opts.OnStep != nil {
			t.opts.OnStep(step)
		}
		select {
		case <-time.After(t.opts.Pace - time.Since(begin)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if len(rollbacks) > 0 && step == rollbacks[0].At {
			if err := t.rollBack(ctx, rollbacks[0].To); err != nil {
				return fmt.Errorf("going back from step %d to %d: %w", step, rollbacks[0].To, err)
			}
			step, rollbacks = rollbacks[0].To-1, rollbacks[1:]
		}
	}
	if all && t.opts.Answer.Recipe.Steps == 0 {
		if err := t.ended(ctx); err != nil {
			return err
		}
	}
	return t.save(ctx, all)
}

// rollBack starts all ranks again at a step, from its token.
func (t *ranks) rollBack(ctx context.Context, to int64) error {
	t.close()
	maps.DeleteFunc(t.seen, func(_ Sample, step int64) bool { return step >= to })
	t.digest = t.opts.Answer.Digests[to]
	return t.join(ctx, t.token)
}

// step has all ranks take their next batch, and compares the step with the reference.
func (t *ranks) step(ctx context.Context, step int64) error {
	batches, waits := make([]*client.Batch, len(t.clients)), make([]time.Duration, len(t.clients))
	t.out.Begins = append(t.out.Begins, time.Now())
	g, ctx := errgroup.WithContext(ctx)
	for i, c := range t.clients {
		g.Go(func() (err error) {
			begin := time.Now()
			batches[i], err = c.Next(ctx)
			waits[i] = time.Since(begin)
			if err != nil {
				return fmt.Errorf("%s: %w", t.checker.Ranks()[i], err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	t.out.Waits = append(t.out.Waits, waits)
	t.out.Steps++
	got, err := t.checker.Check(t.digest, batches)
	if err != nil {
		return err
	}
	if want := t.opts.Answer.Digests[step+1]; got.Digest != want {
		return fmt.Errorf("the batches have digest %x, the reference reader's have %x", got.Digest[:6], want[:6])
	}
	t.digest = got.Digest
	if err := t.count(step, batches); err != nil {
		return err
	}
	for _, b := range batches {
		b.Release()
	}
	return nil
}

// count compares the samples of a step, as the ranks' rows name them, with the reference's,
// and with those of the steps before: none is lost, and none comes twice.
func (t *ranks) count(step int64, batches []*client.Batch) error {
	got := map[Sample]uint64{}
	for i, b := range batches {
		if at := t.checker.Ranks()[i]; at.CP > 0 || at.PP > 0 || at.TP > 0 {
			continue // it has a part of the rows of the first
		}
		for m := range b.Microbatches {
			rows, err := b.Microbatches[m].Rows()
			if err != nil {
				return err
			}
			for _, r := range rows {
				for k := range r.Lengths {
					got[Sample{r.Sources[k], r.Blocks[k], r.Indices[k]}]++
				}
			}
		}
	}
	want := t.opts.Answer.Samples[step]
	for s, n := range got {
		if n != 1 || want[s] != 1 {
			return fmt.Errorf("sample %d of block %d of %s was delivered %d times, and is %d times in the reference's step", s.Index, s.Block, s.Source, n, want[s])
		}
		if before, ok := t.seen[s]; ok {
			return fmt.Errorf("sample %d of block %d of %s was delivered in step %d already", s.Index, s.Block, s.Source, before)
		}
		t.seen[s] = step
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d samples were delivered, the reference's step has %d", len(got), len(want))
	}
	t.out.Samples += len(got)
	return nil
}

// ended checks that all ranks are at the end of the data.
func (t *ranks) ended(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx) // the end is planned when all ranks have the last step
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

// save compares the states of all ranks with each other, and with that of a run without harm.
func (t *ranks) save(ctx context.Context, all bool) error {
	for i, c := range t.clients {
		token, digest, err := c.State(ctx)
		if err != nil {
			return fmt.Errorf("%s: its state: %w", t.checker.Ranks()[i], err)
		}
		if digest != t.digest {
			return fmt.Errorf("%s: the state has digest %x, the batches have %x", t.checker.Ranks()[i], digest[:6], t.digest[:6])
		}
		if t.out.Token == nil {
			t.out.Token = token
		}
		want := t.opts.Answer.Token
		if want == nil || !all {
			want = t.out.Token
		}
		if string(token) != string(want) {
			return fmt.Errorf("%s: its token differs from that of a run without harm", t.checker.Ranks()[i])
		}
	}
	return nil
}

// KeyDir sets a folder for the access keys of all services of this process and its children.
func KeyDir(dir string) error { return os.Setenv("MILLRACE_KEY_DIR", dir) }
