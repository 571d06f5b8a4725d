package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace-data/millrace/client"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/trainer"
)

// team are the ranks of a run. They train in step, as far as the seed says, save their
// state now and then, and are killed and started again together.
type team struct {
	w         *world
	checker   *trainer.Checker
	lead      int64 // steps that a rank may be ahead of the slowest
	saveEvery int64 // steps; 0 = never
	prefetch  int
	pause     time.Duration // longest training step
	linger    float64       // chance that a rank that is killed lives on a while
	ghosts    sync.WaitGroup
	nearEnd   chan struct{} // closed when most steps are checked

	mu         sync.Mutex // guards the fields below, never held while waiting
	lives      int
	end        context.CancelFunc // of this life
	restarted  bool               // this life was ended
	slots      map[int64]*slot
	at         []int64 // step that each rank waits for
	first      int64   // step that this life began with
	saved      int64   // step of token
	token      []byte
	older      []checkpoint // saved before it
	far        int64        // steps that were checked, at most
	checked    int64
	resumes    int
	haunted    int // ranks that lived on when they were to be killed
	confusions int
}

// checkpoint is a state that was saved.
type checkpoint struct {
	step  int64
	token []byte
}

// slot collects what the ranks were given of one step.
type slot struct {
	batches []*client.Batch
	missing int
	token   []byte        // of the position after the step
	done    chan struct{} // closed when all ranks have it and it is checked
}

func newTeam(w *world) *team {
	t := &team{
		w: w, checker: trainer.NewChecker(w.job), nearEnd: make(chan struct{}),
		lead: int64(pick(w.rng, 0, 0, 1, 3)), saveEvery: int64(pick(w.rng, 0, 1, 3, 4, 7, 11)), prefetch: pick(w.rng, -1, 1, 2, 4),
		pause: time.Duration(pick(w.rng, 0, 1, 20, 500)) * time.Millisecond, linger: float64(pick(w.rng, 0, 0, 1, 5)) / 10,
	}
	t.at = make([]int64, len(t.checker.Ranks()))
	return t
}

// train runs all ranks until they have all steps.
func (t *team) train(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer t.ghosts.Wait()
	defer stop()
	for ctx.Err() == nil {
		life, end := context.WithCancel(ctx)
		t.mu.Lock()
		t.lives++
		t.end, t.restarted, t.slots = end, false, map[int64]*slot{}
		t.first, t.at = t.saved, make([]int64, len(t.at))
		n, first, token := t.lives, t.first, t.token
		t.mu.Unlock()
		g, life := errgroup.WithContext(life)
		for i := range t.checker.Ranks() {
			g.Go(func() error { return t.rank(ctx, life, n, i, first, token) })
		}
		err := g.Wait()
		end()
		t.mu.Lock()
		again := t.restarted
		if again {
			t.resumes++
		}
		t.mu.Unlock()
		if ctx.Err() == nil && !again && !t.confused(err) {
			return err
		}
	}
	return nil
}

// confused says whether the service asks for all ranks to begin again from their checkpoint, which
// it may where a process of a life before goes on: it cannot always tell them apart.
func (t *team) confused(err error) bool {
	_, moved := errors.AsType[*client.MovedError](err)
	if late, ok := errors.AsType[*client.WaitError](err); ok {
		moved = strings.Contains(late.Error(), "which is refused: the job was moved")
	}
	replaced := err != nil && strings.Contains(err.Error(), "another client joined as") // a process of the life before, which joined again
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.haunted == 0 || !replaced && (!moved || t.lead == 0) {
		return false
	}
	t.w.log("team").Info("all ranks begin again", "err", err)
	t.resumes++
	t.confusions++
	return true
}

// restart kills all ranks. Those that have no token are let be, unless afresh: the
// planner has forgotten them, too.
func (t *team) restart(afresh bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end == nil || t.restarted || t.token == nil && !afresh && !t.w.opts.Tokenless {
		return
	}
	t.restarted = true
	for i := range t.at {
		host := hostOf(i, t.lives)
		if t.lingers(host) {
			t.w.network.Sever(host, plannerAddress) // it would move the job back to where it is
		} else {
			t.w.network.Kill(host)
		}
	}
	t.end()
}

// rollBack has all ranks begin again from a state that was saved before the last one.
func (t *team) rollBack(rng *rand.Rand) {
	t.mu.Lock()
	if n := len(t.older); n > 0 && t.end != nil && !t.restarted {
		n = rng.IntN(n)
		t.saved, t.token = t.older[n].step, t.older[n].token
		t.older = t.older[:n]
	}
	t.mu.Unlock()
	t.restart(false)
}

func hostOf(rank, life int) string { return fmt.Sprintf("rank-%d.%d", rank, life) }

// lingers says whether the rank of a host lives on when it is to be killed.
func (t *team) lingers(host string) bool {
	return random(t.w.opts.Seed, "ghost of "+host).Float64() < t.linger
}

// haunt is a rank that does not know that others took its place: it asks for batches until
// it is refused or the run ends. Nobody looks at what it gets.
func (t *team) haunt(ctx context.Context, c *client.Client, rng *rand.Rand) {
	defer c.Close()
	for {
		b, err := c.Next(ctx)
		if err != nil {
			return
		}
		b.Release()
		if sleep(ctx, between(rng, 0, t.pause)) != nil {
			return
		}
	}
}

