package constructor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace-data/millrace/internal/constructor/assemble"
	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// step is one assembled step: the rows of this constructor's buckets.
type step struct {
	generation uint64
	number     uint64
	length     int    // tokens of a row
	total      uint32 // rows of the global batch
	rows       []row  // by microbatch, then by DP rank, then by place in the microbatch
	images     map[slot][]picture
	from       content
	bytes      int64
}

// steps is the state of a constructor: the plans to build, the steps that are
// ready, and how far each rank is. It is safe for concurrent use.
type steps struct {
	acksChanged chan struct{} // nudged when takeAcks has something to give

	mu         sync.Mutex    // guards the fields below, never held across a wait
	changed    chan struct{} // closed and replaced whenever something changes
	job        *pb.ConstructorJob
	layout     assemble.Layout
	budget     int64
	generation uint64
	origin     uint64 // where the generation began
	base       uint64 // steps before it are released
	next       uint64 // step to build next
	plans      map[uint64]*pb.StepPlan
	building   map[uint64]int64 // bytes reserved, by step
	ready      map[uint64]*step
	held       int64
	sources    []string // that joined after the start
	ended      *pb.EndOfData
	moved      *pb.Moved // how the generation began
	strict     bool      // no rank of an earlier generation is a rank of this one
	failed     error
	acked      map[rank]uint64
	joins      map[rank]uint64 // the last join of each rank
	entered    uint64          // the last join that was granted, of whatever rank
	advanced   map[rank]uint64 // what that was when a rank's acknowledgement last rose, in this generation
	asked      map[rank]entry  // ranks that asked in this generation, since they joined last
	adopted    map[rank]entry  // ranks of an earlier generation that go on in this one
	reported   map[uint32]uint64
	waiting    map[rank]*waiting
	counts     pb.ConstructorUsage

	requests waiters // of ranks, that wait for a step
	looks    waiters // from outside, that wait for one
}

// rank is a trainer's place.
type rank struct{ dp, cp, pp, tp uint32 }

func (r rank) String() string { return r.wire().Name() }

func (r rank) wire() *pb.Coordinates {
	return &pb.Coordinates{Dp: r.dp, Cp: r.cp, Pp: r.pp, Tp: r.tp}
}

func rankOf(c *pb.Coordinates) rank { return rank{c.GetDp(), c.GetCp(), c.GetPp(), c.GetTp()} }

func newSteps() *steps {
	return &steps{acksChanged: make(chan struct{}, 1), changed: make(chan struct{}), waiting: map[rank]*waiting{}}
}

