package deliver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Step is a built step. Content is its builder's: nothing here looks at it.
type Step struct {
	Generation uint64
	Number     uint64
	Bytes      int64           // of memory that it holds
	Plan       *pb.StepPlan    // that it was built of, as it was claimed
	Rows       []*pb.Assembled // what the planner is to hear of it
	Content    any

	buckets []uint32 // that it has rows for
}

// Rank is a trainer's place.
type Rank struct{ DP, CP, PP, TP uint32 }

// String names the rank in messages.
func (r Rank) String() string { return r.wire().Name() }

func (r Rank) wire() *pb.Coordinates {
	return &pb.Coordinates{Dp: r.DP, Cp: r.CP, Pp: r.PP, Tp: r.TP}
}

// RankOf reads a rank's place.
func RankOf(c *pb.Coordinates) Rank { return Rank{c.GetDp(), c.GetCp(), c.GetPp(), c.GetTp()} }

// claim is a step that is being built.
type claim struct {
	plan    *pb.StepPlan
	buckets []uint32 // that the plan is for
	bytes   int64    // reserved
	crowded bool     // it waits for memory
	awaits  awaited  // what a loader said last that it waits for
}

// Steps are the steps of a constructor's job, from plan to release, and the positions of its
// ranks. It is safe for concurrent use.
type Steps struct {
	changed chan struct{}

	mu         sync.Mutex // guards the fields below, never held across a wait
	job        *pb.ConstructorJob
	upcoming   *upcoming // the same job as the next Restart has it; nil if nothing changes
	between    bool      // the job is that of another mesh, and Restart is to follow
	fresh      bool      // a session began, and its first Restart is to follow
	budget     int64
	generation uint64
	origin     uint64            // where the generation began
	base       uint64            // steps before it are released
	from       uint64            // steps before it are not built
	next       uint64            // step to build next
	plans      map[uint64]*claim // to be claimed
	building   map[uint64]*claim
	ready      map[uint64]*Step
	rows       map[uint64][]*pb.Assembled // of steps that were built, of the last ones also when they are released
	untold     []uint64                   // of them, those that TakeReports has not given
	held       int64
	lent       int64 // of memory that ranks map
	aside      int64 // of such memory that is to be made
	ended      *pb.EndOfData
	moved      *pb.Moved // how the generation began
	strict     bool      // no rank of an earlier generation is a rank of this one
	failed     error
	leaving    error   // what those hear who wait for a step that is not there; nil: they wait
	alone      awaited // there is no planner, and why; none while there is one
	planner    awaited // what it said last that it waits for
	acked      map[Rank]uint64
	positions  tally                  // of all ranks
	buckets    map[uint32]*bucket     // by DP rank
	risen      []uint32               // buckets whose slowest rank moved since TakeReports
	joins      map[Rank]uint64        // the last join of each rank
	left       map[Rank]uint64        // the join whose client was closed, by rank: it counts while that is the last one
	entries    map[Rank]*pb.RankEntry // how ranks entered the job that joined again since
	entered    uint64                 // the last join that was granted, of whatever rank
	greeted    uint64                 // the same, as a session that is fresh began with it
	advanced   map[Rank]uint64        // what that was when a rank's acknowledgement last rose, in this generation
	asked      map[Rank]entry         // ranks that asked in this generation, since they joined last
	adopted    map[Rank]entry         // ranks of an earlier generation that go on in this one
	stood      map[Rank]uint64        // how far ranks said that they are since they joined last, or when they did, in whatever generation
	refused    map[Rank]refused       // ranks of an earlier generation that do not, and still ask
	waiting    map[Rank]*waiting
	lagging    []laggard // as of looked
	looked     time.Time
	guesses    int // buckets of which it is a guess where ranks are that have not asked
	trainers   map[Rank]*trainer
	ways       map[Rank]Way // in which ranks got their last batches
	seen       looks        // at trainers
	counts     pb.ConstructorUsage

	steps    signals // those who wait for a step, by its number
	builders signals // under the key 0
	lookers  signals // under the key 0

	requests waiters // of ranks, that wait for a step
	streams  waiters // of ranks, whether they wait or not
	looks    waiters // from outside, that wait for one
}