// rank is one rank in one life, which ctx ends; run is all of the run.
func (t *team) rank(run, ctx context.Context, life, i int, first int64, token []byte) error {
	place, host := t.checker.Ranks()[i], hostOf(i, life)
	rng := random(t.w.opts.Seed, host)
	c, err := t.open(ctx, host, place, token, rng)
	if err == nil {
		err = t.steps(ctx, c, i, rng, first)
		if err != nil && ctx.Err() != nil && t.lingers(host) {
			t.mu.Lock()
			t.haunted++
			t.mu.Unlock()
			t.ghosts.Go(func() { t.haunt(run, c, rng) })
		} else {
			c.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", host, err)
	}
	return nil
}

// open joins; what is lost is tried again, as a launcher does.
func (t *team) open(ctx context.Context, host string, place client.Rank, token []byte, rng *rand.Rand) (*client.Client, error) {
	ways := []client.Way{"", "", client.WayCalls}
	way := ways[random(t.w.opts.Seed, "way of "+place.String()).IntN(len(ways))]
	for {
		c, err := client.Open(ctx, plannerAddress, client.Options{
			Stall: -1, // faults may hold everything up for longer, and the liveness phase says whether it goes on
			Rank:  place, Token: token, Prefetch: t.prefetch, Way: way, Security: t.w.on(host), Log: t.w.log(host),
		})
		if err == nil || ctx.Err() != nil || fault.ClassOf(err) != fault.Lost {
			return c, err
		}
		t.w.log(host).Info("joining was lost, and is tried again", "err", err)
		if err := sleep(ctx, between(rng, 10*time.Millisecond, time.Second)); err != nil {
			return nil, err
		}
	}
}

// steps takes all steps that are left.
func (t *team) steps(ctx context.Context, c *client.Client, i int, rng *rand.Rand, first int64) error {
	steps := t.w.want.steps()
	if at := c.Step(); at != first {
		return fmt.Errorf("joined at step %d in place of %d", at, first)
	}
	if first == 0 {
		if err := t.save(ctx, c, -1); err != nil {
			return err
		}
	}
	for at := first; t.w.recipe.steps == 0 || at < steps; at++ {
		if err := t.await(ctx, at-1-t.lead); err != nil {
			return err
		}
		t.note(i, at)
		b, err := c.Next(ctx)
		if errors.Is(err, io.EOF) && at == steps {
			break
		}
		if err != nil {
			return fmt.Errorf("step %d: %w", at, err)
		}
		if err := t.take(at, i, b); err != nil {
			return err
		}
		if t.saveEvery > 0 && (at+1)%t.saveEvery == 0 {
			if err := t.save(ctx, c, at); err != nil {
				return err
			}
		}
		if err := sleep(ctx, between(rng, 0, t.pause)); err != nil {
			return err
		}
	}
	return t.await(ctx, steps-1)
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *team) note(i int, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at[i] = at
}

// slot returns that of a step. The lock is held.
func (t *team) slot(step int64) *slot {
	s := t.slots[step]
	if s == nil {
		n := len(t.at)
		s = &slot{batches: make([]*client.Batch, n), missing: n, done: make(chan struct{})}
		t.slots[step] = s
	}
	return s
}

// await waits until all ranks have a step, if this life began before it.
func (t *team) await(ctx context.Context, step int64) error {
	t.mu.Lock()
	if step < t.first {
		t.mu.Unlock()
		return nil
	}
	s := t.slot(step)
	t.mu.Unlock()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take takes a rank's batch, and checks the step when it is the last.
func (t *team) take(step int64, i int, b *client.Batch) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if step >= t.w.want.steps() {
		return fmt.Errorf("step %d was delivered; the data ends at %d", step, t.w.want.steps())
	}
	s := t.slot(step)
	if b.Step != step || s.batches[i] != nil {
		return fmt.Errorf("step %d was delivered in place of %d", b.Step, step)
	}
	s.batches[i] = b
	if s.missing--; s.missing > 0 {
		return nil
	}
	got, err := t.checker.Check(t.w.want.digests[step], s.batches)
	if err != nil {
		return err
	}
	if want := t.w.want.digests[step+1]; got.Digest != want {
		return fmt.Errorf("step %d: the batches have digest %x, the reference reader's have %x", step, got.Digest[:6], want[:6])
	}
	for _, b := range s.batches {
		b.Release()
	}
	s.batches = nil
	close(s.done)
	t.checked++
	if t.far = max(t.far, step+1); 4*t.far >= 3*t.w.want.steps() {
		select {
		case <-t.nearEnd:
		default:
			close(t.nearEnd)
		}
	}
	return nil
}

// save saves the state after a step that all ranks have, and checks that all have the same.
func (t *team) save(ctx context.Context, c *client.Client, step int64) error {
	if err := t.await(ctx, step); err != nil {
		return err
	}
	token, digest, err := c.State(ctx)
	if err != nil && ctx.Err() == nil && fault.ClassOf(err) == fault.Lost {
		return nil // another rank may save it, or none
	}
	if err != nil {
		return fmt.Errorf("saving the state after step %d: %w", step, err)
	}
	if want := t.w.want.digests[step+1]; digest != want {
		return fmt.Errorf("the state after step %d has digest %x, the reference reader's is %x", step, digest[:6], want[:6])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.slot(step)
	if s.token != nil && string(s.token) != string(token) {
		return fmt.Errorf("the ranks have different states after step %d", step)
	}
	s.token = token
	if t.token == nil || step+1 > t.saved {
		if t.token != nil {
			t.older = append(t.older, checkpoint{t.saved, t.token})
		}
		t.saved, t.token = step+1, token
	}
	return nil
}

// stuck says how far each rank is.
func (t *team) stuck() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d of %d steps are checked; the ranks wait for steps %v", t.far, t.w.want.steps(), t.at)
}