// update runs f under the lock and wakes all who wait.
func (s *steps) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// until runs f under the lock, again after every change, until it reports true.
func (s *steps) until(ctx context.Context, f func() bool) error {
	for {
		s.mu.Lock()
		ok := f()
		changed := s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *steps) take(job *pb.ConstructorJob, layout assemble.Layout, budget int64) {
	s.update(func() {
		s.job, s.layout, s.budget = job, layout, budget
		if s.joins == nil { // another mesh makes no join unknown
			s.joins = map[rank]uint64{}
		}
		s.sources = nil
		s.clear(&pb.Restart{})
	})
}

// content is what a step is laid out by: the mesh and format of its job, and what
// the sources hold beside tokens.
type content struct {
	layout  assemble.Layout   // of rows of any length
	names   []string          // of the sources that were there from the start
	kept    []*pb.KeptColumns // by source
	images  []*pb.ImageStep   // by source; empty if no source has images
	mesh    *pb.Mesh
	columns []string // that any source keeps, sorted
	joined  []string // sources that joined after the start
}

func (s *steps) content() content {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := content{layout: s.layout, kept: slices.Clone(s.job.Kept), names: s.job.Sources, images: s.job.Images, mesh: s.job.Mesh, joined: slices.Clone(s.sources)}
	for _, k := range c.kept {
		c.columns = append(c.columns, k.Names...)
	}
	slices.Sort(c.columns)
	c.columns = slices.Compact(c.columns)
	return c
}

// joined notes a source that joined the job.
func (s *steps) joined(src *pb.SourceJoined) {
	s.update(func() {
		s.job.Kept = append(s.job.Kept, &pb.KeptColumns{Names: src.Keep})
		s.sources = append(s.sources, src.Name)
	})
}

func (s *steps) restart(r *pb.Restart) {
	s.update(func() { s.clear(r) })
}

func (s *steps) clear(r *pb.Restart) {
	next := r.NextStep
	s.generation, s.origin, s.base, s.next, s.ended, s.strict, s.moved = r.Generation, next, next, next, nil, r.Remeshed, r.Moved
	s.plans, s.ready, s.building = map[uint64]*pb.StepPlan{}, map[uint64]*step{}, map[uint64]int64{}
	s.held = 0
	s.adopted = s.adoptable(r)
	s.acked, s.reported, s.asked, s.advanced = map[rank]uint64{}, map[uint32]uint64{}, map[rank]entry{}, map[rank]uint64{}
	for _, dp := range s.job.GetBuckets() {
		s.reported[dp] = next
		for _, r := range s.fetchers(dp) {
			s.acked[r] = next
		}
	}
}

// fetchers are the ranks of a bucket that ask for batches themselves.
func (s *steps) fetchers(dp uint32) []rank {
	tp := s.job.Mesh.Tp
	if s.job.BroadcastAt == "tp" {
		tp = 1
	}
	var ranks []rank
	for cp := range s.job.Mesh.Cp {
		for pp := range s.job.Mesh.Pp {
			for t := range tp {
				ranks = append(ranks, rank{dp, cp, pp, t})
			}
		}
	}
	return ranks
}

func (s *steps) plan(p *pb.StepPlan) {
	s.update(func() {
		if p.Generation == s.generation && p.Step >= s.next {
			s.plans[p.Step] = p
		}
	})
}

// admit says how far earlier joins of a rank got, and makes them void.
func (s *steps) admit(a *pb.Admit) *pb.Admitted {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := rankOf(a.Rank)
	if !a.OnlyAsks {
		s.joins[r] = a.Join
		delete(s.asked, r)
	}
	return &pb.Admitted{Join: a.Join, Generation: s.generation, Acked: s.acked[r], Advanced: s.advanced[r]}
}

func (s *steps) end(end *pb.EndOfData) {
	s.update(func() {
		if end.Generation == s.generation {
			s.ended = end
		}
	})
}

// fail makes every rank that asks hear err. The first error stands.
func (s *steps) fail(err error) {
	s.update(func() {
		if s.failed == nil {
			s.failed = err
		}
	})
}

// claim waits for the plan of the next step, until it fits the budget, and reserves its
// bytes. Steps are claimed in their order, whenever their plans come: a later one must
// not take the room of the one that ranks wait for. The first of all always fits: without it
// no rank could go on and nothing would ever be released.
func (s *steps) claim(ctx context.Context) (*pb.StepPlan, error) {
	var claimed *pb.StepPlan
	err := s.until(ctx, func() bool {
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

// done makes an assembled step available.
func (s *steps) done(st *step) {
	s.update(func() {
		if st.generation != s.generation {
			return
		}
		s.held += st.bytes - s.building[st.number] // what was reserved are the tokens
		delete(s.building, st.number)
		if st.number >= s.base {
			s.ready[st.number] = st
		} else {
			s.held -= st.bytes
		}
	})
}

// ask is a rank's question for one step.
type ask struct {
	rank       rank
	generation uint64
	step       uint64
	acked      uint64
	join       uint64
	identity   []byte // of the spec that the rank was made for; empty: any
}

// answer waits for a step, or for word that there is none. It checks the rank
// and takes its acknowledgement.
func (s *steps) answer(ctx context.Context, q ask) (st *step, end *pb.EndOfData, err error) {
	var refused error
	begin := time.Now()
	ctx, leave, err := s.requests.enter(ctx, q.rank)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	w := s.arrive(q, begin)
	err = s.until(ctx, func() bool {
		st, end, refused = nil, nil, s.failed
		if refused != nil || s.job == nil {
			return refused != nil
		}
		if refused = s.known(q); refused != nil || s.generation < q.generation {
			return refused != nil
		}
		if refused = s.check(q); refused != nil {
			return true
		}
		s.hear(q)
		s.ack(q)
		if s.ended != nil && q.step >= s.ended.Step {
			end = s.ended
			return true
		}
		st = s.ready[q.step]
		return st != nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.WaitSeconds += time.Since(begin).Seconds()
	s.leave(q, w, err == nil)
	if errors.Is(context.Cause(ctx), errReplaced) {
		return nil, nil, fault.As(fault.User, fmt.Errorf("%s, step %d: %w", q.rank, q.step, errReplaced))
	}
	if err != nil {
		return nil, nil, fault.As(fault.ClassOf(err), fmt.Errorf("%s waited %.0f s for step %d: %s: %w",
			q.rank, time.Since(w.since).Seconds(), q.step, s.blockedOn(q), err))
	}
	return st, end, refused
}

// check refuses what can never be answered.
func (s *steps) check(q ask) error {
	if _, ok := s.acked[q.rank]; !ok {
		return fault.Userf("%s does not fetch from this constructor, which serves dp ranks %v; ask the planner where it does (connect does)", q.rank, s.job.Buckets)
	}
	switch id := s.job.Identity; {
	case len(q.identity) > 0 && !bytes.Equal(q.identity, id):
		return fault.Userf("%s asks for spec %x, this service runs %x", q.rank, q.identity[:min(6, len(q.identity))], id[:min(6, len(id))])
	case q.join != 0 && q.join < s.joins[q.rank]:
		return fault.Userf("another client joined as %s after this one: a rank has one client at a time", q.rank)
	case q.generation < s.generation && !s.adopt(q):
		return fault.Userf("the job was moved to step %d since %s joined, by %s", s.moved.GetTo(), q.rank, movedBy(s.moved))
	case q.step < s.base:
		return fault.Userf("%s asks for step %d, but all ranks said they were done with the steps before %d; resume from a token to go back",
			q.rank, q.step, s.base)
	case q.step > s.furthest():
		return fault.Userf("%s asks for step %d, and the furthest that it may ask for is %d (limit furthest_step): the slowest rank here is at step %d, "+
			"and %d steps are planned ahead (resources.prefetch); ask for the next one", q.rank, q.step, s.furthest(), s.base, s.job.Ahead)
	}
	return nil
}

// ack takes a rank's word that it is done with all steps before q.acked, and
// releases what no rank needs.
func (s *steps) ack(q ask) {
	if q.acked <= s.acked[q.rank] || q.acked > q.step {
		return
	}
	s.acked[q.rank], s.advanced[q.rank] = q.acked, s.entered
	low := q.acked
	for _, a := range s.acked {
		low = min(low, a)
	}
	for k := s.base; k < low; k++ {
		if st := s.ready[k]; st != nil {
			s.held -= st.bytes
			delete(s.ready, k)
		}
	}
	if low > s.base {
		s.base = low
		close(s.changed)
		s.changed = make(chan struct{})
	}
	select {
	case s.acksChanged <- struct{}{}:
	default:
	}
}

func (s *steps) fetched(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.FetchSeconds += d.Seconds()
}

func (s *steps) delivered(bytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.DeliveredBytes += uint64(bytes)
	s.counts.DeliveredBatches++
}

func (s *steps) usage() *pb.ConstructorUsage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &pb.ConstructorUsage{
		HeldBytes: uint64(max(s.held, 0)), BudgetBytes: uint64(s.budget),
		DeliveredBytes: s.counts.DeliveredBytes, DeliveredBatches: s.counts.DeliveredBatches,
		FetchSeconds: s.counts.FetchSeconds, WaitSeconds: s.counts.WaitSeconds,
		Generation: s.generation, Absent: uint32(len(s.acked) - len(s.asked)), AbsentRanks: s.absent(), Slowest: s.buckets(),
	}
}

// buckets says how far each bucket is. The lock is held.
func (s *steps) buckets() (all []*pb.Acked) {
	for _, dp := range s.job.GetBuckets() {
		all = append(all, s.ackedOf(dp))
	}
	return all
}

// maxAbsent are the ranks that are named: enough to see a pattern, such as a host.
const maxAbsent = 8

// absent are the first ranks that have not asked for a batch. The lock is held.
func (s *steps) absent() (ranks []*pb.Coordinates) {
	if len(s.asked) == len(s.acked) {
		return nil
	}
	for _, dp := range s.job.GetBuckets() {
		for _, r := range s.fetchers(dp) {
			if _, asked := s.asked[r]; !asked {
				ranks = append(ranks, r.wire())
			}
			if len(ranks) == maxAbsent {
				return ranks
			}
		}
	}
	return ranks
}