// New returns the state of a constructor without a job.
func New() *Steps {
	return &Steps{changed: make(chan struct{}, 1), waiting: map[Rank]*waiting{}, trainers: map[Rank]*trainer{}, ways: map[Rank]Way{}, stood: map[Rank]uint64{}, entries: map[Rank]*pb.RankEntry{}, alone: awaited{what: "it has not heard from one yet", moved: time.Now()}}
}

// update runs f under the lock and wakes all who wait.
func (s *Steps) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.wake()
}

// wake wakes all who wait. The lock is held.
func (s *Steps) wake() {
	s.steps.wakeAll()
	s.builders.wakeAll()
	s.lookers.wakeAll()
}

// until runs f under the lock, again whenever of's key is woken, until it reports true.
func (s *Steps) until(ctx context.Context, of *signals, key uint64, f func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !f() {
		changed := of.enter(key)
		s.mu.Unlock()
		select {
		case <-changed.woken:
			s.mu.Lock()
		case <-ctx.Done():
			s.mu.Lock()
			of.leave(key, changed)
			return ctx.Err()
		}
	}
	return nil
}

func (s *Steps) clear(r *pb.Restart) {
	next := r.NextStep
	s.generation, s.origin, s.ended, s.strict, s.moved = r.Generation, next, nil, r.Remeshed, r.Moved
	s.base, s.from, s.next = next, next, next
	s.plans, s.ready, s.building, s.held = map[uint64]*claim{}, map[uint64]*Step{}, map[uint64]*claim{}, 0
	s.rows, s.untold = map[uint64][]*pb.Assembled{}, nil
	s.adopted, s.refused = s.adoptable(r), map[Rank]refused{}
	acked, advanced := s.acked, s.advanced
	s.acked, s.asked, s.advanced = map[Rank]uint64{}, map[Rank]entry{}, map[Rank]uint64{}
	s.buckets, s.risen, s.guesses, s.looked = map[uint32]*bucket{}, nil, 0, time.Time{}
	for _, dp := range s.job.GetBuckets() {
		s.addBucket(dp, next, r.Resent || next > r.Moved.GetTo())
	}
	maps.DeleteFunc(s.ways, func(r Rank, _ Way) bool { _, here := s.acked[r]; return !here })
	s.positions = newTally(next, len(s.acked))
	s.takeAlong(acked, advanced)
}

// addBucket serves a bucket whose ranks are done with the steps before one, or are further if that
// is a guess. The lock is held.
func (s *Steps) addBucket(dp uint32, at uint64, guess bool) {
	ranks := s.fetchers(dp)
	s.buckets[dp] = &bucket{ranks: ranks, guess: guess, positions: newTally(at, len(ranks))}
	if guess {
		s.guesses++
	}
	for _, r := range ranks {
		s.acked[r] = at
	}
}

// fetchers are the ranks of a bucket that ask for batches themselves.
func (s *Steps) fetchers(dp uint32) []Rank {
	tp := s.job.Mesh.Tp
	if s.job.BroadcastAt == "tp" {
		tp = 1
	}
	var ranks []Rank
	for cp := range s.job.Mesh.Cp {
		for pp := range s.job.Mesh.Pp {
			for t := range tp {
				ranks = append(ranks, Rank{dp, cp, pp, t})
			}
		}
	}
	return ranks
}

// Plan takes the plan of a step that is to be built. One that is there already stays as it is;
// its plan has to be the same.
func (s *Steps) Plan(p *pb.StepPlan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	if p.Generation != s.generation || s.between {
		return
	}
	if was, buckets := s.planOf(p.Step); was != nil && slices.Equal(buckets, s.job.Buckets) && !samePlan(was, p) {
		s.fail(fmt.Errorf("step %d was planned twice, and not alike: a plan is not a function of its step", p.Step))
		return
	}
	if p.Step < s.from || s.has(p.Step) {
		return
	}
	s.plans[p.Step], s.next = &claim{plan: p, buckets: s.job.Buckets}, min(s.next, p.Step)
	s.planner = awaited{}
	s.builders.wakeAll()
	s.lookers.wakeAll()
}

