package deliver

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Look waits for a step that is planned to be assembled, and refuses all others.
func (s *Steps) Look(ctx context.Context, req *pb.PeekRequest) (st *Step, err error) {
	ctx, leave, err := s.looks.enter(ctx, RankOf(req.Rank))
	if err != nil {
		return nil, err
	}
	defer leave()
	var refused error
	err = s.until(ctx, &s.lookers, 0, func() bool {
		if s.failed != nil || s.job == nil {
			refused = s.failed
			return refused != nil
		}
		if refused = s.visible(req); refused != nil {
			return true
		}
		number := req.Step
		if req.Newest && len(s.ready) > 0 {
			number = slices.Max(slices.Collect(maps.Keys(s.ready)))
		}
		if st = s.ready[number]; st != nil && !st.covers([]uint32{req.Rank.GetDp()}) {
			st = nil
		}
		return st != nil
	})
	if err != nil {
		return nil, fault.As(fault.ClassOf(err), fmt.Errorf("waiting for the step to be planned and assembled (`millrace status` says what for): %w", err))
	}
	return st, refused
}

// LookWaits says what a look waits for. The newest step is one of the next, as none is there.
func (s *Steps) LookWaits(req *pb.PeekRequest) *pb.Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := req.Step
	if req.Newest {
		step = s.base
	}
	return s.blockedOn(RankOf(req.Rank), step, time.Now())
}

// visible refuses to show what is not there. The lock is held.
func (s *Steps) visible(req *pb.PeekRequest) error {
	r := RankOf(req.Rank)
	if _, ok := s.acked[r]; !ok {
		return fault.Userf("%s does not fetch from this constructor, which serves dp ranks %v; ask the planner where it does (peek does)", r, s.job.Buckets)
	}
	if id := s.job.Identity; len(req.Identity) > 0 && !bytes.Equal(req.Identity, id) {
		return fault.Userf("%s of spec %x is to be looked at, this service runs %x", r, req.Identity[:min(6, len(req.Identity))], id[:min(6, len(id))])
	}
	if s.ended != nil && s.base >= s.ended.Step && (req.Newest || req.Step < s.ended.Step) {
		return fault.Userf("all steps are done with: the job ended after %d; `millrace preview JOB --step N` shows one without the service", s.ended.Step)
	}
	if req.Newest || s.ready[req.Step] != nil || s.building[req.Step] != nil || s.plans[req.Step] != nil {
		return nil
	}
	known := slices.Concat(slices.Collect(maps.Keys(s.ready)), slices.Collect(maps.Keys(s.building)), slices.Collect(maps.Keys(s.plans)))
	if s.ended == nil && req.Step >= s.base && (len(known) == 0 || req.Step < s.base+uint64(s.job.Ahead)) {
		return nil // its plan is still to come, or the first one, which says what is held
	}
	held := "none is held"
	if len(known) > 0 {
		held = fmt.Sprintf("steps %d to %d are held", slices.Min(known), slices.Max(known))
	}
	return fault.Userf("step %d cannot be looked at: %s; ranks are done with those before, and those after are not planned; "+
		"`millrace preview JOB --step %d` shows any step without the service", req.Step, held, req.Step)
}
