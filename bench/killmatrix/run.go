package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace-data/millrace/internal/checkpoint"
	"github.com/millrace-data/millrace/internal/failpoint"
	"github.com/millrace-data/millrace/internal/rig"
)

// matrix is the state of all runs.
type matrix struct {
	opts    options
	sites   []failpoint.Info
	answers []*rig.Answer
	begin   time.Time

	mu     sync.Mutex // guards the fields below
	next   int        // number of the next run
	table  *table
	failed int
}

// plan is what a run does.
type plan struct {
	number       int
	answer       *rig.Answer
	loaders      int
	constructors int
	prefetch     int // of the ranks
	ahead        int // steps planned
	pace         time.Duration
	delay        time.Duration // between a death and the next life
	site         failpoint.Site
	rollbacks    []rig.Rollback
	trims        bool                // the log lets go of old steps
	harms        map[string][]string // of each role: what its lives have at failpoints
}

// rare are the sites that a life passes once or a few times; the others are passed for each
// step or block.
var rare = map[failpoint.Site]int{
	failpoint.Join: 4, failpoint.Change: 3, failpoint.OpenAfter: 1, failpoint.FenceBefore: 1, failpoint.FenceAfter: 1, failpoint.IndexBefore: 2, failpoint.RestartApplied: 2,
	failpoint.TrimBefore: 3, failpoint.ReadAfter: 10, failpoint.ReadBefore: 10, failpoint.ReleaseMiddle: 8,
}

// often is about how often the other sites are passed by a life that is not ended.
const often = 30

// draw makes the plan of a run.
func (m *matrix) draw(number int) plan {
	rng := rig.Random(m.opts.seed, fmt.Sprint("run ", number))
	target := m.sites[number%len(m.sites)]
	p := plan{
		number: number, answer: m.answers[rng.IntN(len(m.answers))], site: target.Site,
		loaders: 1 + rng.IntN(3), constructors: 1 + rng.IntN(2), prefetch: 1 + rng.IntN(4), ahead: 2 + rng.IntN(6),
		pace: time.Duration(rng.IntN(15)) * time.Millisecond, delay: time.Duration(5+rng.IntN(150)) * time.Millisecond,
		harms: map[string][]string{},
	}
	if target.Site == failpoint.Change {
		p.answer = m.answers[2*rng.IntN(2)] // those that have changes
	}
	if target.Site == failpoint.RestartApplied || rng.IntN(4) == 0 {
		p.rollBack(rng)
	}
	if p.trims = target.Site == failpoint.TrimBefore; p.trims {
		p.rollbacks = nil // the log may have let go of where they lead
	}
	if target.Site == failpoint.FenceBefore || target.Site == failpoint.FenceAfter { // the first planner of a job finds no log
		p.add(rng, failpoint.Sites[0], 1)
	}
	p.add(rng, target, 2+rng.IntN(4))
	if rng.IntN(3) == 0 { // another one beside it
		p.add(rng, m.sites[rng.IntN(len(m.sites))], 1+rng.IntN(2))
	}
	return p
}

// rollBack has the ranks go back once or twice.
func (p *plan) rollBack(rng *rand.Rand) {
	for at, steps := int64(0), p.answer.Steps(); len(p.rollbacks) < 2; {
		to := at + 1 + rng.Int64N(steps/4)
		at = to + rng.Int64N(12)
		p.rollbacks = append(p.rollbacks, rig.Rollback{To: to, At: at})
	}
}

// add has a role of a site end there in some of its lives.
func (p *plan) add(rng *rand.Rand, s failpoint.Info, lives int) {
	id := string(s.Role)
	switch s.Role {
	case failpoint.Loader:
		id = fmt.Sprintf("loader-%d", rng.IntN(p.loaders))
	case failpoint.Constructor:
		id = fmt.Sprintf("constructor-%d", rng.IntN(p.constructors))
	}
	for range lives {
		most := often
		if n, ok := rare[s.Site]; ok {
			most = n
		}
		p.harms[id] = append(p.harms[id], fmt.Sprintf("%s=kill@%d", s.Site, 1+rng.IntN(most)))
	}
}

// result is what a run did.
type result struct {
	trained *rig.Trained
	took    time.Duration
	kills   int // processes that ended by SIGKILL
	hits    map[failpoint.Site]int
	err     error
}

func (m *matrix) folder(p plan) string { return filepath.Join(m.opts.dir, fmt.Sprint("r", p.number)) }