// planOf is the plan that a step is or was built of, and the buckets that it is for; nil if it
// is not here. The lock is held.
func (s *Steps) planOf(step uint64) (*pb.StepPlan, []uint32) {
	if c := s.building[step]; c != nil {
		return c.plan, c.buckets
	}
	if st := s.ready[step]; st != nil {
		return st.Plan, st.buckets
	}
	return nil, nil
}

// has says whether a step needs not be built any more. The lock is held.
func (s *Steps) has(step uint64) bool {
	st := s.ready[step]
	return s.building[step] != nil || st != nil && st.covers(s.job.Buckets) || st == nil && s.rows[step] != nil
}

// covers says whether a step has rows for some buckets.
func (st *Step) covers(buckets []uint32) bool {
	for _, dp := range buckets {
		if !slices.Contains(st.buckets, dp) {
			return false
		}
	}
	return true
}

// End says where the data ends.
func (s *Steps) End(end *pb.EndOfData) {
	s.update(func() {
		s.settle()
		if end.Generation == s.generation {
			s.ended = end
		}
	})
}

// Fail makes every request end with err. The first error stands.
func (s *Steps) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
}

// fail is Fail. The lock is held.
func (s *Steps) fail(err error) {
	if s.failed == nil {
		s.failed = err
	}
	s.wake()
}

// GiveUp drops a step that was claimed and cannot be built: requests end with err. It does nothing
// and returns false if the step is not wanted any more.
func (s *Steps) GiveUp(p *pb.StepPlan, err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.building[p.Step]
	if c == nil || c.plan != p {
		return false
	}
	s.held -= c.bytes
	delete(s.building, p.Step)
	if s.fresh {
		c.crowded, c.awaits = false, awaited{}
		s.plans[p.Step], s.next = c, min(s.next, p.Step) // it is tried again for the new planner
		return false
	}
	s.fail(err)
	return true
}

// Leave makes every request for a step that is not there end with the error that it returns, while
// those that are there are given out. Whether another constructor serves a rank then, and whether
// there is a planner to say so, is not known here: the rank has to ask.
func (s *Steps) Leave() error {
	s.update(func() {
		why := "this constructor was asked to stop: the planner says which one serves the rank"
		if s.alone.what != "" {
			why = s.withoutPlanner("this constructor was asked to stop, and ", time.Now()).Reason
		}
		s.leaving = fault.As(fault.Lost, fmt.Errorf("%s: %w", why, ErrJoinAgain))
	})
	return s.leaving
}

// Claim waits for the plan of the next step, until it fits the budget, and reserves its
// bytes. Steps are claimed in their order, whenever their plans come: a later one must
// not take the room of the one that ranks wait for. The first of all always fits: without it
// no rank could go on and nothing would ever be released. Reserved are the bytes of the tokens:
// Grow reserves what a step has beside them.
func (s *Steps) Claim(ctx context.Context) (*pb.StepPlan, error) {
	var claimed *pb.StepPlan
	err := s.until(ctx, &s.builders, 0, func() bool {
		for s.job != nil && (s.has(s.next) || s.next < s.base && s.plans[s.next] == nil) {
			s.next++
		}
		c := s.plans[s.next]
		if c == nil {
			return false
		}
		bytes := c.tokenBytes()
		if !s.fits(bytes) && !s.first(c.plan.Step) {
			return false
		}
		delete(s.plans, c.plan.Step)
		s.next++
		s.building[c.plan.Step] = c
		c.bytes, c.awaits, claimed = bytes, awaited{moved: time.Now()}, c.plan
		s.held += bytes
		return true
	})
	return claimed, err
}

