package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// absentees are the ranks that have not asked for a batch since the job was moved
// last, or since they joined again: no step is done without them.
type absentees struct {
	count, all uint32            // of the ranks that fetch
	ranks      []*pb.Coordinates // the first of them
}

// maxAbsent ranks are named.
const maxAbsent = 8

// String names them: "3 of 8 ranks have not asked for a batch yet: rank dp=0 ..., ...".
func (a absentees) String() string {
	var names []string
	for _, r := range a.ranks {
		names = append(names, r.Name())
	}
	text := fmt.Sprintf("%d of %d ranks have not asked for a batch yet: %s", a.count, a.all, strings.Join(names, ", "))
	if more := int(a.count) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// absent is what the constructors last said of it.
func (p *Planner) absent() (a absentees) {
	m := p.tree.Sizes()
	a.all = uint32(m.DP * m.CP * m.PP * m.TP)
	if p.opts.Job.Output.BroadcastAt == "tp" {
		a.all /= uint32(m.TP)
	}
	for _, c := range p.constructors {
		if c != nil && c.usage.GetGeneration() == p.generation {
			a.count += c.usage.GetAbsent()
			a.ranks = append(a.ranks, c.usage.GetAbsentRanks()...)
		}
	}
	slices.SortFunc(a.ranks, func(x, y *pb.Coordinates) int {
		return cmp.Or(cmp.Compare(x.Dp, y.Dp), cmp.Compare(x.Cp, y.Cp), cmp.Compare(x.Pp, y.Pp), cmp.Compare(x.Tp, y.Tp))
	})
	a.ranks = a.ranks[:min(len(a.ranks), maxAbsent)]
	return a
}

// absence is the time during which some ranks were there and others were not.
type absence struct {
	since time.Time // zero while all are there, or none has joined
	told  bool
}

// absentTime is how long ranks may take to come before the log names them: those that
// are started together join within seconds.
const absentTime = 10 * time.Second

// noteAbsent names the ranks that the others wait for, once.
func (p *Planner) noteAbsent(now time.Time) {
	who := p.absent()
	switch {
	case who.count == 0 || !p.positioned || p.failed != nil:
		p.absence = absence{}
	case p.absence.since.IsZero():
		p.absence.since = now
	case !p.absence.told && now.Sub(p.absence.since) >= absentTime:
		p.absence.told = true
		p.opts.Log.Warn("the other ranks wait: "+who.String(), "job", p.id.name, "seconds", int(now.Sub(p.absence.since).Seconds()))
	}
}