// execute runs a plan.
func (m *matrix) execute(ctx context.Context, p plan) (res result) {
	dir := m.folder(p)
	_ = os.RemoveAll(dir) // of an earlier time
	if res.err = os.MkdirAll(dir, 0o755); res.err != nil {
		return res
	}
	hits := filepath.Join(dir, "hits")
	begin := time.Now()
	var kills atomic.Int64
	opts := rig.Options{
		Binary: m.opts.binary, Dir: dir, Answer: p.answer, Loaders: p.loaders, Constructors: p.constructors, Prefetch: p.ahead,
		Env:   []string{"GOMAXPROCS=2", failpoint.EnvHits + "=" + hits, "MILLRACE_LOG_LEVEL=info"},
		Roles: p.arm,
		Died: func(d rig.Death) {
			if d.Signal == syscall.SIGKILL {
				kills.Add(1)
			}
		},
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.opts.limit, errLate)
	defer cancel()
	res.err = rig.Run(ctx, opts, func(ctx context.Context, r *rig.Rig) (err error) {
		res.trained, err = rig.Train(ctx, rig.Training{
			Address: r.Address(), Answer: p.answer, Prefetch: p.prefetch, Pace: p.pace, Deadline: 2 * m.opts.limit, Rollbacks: p.rollbacks,
		})
		if err != nil && context.Cause(ctx) == errLate {
			r.Dump()
			err = fmt.Errorf("%w of %v; %d steps were delivered: %w", errLate, m.opts.limit, res.trained.Steps, err)
		}
		return err
	})
	res.took, res.kills, res.hits = time.Since(begin), int(kills.Load()), readHits(hits)
	if res.err == nil {
		_ = os.RemoveAll(dir)
	}
	return res
}

var errLate = fmt.Errorf("the run took longer than its limit")

// arm has a role end as the plan says.
func (p plan) arm(s *rig.Spec) {
	harms := p.harms[s.ID]
	var env []string
	if p.trims && s.ID == string(failpoint.Planner) {
		args := s.Args
		s.Args = func(life int) []string { return append(args(life), "--log-retain", strconv.Itoa(checkpoint.TrimEvery)) }
		env = []string{failpoint.EnvSmallLog + "=1"}
	}
	s.Env = func(life int) []string {
		if life > len(harms) {
			return env
		}
		return append(slices.Clip(env), failpoint.Env+"="+harms[life-1])
	}
	s.Delay = func(int) time.Duration { return p.delay }
}

// readHits reads which failpoints ended a process.
func readHits(path string) map[failpoint.Site]int {
	hits := map[failpoint.Site]int{}
	text, err := os.ReadFile(path)
	if err != nil {
		return hits // nothing was hit
	}
	for line := range strings.Lines(string(text)) {
		site, _, _ := strings.Cut(line, " ")
		hits[failpoint.Site(site)]++
	}
	return hits
}

// runAll runs plans until there were enough kills.
func (m *matrix) runAll(ctx context.Context) {
	if m.opts.only >= 0 {
		m.finish(m.draw(m.opts.only), m.execute(ctx, m.draw(m.opts.only)))
		return
	}
	var all sync.WaitGroup
	for range m.opts.parallel {
		all.Go(func() {
			for ctx.Err() == nil {
				number, more := m.take()
				if !more {
					return
				}
				p := m.draw(number)
				res := m.execute(ctx, p)
				if ctx.Err() == nil {
					m.finish(p, res)
				}
			}
		})
	}
	all.Wait()
}

// take gives the next run's number, unless all is done.
func (m *matrix) take() (number int, more bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := &m.opts
	switch {
	case o.runs > 0 && m.next >= o.runs:
	case o.runs == 0 && m.table.kills >= o.kills:
	case o.within > 0 && time.Since(m.begin) > o.within:
	default:
		m.next++
		return m.next - 1, true
	}
	return 0, false
}

// finish counts a run, and says how to repeat one that did not pass.
func (m *matrix) finish(p plan, res result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table.add(p, res)
	if m.opts.verbose {
		fmt.Printf("run %d: %s, %d kills, %v, longest wait %v, %v %v\n", p.number, p.site, res.kills, res.took.Round(time.Millisecond), longest(res).Round(time.Millisecond), p.harms, p.rollbacks)
	}
	if res.err == nil {
		return
	}
	m.failed++
	fmt.Printf("run %d (%s, %v) did not pass: %v\n  its folder: %s\n  again: killmatrix -millrace %s -seed %d -run %d -limit %v%s\n",
		p.number, p.answer.Recipe.Name, p.harms, res.err, m.folder(p), m.opts.binary, m.opts.seed, p.number, m.opts.limit, sitesFlag(m.opts.sites))
}

func sitesFlag(sites string) string {
	if sites == "" {
		return ""
	}
	return " -sites " + sites
}
