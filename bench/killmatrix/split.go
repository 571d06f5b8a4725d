package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/rig"
)

// A split is a planner that stops itself at a failpoint, for longer than another one that has a
// disk of its own waits, and goes on when that has taken its place, or while it does: nothing
// tells it. What it then writes or says has to be refused; it has to end, and to say why; and the
// ranks must not see any of it.

// splits count what became of the planners that were stopped at a failpoint.
type splits struct {
	Site     failpoint.Site `json:"failpoint"`
	Stopped  int            `json:"stopped"`
	Replaced int            `json:"replaced"` // another planner took over; the others went on in time
	Refused  int            `json:"refused"`  // of those replaced: a write was refused, and they ended with class lost
	Failed   int            `json:"mismatches"`
}

// splitSites are those that a planner passes for each step.
var splitSites = []failpoint.Site{
	failpoint.AppendBefore, failpoint.SyncBefore, failpoint.SyncAfter, failpoint.MarkAfter,
	failpoint.AppendAfter, failpoint.DeliverBefore, failpoint.DeliverMiddle, failpoint.DigestBefore,
}

// Times of a split. A planner that stands by takes over 1.5 s after the leader's last sign of life.
const (
	stopEarly = 1200 * time.Millisecond // the leader goes on this long after it stopped, at the earliest
	stopRange = 1200 * time.Millisecond // and that much later at the latest
	stopAfter = 300 * time.Millisecond  // or up to this long after another one serves
	stopEnd   = 20 * time.Second        // a planner that was replaced ends within
)

// split is one run.
type split struct {
	*matrix
	number int
	answer *rig.Answer
	site   failpoint.Site
	pass   int // of the site, at which the leader stops
	races  bool
	delay  time.Duration

	mu    sync.Mutex // guards the field below
	ended []rig.Death
}

// split runs a number of splits and returns a row for each site.
func (m *matrix) split(ctx context.Context, n int) []*splits {
	if n == 0 {
		return nil
	}
	rows := make([]*splits, len(splitSites))
	for i, site := range splitSites {
		rows[i] = &splits{Site: site}
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, m.opts.parallel)
	for i := range n {
		if m.opts.only >= 0 && i != m.opts.only {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			s := m.drawSplit(i)
			err := s.run(ctx)
			mu.Lock()
			defer mu.Unlock()
			s.count(rows[i%len(rows)], err)
		})
	}
	all.Wait()
	return rows
}

func (m *matrix) drawSplit(number int) *split {
	rng := rig.Random(m.opts.seed, fmt.Sprint("split ", number))
	s := &split{matrix: m, number: number, answer: m.answers[rng.IntN(len(m.answers))], site: splitSites[number%len(splitSites)], pass: 5 + rng.IntN(often)}
	if s.races = rng.IntN(2) == 0; s.races {
		s.delay = stopEarly + time.Duration(rng.Int64N(int64(stopRange)))
	} else {
		s.delay = time.Duration(rng.Int64N(int64(stopAfter)))
	}
	return s
}

func (s *split) folder() string { return filepath.Join(s.opts.dir, fmt.Sprint("s", s.number)) }

// count adds what became of a split, and says how to repeat one that went wrong.
func (s *split) count(row *splits, err error) {
	row.Stopped++
	d, ends := s.death()
	if ends {
		row.Replaced++
	}
	switch {
	case err == nil && ends && d.Code != exitLost:
		err = fmt.Errorf("the planner that was replaced ended with exit code %d, signal %d: %s", d.Code, d.Signal, d.Message)
	case err == nil && ends && !strings.Contains(d.Message, "another planner"):
		err = fmt.Errorf("the planner that was replaced does not say so: %s", d.Message)
	case err == nil && ends:
		row.Refused++
	}
	if s.opts.verbose {
		fmt.Printf("split %d: %s at pass %d, races %v, goes on after %v: replaced %v: %s\n", s.number, s.site, s.pass, s.races, s.delay.Round(time.Millisecond), ends, d.Message)
	}
	if err == nil {
		_ = os.RemoveAll(s.folder())
		return
	}
	row.Failed++
	s.failed++
	fmt.Printf("split %d (%s, stop at pass %d of %s) did not pass: %v\n  its folder: %s\n  again: killmatrix -millrace %s -seed %d -kills 0 -splits %d -run %d\n",
		s.number, s.answer.Recipe.Name, s.pass, s.site, err, s.folder(), s.opts.binary, s.opts.seed, s.number+1, s.number)
}