// tokenBytes are those of a step's tokens.
func (c *claim) tokenBytes() (bytes int64) {
	for _, n := range c.plan.SampleLength {
		bytes += 4 * int64(n)
	}
	return bytes
}

// crowded is the first step that waits for room, if that is so. The lock is held.
func (s *Steps) crowded() (step uint64, so bool) {
	for k, c := range s.building {
		if c.crowded && (!so || k < step) {
			step, so = k, true
		}
	}
	if c := s.plans[s.next]; !so && c != nil && !s.fits(c.tokenBytes()) && !s.first(s.next) {
		return s.next, true
	}
	return step, so
}

// Grow waits until the memory of a claimed step may be bytes in all, more than its tokens, and
// reserves them. The first of the steps that are built and held always may, as in Claim.
func (s *Steps) Grow(ctx context.Context, p *pb.StepPlan, bytes int64) error {
	return s.until(ctx, &s.builders, 0, func() bool {
		c := s.building[p.Step]
		if c == nil || c.plan != p {
			return true // Done will drop it
		}
		c.crowded = !s.fits(bytes-c.bytes) && !s.first(p.Step)
		if c.crowded {
			return false
		}
		s.held += bytes - c.bytes
		c.bytes = bytes
		return true
	})
}

// first says whether ranks can get no step without this one. The lock is held.
func (s *Steps) first(step uint64) bool {
	said := s.leastSaid()
	for other, st := range s.ready {
		if said <= other && other < step || other == step && st.covers(s.job.Buckets) {
			return false
		}
	}
	for other := range s.building {
		if other < step {
			return false
		}
	}
	return true
}

// leastSaid is how far the slowest rank is, without those that came here while the generation went
// on and have not asked yet. Where these are is a guess, and the least that there can be: they may
// have the steps that they are to train on, and wait for another rank to get them, too, so that they
// ask for none. What is held for them alone must not take that one's room. How far a rank may be
// ahead of others bounds what is held beyond the budget. The lock is held.
func (s *Steps) leastSaid() uint64 {
	if s.guesses == 0 {
		return s.base
	}
	least := ^uint64(0)
	for _, b := range s.buckets {
		for _, r := range b.ranks {
			if _, asked := s.asked[r]; asked || !b.guess {
				least = min(least, s.acked[r])
			}
		}
	}
	if least == ^uint64(0) {
		return s.base
	}
	return least
}

// Done makes a built step available. A step that is not wanted any more is dropped.
func (s *Steps) Done(st *Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.building[st.Number]
	if c == nil || st.Generation != s.generation || st.Plan != nil && st.Plan != c.plan {
		return
	}
	st.Plan, st.buckets = c.plan, c.buckets
	s.held -= c.bytes
	delete(s.building, st.Number)
	if st.Number >= s.base {
		s.drop(st.Number) // it had rows for fewer buckets
		s.ready[st.Number] = st
		s.held += st.Bytes
	}
	s.rows[st.Number] = st.Rows
	s.untold = append(s.untold, st.Number)
	s.notify()
	s.steps.wake(st.Number)
	s.builders.wakeAll()
	s.lookers.wakeAll()
}

// drop lets go of a step that is there. The lock is held.
func (s *Steps) drop(step uint64) {
	if st := s.ready[step]; st != nil {
		s.held -= st.Bytes
		delete(s.ready, step)
	}
}

// Admit says how far earlier joins of a rank got, and makes them void.
func (s *Steps) Admit(a *pb.Admit) *pb.Admitted {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	r := RankOf(a.Rank)
	if !a.OnlyAsks {
		s.joins[r] = a.Join
		s.stood[r], s.entries[r] = a.Step, a.Entered
		delete(s.asked, r)
		delete(s.adopted, r)
		delete(s.refused, r)
	}
	return &pb.Admitted{Join: a.Join, Generation: s.generation, Acked: s.acked[r], Advanced: s.advanced[r]}
}
