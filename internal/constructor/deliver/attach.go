package deliver

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// Sessions with the planner come and go. Steps, ranks and their positions stay: ranks are
// served while there is no planner, as far as it planned. The next session says whether the
// generation goes on. If not, it is of another planner, which knows nothing of the ranks.

// upcoming is the job as it is from the next Restart on.
type upcoming struct {
	job    *pb.ConstructorJob
	budget int64
}

// Attach begins a session. What is served stays as it is until its Restart.
func (s *Steps) Attach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh, s.greeted = s.job != nil, 0
}

// Serves says whether a job is the one that is served, by the identity of its spec; it also is
// if there is none.
func (s *Steps) Serves(identity []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.job == nil || bytes.Equal(s.job.Identity, identity)
}

// Take begins a job, or goes on with it: with other buckets from the next Restart on, or on
// another mesh, which voids everything at once.
func (s *Steps) Take(job *pb.ConstructorJob, budget int64) {
	s.update(func() {
		s.alone, s.planner = awaited{}, awaited{}
		if s.job != nil && proto.Equal(s.job.Mesh, job.Mesh) {
			s.upcoming = &upcoming{job, budget}
			return
		}
		s.between = s.job != nil
		s.job, s.budget, s.upcoming = job, budget, nil
		if s.joins == nil { // another mesh makes no join unknown
			s.joins, s.left = map[Rank]uint64{}, map[Rank]uint64{}
		}
		s.clear(&pb.Restart{})
	})
}

// Restart begins a generation: plans, steps and positions of the one before are void. One that
// continues voids nothing of a generation that is here.
func (s *Steps) Restart(r *pb.Restart) {
	s.update(func() { s.restart(r) })
}

// restart is Restart. The lock is held.
func (s *Steps) restart(r *pb.Restart) {
	if s.fresh {
		s.meet(r)
	}
	if s.upcoming != nil {
		s.job, s.budget, s.upcoming = s.upcoming.job, s.upcoming.budget, nil
	}
	if r.Continues && !s.between && r.Generation == s.generation {
		s.resume(r.NextStep)
		return
	}
	s.between = false
	s.clear(r)
}

// meet takes the first Restart of a session. A planner of another life numbers joins from 1 on:
// all ranks have to join again. What failed is tried again. The lock is held.
func (s *Steps) meet(r *pb.Restart) {
	s.fresh, s.failed = false, nil
	if r.Continues {
		s.entered = max(s.entered, s.greeted)
		return
	}
	s.joins, s.entered = map[Rank]uint64{}, s.greeted
	s.asked, s.acked, s.stood, s.entries = nil, nil, map[Rank]uint64{}, map[Rank]*pb.RankEntry{}
}

// settle begins again if a session goes on without a Restart: its planner has begun again, and
// no rank has moved it yet. The lock is held.
func (s *Steps) settle() {
	if s.fresh {
		s.restart(&pb.Restart{})
		s.wake()
	}
}

// resume goes on in the same generation, for the buckets that the job has now. The planner
// sends the plans that are not here of the steps from next on, all of them if there are new
// buckets, and hears again what it may have missed. The lock is held.
func (s *Steps) resume(next uint64) {
	s.from, s.next = next, min(s.next, next)
	s.dropBuckets()
	added, kept := false, slices.Sorted(maps.Keys(s.buckets))
	for _, dp := range s.job.Buckets {
		if s.buckets[dp] == nil {
			s.addBucket(dp, next, true)
			added = true
		}
	}
	if added { // what is built, or being built, lacks their rows
		for step, c := range s.building {
			s.held -= c.bytes
			delete(s.building, step)
		}
		maps.DeleteFunc(s.rows, func(step uint64, _ []*pb.Assembled) bool { return s.ready[step] == nil }) // another planner may want those of the steps that stay
		clear(s.plans)
	}
	s.recount(next)
	s.untold, s.risen = nil, nil
	for step := range s.rows {
		if step >= next && !added { // else it is built again
			s.untold = append(s.untold, step)
		}
	}
	slices.Sort(s.untold)
	for _, dp := range kept {
		s.buckets[dp].risen = false
		s.report(dp, s.buckets[dp])
	}
}

// dropBuckets forgets the ranks that another constructor serves from now on. The lock is held.
func (s *Steps) dropBuckets() {
	for dp, b := range s.buckets {
		if slices.Contains(s.job.Buckets, dp) {
			continue
		}
		for _, r := range b.ranks {
			delete(s.acked, r)
			delete(s.asked, r)
			delete(s.advanced, r)
			delete(s.adopted, r)
			delete(s.stood, r)
			delete(s.refused, r)
			delete(s.joins, r)
			delete(s.left, r)
			delete(s.entries, r)
			delete(s.ways, r)
		}
		if b.guess {
			s.guesses--
		}
		delete(s.buckets, dp)
	}
	s.looked = time.Time{}
}

// recount counts all ranks by position, and lets go of what none of them needs. The lock is
// held.
func (s *Steps) recount(next uint64) {
	low := ^uint64(0)
	for _, at := range s.acked {
		low = min(low, at)
	}
	if len(s.acked) == 0 {
		low = max(next, s.base)
	}
	s.positions = tally{low: low, ranks: map[uint64]int{}}
	for _, at := range s.acked {
		s.positions.ranks[at]++
	}
	for step := range s.ready {
		if step < low {
			s.drop(step)
		}
	}
	maps.DeleteFunc(s.rows, func(step uint64, _ []*pb.Assembled) bool { return step+s.rowsKept() < low })
	s.base = low
}

// Held is what there is of a job for a planner that knows less; nil if there is no job, or no
// generation has begun.
func (s *Steps) Held() *pb.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.job == nil || s.between {
		return nil
	}
	h := &pb.Held{Identity: s.job.Identity, Generation: s.generation, Next: s.base, Entered: s.entered, Acked: s.slowestOfAll()}
	for s.ready[h.Next] != nil || s.building[h.Next] != nil || s.plans[h.Next] != nil {
		h.Next++
	}
	for _, dp := range s.job.Buckets {
		for _, r := range s.buckets[dp].ranks {
			if join, joined := s.joins[r]; joined {
				e, asked := s.asked[r]
				if !asked { // in this generation
					e, asked = s.adopted[r]
				}
				h.Ranks = append(h.Ranks, &pb.HeldRank{Rank: r.wire(), Join: join, Generation: e.generation, Step: e.step, Asked: asked, Entered: s.entries[r]})
			}
		}
	}
	return h
}

// samePlan says whether two plans have the same samples in the same places. Where samples come
// from may differ: loaders come and go.
func samePlan(a, b *pb.StepPlan) bool {
	if a.SequenceLength != b.SequenceLength || a.GlobalRows != b.GlobalRows || len(a.SampleBlock) != len(b.SampleBlock) {
		return false
	}
	for i := range a.SampleBlock {
		x, y := a.Blocks[a.SampleBlock[i]], b.Blocks[b.SampleBlock[i]]
		if x.Source != y.Source || x.Seq != y.Seq {
			return false
		}
	}
	for _, columns := range [][2][]uint32{
		{a.Rows, b.Rows}, {a.RowSamples, b.RowSamples}, {a.SampleIndex, b.SampleIndex}, {a.SampleLength, b.SampleLength},
		{a.RowRank, b.RowRank}, {a.RowMicrobatch, b.RowMicrobatch}, {a.RowWidth, b.RowWidth},
	} {
		if !slices.Equal(columns[0], columns[1]) {
			return false
		}
	}
	return true
}