// exitLost is the exit code of a role that something was lost for.
const exitLost = 4

// death is the end of the planner that was stopped.
func (s *split) death() (rig.Death, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.ended, func(d rig.Death) bool { return d.ID == stopped && d.Life == 1 })
	if i < 0 {
		return rig.Death{}, false
	}
	return s.ended[i], true
}

// stopped is the planner that stops itself; the other one stands by.
const stopped, successor = "planner", "planner-1"

// run runs the split. The steps, the samples and the token are those of the reference, and so is
// the log of whoever leads at the end.
func (s *split) run(ctx context.Context) error {
	dir := s.folder()
	_ = os.RemoveAll(dir) // of an earlier time
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	hits := filepath.Join(dir, "hits")
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.limit, errLate)
	defer cancel()
	log := ""
	err := rig.Run(ctx, rig.Options{
		Binary: s.opts.binary, Dir: dir, Answer: s.answer, Loaders: 2, Constructors: 2, Prefetch: 3, Standbys: 1, Mirror: true,
		Env: []string{"GOMAXPROCS=2", failpoint.EnvHits + "=" + hits, "MILLRACE_LOG_LEVEL=info"},
		Roles: func(spec *rig.Spec) {
			if spec.ID == stopped {
				spec.Env = func(life int) []string { return s.harm(life) }
			}
		},
		Died: func(d rig.Death) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ended = append(s.ended, d)
		},
	}, func(ctx context.Context, r *rig.Rig) error {
		var work sync.WaitGroup
		defer work.Wait()
		resumed := make(chan struct{})
		work.Go(func() { s.resume(ctx, r, hits); close(resumed) })
		_, err := rig.Train(ctx, rig.Training{Address: r.Address(), Answer: s.answer, Prefetch: 2, Pace: 10 * time.Millisecond, Deadline: 2 * s.opts.limit})
		if err != nil && context.Cause(ctx) == errLate {
			r.Dump()
		}
		if err == nil {
			err = s.settle(ctx, r, resumed)
		}
		log = r.LogDir(r.Leader())
		return err
	})
	if err != nil {
		return err
	}
	if v := s.verify(ctx, s.answer, log); v.count == "" {
		return fmt.Errorf("the log of the planner that leads at the end: %w", v.err)
	}
	return nil
}

// harm is what the planner that stops has in its environment.
func (s *split) harm(life int) []string {
	if life > 1 {
		return nil
	}
	return []string{fmt.Sprintf("%s=%s=stop@%d", failpoint.Env, s.site, s.pass)}
}

// resume continues the planner that stopped itself.
func (s *split) resume(ctx context.Context, r *rig.Rig, hits string) {
	defer r.Signal(stopped, syscall.SIGCONT)
	for len(readHits(hits)) == 0 {
		if !pause(ctx, 5*time.Millisecond) {
			return
		}
	}
	for !s.races && r.Leader() == stopped {
		if !pause(ctx, 5*time.Millisecond) {
			return
		}
	}
	pause(ctx, s.delay)
}

// settle waits, after the last step, until it is clear who leads: a planner that was replaced has
// ended.
func (s *split) settle(ctx context.Context, r *rig.Rig, resumed <-chan struct{}) error {
	select {
	case <-resumed:
	case <-ctx.Done():
		return ctx.Err()
	}
	for begin := time.Now(); r.Leader() == successor; {
		if _, ended := s.death(); ended {
			return s.checkEpoch(ctx, r)
		}
		if time.Since(begin) > stopEnd {
			return errors.New("the planner that was replaced goes on")
		}
		if !pause(ctx, 5*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// checkEpoch checks that the planner that took over has a greater epoch than the first, whose is 1:
// by it members tell the two apart.
func (s *split) checkEpoch(ctx context.Context, r *rig.Rig) error {
	for {
		now, err := r.Status(ctx)
		switch {
		case err == nil && now.Epoch > 1:
			return nil
		case err == nil:
			return fmt.Errorf("the planner that took over has epoch %d, as the one before it: nobody can tell them apart", now.Epoch)
		case !pause(ctx, 50*time.Millisecond):
			return err
		}
	}
}

// pause waits; it reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
