package status

import (
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// What trainers say comes by their constructors, each second. A constructor that is stopped or lost says nothing, and what it
// said last is no news of its ranks: these wait, and a status that believed the last word would say the opposite.

// facts is what holds right now, beside what is of the last while.
type facts struct {
	now     control.Holdup
	mute    []mute // constructors that serve ranks
	loaders Stall  // those that say nothing, or that none is connected
	way     Stall  // what is ready, and does not reach a rank
	rest    Stall  // trainers that take far longer than usual
}

// mute is a member that says nothing.
type mute struct {
	name, address string
	quiet         time.Duration
}

// muteAfter is how long a constructor may say nothing before its ranks count as waiting: twelve beats.
const muteAfter = 2500 * time.Millisecond

// hear takes in what the constructor that was described last says of its ranks.
func (s *Service) hear(x control.Snapshot, c control.Member, w *pb.TrainerWaits, quiet func(control.Session) time.Duration) {
	said := &s.Constructors[len(s.Constructors)-1].Trainers
	said.add(w)
	if d := quiet(c.Session); d > muteAfter && len(c.Buckets) > 0 && begun(x) {
		s.facts.mute = append(s.facts.mute, mute{c.Name, c.Address, d})
		*said = Trainers{}
		said.lose(len(c.Buckets)*perDP(x), "the ranks of constructor "+c.Name)
		s.Trainers.lose(len(c.Buckets)*perDP(x), "the ranks of constructor "+c.Name)
		return
	}
	s.Trainers.add(w)
}

// lose takes in the ranks that no constructor serves, and the loaders that say nothing.
func (s *Service) lose(x control.Snapshot, quiet func(control.Session) time.Duration) {
	s.facts.now = x.Holdup
	if !begun(x) {
		return
	}
	if n := len(x.Unserved) * perDP(x); n > 0 {
		s.Trainers.lose(n, "the ranks that no constructor serves")
	}
	s.facts.loaders = loaders(x.Loaders, quiet)
}

// loaders names those that say nothing, if some do: what they were to do, others do, as far as there are others. Without
// them nothing is read.
func loaders(all []control.Member, quiet func(control.Session) time.Duration) (x Stall) {
	if len(all) == 0 {
		return Stall{Cause: "member", Line: "no loader is connected"}
	}
	n := 0
	for _, l := range all {
		d := quiet(l.Session)
		if d <= silence {
			continue
		}
		if n++; n == 1 {
			x = Stall{Cause: "loader", Line: fmt.Sprintf("loader %s at %s says nothing, for %.0f s", l.Name, l.Address, d.Seconds())}
		}
	}
	if n > 1 {
		x.Line += fmt.Sprintf(", and %d more", n-1)
	}
	if n == len(all) {
		x.Cause = "member"
	}
	return x
}

// begun says whether ranks are at work: the first has joined, and the job has not ended.
func begun(x control.Snapshot) bool { return x.State == "running" && x.Joined }

// perDP is how many ranks of a DP rank fetch batches.
func perDP(x control.Snapshot) int { return x.Ranks / max(x.DPRanks, 1) }
