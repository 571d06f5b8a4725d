package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/planner/control"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// Trainers is how long trainers stood still for data in the last 10 s, by their own clocks. Those whose constructor says
// nothing, or is gone, cannot say so: they count as standing still all the time.
type Trainers struct {
	Ranks     uint32  `json:"ranks"` // that say so, or cannot; those of older clients do not
	Share     float64 `json:"wait_share"`
	Most      float64 `json:"most"` // of one rank
	MostRank  string  `json:"most_rank,omitempty"`
	Least     float64 `json:"least"`
	LeastRank string  `json:"least_rank,omitempty"`
	Lost      uint32  `json:"lost,omitempty"` // of the ranks, those that cannot say so
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

// lose takes in ranks that nobody speaks for.
func (t *Trainers) lose(ranks int, who string) {
	t.add(&pb.TrainerWaits{Ranks: uint32(ranks), Share: 1, Most: 1, MostRank: who, Least: 1, LeastRank: who})
	t.Lost += uint32(ranks)
}

// Holdup is how long the next step was held up by something.
type Holdup struct {
	Cause   string  `json:"cause"`          // member, source, constructor, log, planner, trainers
	Name    string  `json:"name,omitempty"` // which one, where there are several
	Seconds float64 `json:"seconds"`        // in all
	Share   float64 `json:"share"`          // of the last 10 s
	Text    string  `json:"text,omitempty"` // what exactly, when it did last
}

// Stall says who waits for whom: trainers for data or for one of them, or data for trainers.
type Stall struct {
	Cause string `json:"cause"`          // one of causes; "" while nothing is known
	Name  string `json:"name,omitempty"` // which one, where there are several
	Line  string `json:"line"`           // in words
}

// causes are those of a stall. trainers: all is well, as far as the service goes.
var causes = []string{"trainers", byRank, "source", "loader", "constructor", "log", "planner", "member", "delivery"}

// byRank is the cause where the others wait for a rank, or some: they have all data that they may have.
const byRank = "rank"

// What a stall is said of.
const (
	// calm is a share of waiting that a training does not notice.
	calm = 0.01
	// hardly is the most that a rank, or those of a constructor, wait that others wait for.
	hardly = 0.05
	// uneven is how much less the rank waits that others wait for, than the one that waits most.
	uneven = 0.5
	// fetching is how many times longer constructors wait for loaders than they work, if loaders are to blame.
	fetching = 2
	// halting is the share of the time in which a part is stopped, or says nothing, from which on it is to blame for what is
	// ready and does not reach ranks.
	halting = 0.1
)

// Judge says who waits for whom, from what is known of trainers and holdups. Data waits on trainers only if these say so
// and nothing speaks against it: what they say is of a while ago, and of waits that are over.
func Judge(s *Service) Stall {
	t := s.Trainers
	if s.State != "running" || t.Ranks == 0 && !s.Joined {
		return Stall{}
	}
	x, sure := s.gone()
	if !sure && t.Share >= calm {
		x, sure = culprit(s), true
	}
	if t.Share >= calm {
		most := ""
		if t.Ranks > 1 {
			most = fmt.Sprintf(" (%s %s)", t.MostRank, percent(t.Most))
		}
		what := "on data"
		if x.Cause == byRank {
			what = "for " + cmp.Or(x.Name, "ranks that did not come")
		}
		x.Line = fmt.Sprintf("trainers wait %s, %s of the last 10 s%s: %s", what, percent(t.Share), most, x.Line)
		return x
	}
	if !sure {
		x, sure = s.doubt()
	}
	rest := s.facts.rest
	ready := fmt.Sprintf("%d steps are ready or under way", s.Planned-s.Acked)
	switch {
	case sure && t.Ranks == 0:
		x.Line = "trainers have not said how long they stood still: " + x.Line
	case sure:
		x.Line = fmt.Sprintf("trainers stood still %s of the last 10 s, as far as they say; %s: %s", percent(t.Share), ready, x.Line)
	case t.Ranks > 0:
		x = Stall{"trainers", rest.Name, fmt.Sprintf("none: data waits on trainers, which stood still %s of the last 10 s; %s", percent(t.Share), ready)}
		if t.Most >= calm {
			x.Line += fmt.Sprintf("; most of all %s, %s", t.MostRank, percent(t.Most))
		}
		if rest.Line != "" {
			x.Line += "; " + rest.Line
		}
	case rest.Line != "":
		x = rest
		x.Line = "trainers have not said how long they stood still: " + rest.Line
	}
	return x
}

func percent(share float64) string {
	if share < 0.1 {
		return fmt.Sprintf("%.1f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// gone names whom ranks cannot get batches from right now: a constructor that says nothing, or a member that is not there.
func (s *Service) gone() (x Stall, is bool) {
	var all []string
	for _, m := range s.facts.mute {
		all = append(all, fmt.Sprintf("constructor %s at %s says nothing, for %.0f s", m.name, m.address, m.quiet.Seconds()))
		x = Stall{"constructor", s.facts.mute[0].name, ""}
	}
	if h := s.facts.now; h.Cause == control.CauseMember {
		if len(all) == 0 {
			x.Cause = "member"
		}
		text := h.Text
		if h.Loaders && len(s.Loaders) > 0 && s.facts.loaders.Cause == "member" {
			text = s.facts.loaders.Line // and for how long
		}
		all = append(all, text)
	}
	x.Line = strings.Join(all, "; ")
	return x, len(all) > 0
}

// doubt is what speaks against trainers who say that they do not wait.
func (s *Service) doubt() (x Stall, is bool) {
	if s.facts.loaders.Line != "" {
		return s.facts.loaders, true
	}
	if len(s.Holdups) > 0 && halts(s.top()) { // ranks that join again may do so since then
		return culprit(s), true
	}
	if x, is = s.facts.way, s.facts.way.Line != ""; is || len(s.Holdups) == 0 {
		return x, is
	}
	switch top := s.top(); {
	case top.Cause == string(control.CauseMember), top.Cause == string(control.CauseConstructor), top.Cause == string(control.CauseLog), s.Trainers.Ranks == 0 && top.Cause != string(control.CauseTrainers):
		return culprit(s), true
	}
	return x, false
}

// halts says whether a holdup is that a part was stopped, or said nothing.
func halts(h Holdup) bool {
	return h.Name != "" && (h.Cause == string(control.CauseConstructor) || h.Cause == string(control.CausePlanner))
}

// top is what held steps up most of late; something did.
func (s *Service) top() Holdup {
	return slices.MaxFunc(s.Holdups, func(a, b Holdup) int { return cmp.Compare(a.Share, b.Share) })
}

// culprit is what trainers wait for; they do.
func culprit(s *Service) Stall {
	if len(s.Holdups) == 0 {
		return Stall{Line: "what holds steps up is not known yet"}
	}
	top := s.top()
	much := fmt.Sprintf("%s of the time: %s", percent(top.Share), top.Text)
	switch control.Cause(top.Cause) {
	case control.CauseSource:
		return Stall{"source", top.Name, fmt.Sprintf("source %q is not read fast enough, %s", top.Name, much)}
	case control.CauseConstructor:
		if halts(top) {
			return halted(top)
		}
		var fetch, assemble float64
		for _, c := range s.Constructors {
			fetch, assemble = fetch+c.FetchSec, assemble+c.AssembleSec
		}
		if fetch > fetching*assemble {
			return Stall{"loader", "", "loaders do not hand out samples fast enough, " + much}
		}
		return Stall{"constructor", "", "constructors do not put steps together fast enough, " + much}
	case control.CausePlanner:
		if halts(top) {
			return halted(top)
		}
		return Stall{"planner", "", fmt.Sprintf("the planner does not plan fast enough, %s of the time; %d of the next steps are planned", percent(top.Share), s.Planned-s.Acked)}
	case control.CauseLog:
		return Stall{"log", "", "the planner's log is not written fast enough, " + much}
	case control.CauseMember:
		return Stall{"member", "", much}
	}
	return s.undelivered(top)
}

// undelivered is what trainers wait for while the service has done all that it may.
func (s *Service) undelivered(top Holdup) Stall {
	halt := Holdup{}
	for _, h := range s.Holdups {
		if halts(h) && h.Share > halt.Share {
			halt = h
		}
	}
	if halt.Share >= halting {
		return halted(halt)
	}
	if _, names, missing := strings.Cut(top.Text, control.NotAsked); missing {
		return Stall{byRank, "", strings.TrimPrefix(names, ": ")}
	}
	if x, is := s.starves(); is {
		return x
	}
	if t := s.Trainers; t.Ranks > 1 && t.Least < hardly && t.Least < uneven*t.Most {
		return Stall{byRank, t.LeastRank, fmt.Sprintf("that rank itself waits %s, and as many steps are planned as may be", percent(t.Least))}
	}
	if x := s.facts.way; x.Line != "" {
		return x
	}
	return Stall{"delivery", "", "steps are ready, and take long to reach the ranks: the constructor's CPU, the network, or what clients do with them"}
}

// halted names a part that does not run all the time.
func halted(h Holdup) Stall {
	if h.Cause == string(control.CausePlanner) {
		return Stall{"planner", "", fmt.Sprintf("the planner was stopped or had no CPU, %s of the time", percent(h.Share))}
	}
	return Stall{"constructor", h.Name, fmt.Sprintf("constructor %s says nothing, %s of the time: it is stopped, has no CPU, or is cut off", h.Name, percent(h.Share))}
}

// starves names the constructor whose ranks wait, and hold the others back, which do not.
func (s *Service) starves() (x Stall, is bool) {
	worst, others := Constructor{}, Trainers{}
	for _, c := range s.Constructors {
		if c.Trainers.Ranks > 0 && c.Trainers.Share > worst.Trainers.Share {
			worst = c
		}
	}
	for _, c := range s.Constructors {
		if w := c.Trainers; c.ID != worst.ID && w.Ranks > 0 {
			others.add(&pb.TrainerWaits{Ranks: w.Ranks, Share: w.Share})
		}
	}
	slow := s.facts.now.Slow
	if others.Ranks == 0 || others.Share >= uneven*worst.Trainers.Share || slow.Slowest == "" || !slices.Contains(worst.Buckets, slow.Bucket) {
		return x, false
	}
	return Stall{"constructor", worst.ID, fmt.Sprintf("steps are ready, and take long to reach the ranks of constructor %s, which wait %s, and those of others %s: its CPU, or the way to them",
		worst.ID, percent(worst.Trainers.Share), percent(others.Share))}, true
}
