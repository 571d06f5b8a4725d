package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Trainers is how long trainers stood still for data in the last 10 s, by their own clocks.
type Trainers struct {
	Ranks     uint32  `json:"ranks"` // that say so; those of older clients do not
	Share     float64 `json:"wait_share"`
	Most      float64 `json:"most"` // of one rank
	MostRank  string  `json:"most_rank,omitempty"`
	Least     float64 `json:"least"`
	LeastRank string  `json:"least_rank,omitempty"`
}

// add takes in what a constructor says of its ranks.
func (t *Trainers) add(w *pb.TrainerWaits) {
	if w.GetRanks() == 0 {
		return
	}
	if t.Ranks == 0 || w.Most > t.Most {
		t.Most, t.MostRank = w.Most, w.MostRank
	}
	if t.Ranks == 0 || w.Least < t.Least {
		t.Least, t.LeastRank = w.Least, w.LeastRank
	}
	t.Share = (t.Share*float64(t.Ranks) + w.Share*float64(w.Ranks)) / float64(t.Ranks+w.Ranks)
	t.Ranks += w.Ranks
}

// Holdup is how long the next step was held up by something.
type Holdup struct {
	Cause   string  `json:"cause"`          // member, source, constructor, planner, trainers
	Name    string  `json:"name,omitempty"` // which one, where there are several
	Seconds float64 `json:"seconds"`        // in all
	Share   float64 `json:"share"`          // of the last 10 s
	Text    string  `json:"text,omitempty"` // what exactly, when it did last
}

// Stall says who waits for whom: trainers for data, or data for trainers.
type Stall struct {
	Cause string `json:"cause"`          // trainers: all is well; rank, source, loader, constructor, planner, member, delivery; "" while nothing is known
	Name  string `json:"name,omitempty"` // which one, where there are several
	Line  string `json:"line"`           // in words
}

// What a stall is said of.
const (
	// calm is a share of waiting that a training does not notice.
	calm = 0.01
	// uneven is how much less the rank waits that others wait for, than the one that waits most.
	uneven = 0.5
	// fetching is how many times longer constructors wait for loaders than they work, if loaders are to blame.
	fetching = 2
)

// Judge says who waits for whom, from what is known of trainers and holdups.
func Judge(s *Service) Stall {
	t := s.Trainers
	if t.Ranks == 0 || s.State != "running" {
		return Stall{}
	}
	if t.Share < calm {
		line := fmt.Sprintf("none: data waits on trainers, which stood still %s of the last 10 s; %d steps are ready or under way", percent(t.Share), s.Planned-s.Acked)
		if t.Most >= calm {
			line += fmt.Sprintf("; most of all %s, %s", t.MostRank, percent(t.Most))
		}
		return Stall{Cause: "trainers", Line: line}
	}
	x := culprit(s)
	most := ""
	if t.Ranks > 1 {
		most = fmt.Sprintf(" (%s %s)", t.MostRank, percent(t.Most))
	}
	x.Line = fmt.Sprintf("trainers wait on data, %s of the last 10 s%s: %s", percent(t.Share), most, x.Line)
	return x
}

func percent(share float64) string {
	if share < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// culprit is what trainers wait for; they do.
func culprit(s *Service) Stall {
	if len(s.Holdups) == 0 {
		return Stall{Line: "what holds steps up is not known yet"}
	}
	top := slices.MaxFunc(s.Holdups, func(a, b Holdup) int { return cmp.Compare(a.Share, b.Share) })
	much := fmt.Sprintf("%s of the time: %s", percent(top.Share), top.Text)
	switch control.Cause(top.Cause) {
	case control.CauseSource:
		return Stall{"source", top.Name, fmt.Sprintf("source %q is not read fast enough, %s", top.Name, much)}
	case control.CauseConstructor:
		var fetch, assemble float64
		for _, c := range s.Constructors {
			fetch, assemble = fetch+c.FetchSec, assemble+c.AssembleSec
		}
		if fetch > fetching*assemble {
			return Stall{"loader", "", "loaders do not hand out samples fast enough, " + much}
		}
		return Stall{"constructor", "", "constructors do not put steps together fast enough, " + much}
	case control.CausePlanner:
		return Stall{"planner", "", fmt.Sprintf("the planner does not plan fast enough, %s of the time; %d of the next steps are planned", percent(top.Share), s.Planned-s.Acked)}
	case control.CauseMember:
		return Stall{"member", "", much}
	}
	if _, names, missing := strings.Cut(top.Text, control.NotAsked); missing {
		return Stall{"rank", "", "the others wait for ranks that did not come" + names}
	}
	if t := s.Trainers; t.Ranks > 1 && t.Least < uneven*t.Most {
		return Stall{"rank", t.LeastRank, fmt.Sprintf("the others wait for %s, which itself waits %s; as many steps are planned as may be", t.LeastRank, percent(t.Least))}
	}
	return Stall{"delivery", "", "steps are ready, and take long to reach the ranks: the network, or what clients do with them"}
}
