package deliver

import (
	"context"
	"sync"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// Step is a built step. Content is its builder's: nothing here looks at it.
type Step struct {
	Generation uint64
	Number     uint64
	Bytes      int64 // of memory that it holds
	Content    any
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

// Steps are the steps of a constructor's job, from plan to release, and the positions of its
// ranks. It is safe for concurrent use.
type Steps struct {
	acksChanged chan struct{}

	mu         sync.Mutex // guards the fields below, never held across a wait
	job        *pb.ConstructorJob
	between    bool // the job is that of another mesh, and Restart is to follow
	budget     int64
	generation uint64
	origin     uint64 // where the generation began
	base       uint64 // steps before it are released
	next       uint64 // step to build next
	plans      map[uint64]*pb.StepPlan
	building   map[uint64]int64 // bytes reserved, by step
	crowded    map[uint64]bool  // of these, which wait for memory
	ready      map[uint64]*Step
	held       int64
	ended      *pb.EndOfData
	moved      *pb.Moved // how the generation began
	strict     bool      // no rank of an earlier generation is a rank of this one
	failed     error
	acked      map[Rank]uint64
	positions  tally              // of all ranks
	buckets    map[uint32]*bucket // by DP rank
	risen      []uint32           // buckets whose slowest rank moved since TakeAcks
	joins      map[Rank]uint64    // the last join of each rank
	entered    uint64             // the last join that was granted, of whatever rank
	advanced   map[Rank]uint64    // what that was when a rank's acknowledgement last rose, in this generation
	asked      map[Rank]entry     // ranks that asked in this generation, since they joined last
	adopted    map[Rank]entry     // ranks of an earlier generation that go on in this one
	waiting    map[Rank]*waiting
	counts     pb.ConstructorUsage

	steps    signals // those who wait for a step, by its number
	builders signals // under the key 0
	lookers  signals // under the key 0

	requests waiters // of ranks, that wait for a step
	looks    waiters // from outside, that wait for one
}

// New returns the state of a constructor without a job.
func New() *Steps {
	return &Steps{acksChanged: make(chan struct{}, 1), waiting: map[Rank]*waiting{}}
}

// update runs f under the lock and wakes all who wait.
func (s *Steps) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
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

// Take begins a job, or goes on with it on another mesh.
func (s *Steps) Take(job *pb.ConstructorJob, budget int64) {
	s.update(func() {
		s.between = s.job != nil
		s.job, s.budget = job, budget
		if s.joins == nil { // another mesh makes no join unknown
			s.joins = map[Rank]uint64{}
		}
		s.clear(&pb.Restart{})
	})
}

// Restart begins a generation: plans, steps and positions of the one before are void.
func (s *Steps) Restart(r *pb.Restart) {
	s.update(func() {
		s.between = false
		s.clear(r)
	})
}

func (s *Steps) clear(r *pb.Restart) {
	next := r.NextStep
	s.generation, s.origin, s.base, s.next, s.ended, s.strict, s.moved = r.Generation, next, next, next, nil, r.Remeshed, r.Moved
	s.plans, s.ready, s.building = map[uint64]*pb.StepPlan{}, map[uint64]*Step{}, map[uint64]int64{}
	s.crowded, s.held = map[uint64]bool{}, 0
	s.adopted = s.adoptable(r)
	s.acked, s.asked, s.advanced = map[Rank]uint64{}, map[Rank]entry{}, map[Rank]uint64{}
	s.buckets, s.risen = map[uint32]*bucket{}, nil
	for _, dp := range s.job.GetBuckets() {
		ranks := s.fetchers(dp)
		s.buckets[dp] = &bucket{ranks: ranks, positions: newTally(next, len(ranks))}
		for _, r := range ranks {
			s.acked[r] = next
		}
	}
	s.positions = newTally(next, len(s.acked))
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

// Plan takes the plan of a step that is to be built.
func (s *Steps) Plan(p *pb.StepPlan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Generation == s.generation && p.Step >= s.next {
		s.plans[p.Step] = p
		s.builders.wakeAll()
		s.lookers.wakeAll()
	}
}

// End says where the data ends.
func (s *Steps) End(end *pb.EndOfData) {
	s.update(func() {
		if end.Generation == s.generation {
			s.ended = end
		}
	})
}

// Fail makes every request end with err. The first error stands.
func (s *Steps) Fail(err error) {
	s.update(func() {
		if s.failed == nil {
			s.failed = err
		}
	})
}

// Claim waits for the plan of the next step, until it fits the budget, and reserves its
// bytes. Steps are claimed in their order, whenever their plans come: a later one must
// not take the room of the one that ranks wait for. The first of all always fits: without it
// no rank could go on and nothing would ever be released. Reserved are the bytes of the tokens:
// Grow reserves what a step has beside them.
func (s *Steps) Claim(ctx context.Context) (*pb.StepPlan, error) {
	var claimed *pb.StepPlan
	err := s.until(ctx, &s.builders, 0, func() bool {
		if claimed = s.plans[s.next]; claimed == nil {
			return false
		}
		bytes := int64(0)
		for _, n := range claimed.SampleLength {
			bytes += 4 * int64(n)
		}
		first := len(s.building) == 0 && len(s.ready) == 0
		if s.held+bytes > s.budget && !first {
			return false
		}
		delete(s.plans, claimed.Step)
		s.next++
		s.building[claimed.Step] = bytes
		s.held += bytes
		return true
	})
	return claimed, err
}

// Grow waits until the memory of a claimed step may be bytes in all, more than its tokens, and
// reserves them. The first of the steps that are built and held always may, as in Claim.
func (s *Steps) Grow(ctx context.Context, p *pb.StepPlan, bytes int64) error {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.crowded, p.Step)
	}()
	return s.until(ctx, &s.builders, 0, func() bool {
		reserved, building := s.building[p.Step]
		if p.Generation != s.generation || !building {
			return true // Done will drop it
		}
		if s.held+bytes-reserved > s.budget && !s.first(p.Step) {
			s.crowded[p.Step] = true
			return false
		}
		s.building[p.Step] = bytes
		s.held += bytes - reserved
		return true
	})
}

// first says whether ranks can get no step without this one. The lock is held.
func (s *Steps) first(step uint64) bool {
	if len(s.ready) > 0 {
		return false
	}
	for other := range s.building {
		if other < step {
			return false
		}
	}
	return true
}

// Done makes a built step available. A step of an earlier generation is dropped.
func (s *Steps) Done(st *Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.Generation != s.generation {
		return
	}
	s.held += st.Bytes - s.building[st.Number]
	delete(s.building, st.Number)
	if st.Number >= s.base {
		s.ready[st.Number] = st
	} else {
		s.held -= st.Bytes
	}
	s.steps.wake(st.Number)
	s.builders.wakeAll()
	s.lookers.wakeAll()
}

// Admit says how far earlier joins of a rank got, and makes them void.
func (s *Steps) Admit(a *pb.Admit) *pb.Admitted {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := RankOf(a.Rank)
	if !a.OnlyAsks {
		s.joins[r] = a.Join
		delete(s.asked, r)
	}
	return &pb.Admitted{Join: a.Join, Generation: s.generation, Acked: s.acked[r], Advanced: s.advanced[r]}
}
