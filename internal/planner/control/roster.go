package control

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// A rank that joins without a token after the first steps is one of three: it is started
// again together with all others, it forgot its checkpoint, or somebody looks. Only the
// first may move the job, so that it waits until all have joined so. The others are
// refused, and what they joined is as it was.

// startSettles is how long acknowledgements of ranks that just died may be on their way.
const startSettles Millis = 2000

// roster are the ranks that joined, of those that fetch.
type roster struct {
	joins   uint64           // so far; a join that is asked about again has another number
	last    map[Rank]arrival // of each rank of this mesh
	entered map[Rank]arrival // the same, of those joins that did not say where the rank stood
	waits   map[Rank]*join   // for all others to begin again
	stands  map[Rank]*join   // that said where the rank stands, and wait: one that is granted to another process of it may tell on them
	resume  arrival          // the last one with a token
	grants  int              // joins that were granted so far

	holdout Rank   // that was missing when some rank joined last
	heard   uint64 // least lastHeard of those that wait, of one or more of those that did
	goOn    bool   // the generation is one of an earlier life: ranks that have not joined this planner may go on in it
}

// arrival is a join that was granted.
type arrival struct {
	rank       Rank
	join       uint64
	generation uint64
	step       int64
	grant      int // its number among those granted
}

func newRoster() roster {
	return roster{last: map[Rank]arrival{}, entered: map[Rank]arrival{}, waits: map[Rank]*join{}, stands: map[Rank]*join{}}
}

// forget forgets the ranks of an earlier mesh.
func (r *roster) forget() {
	clear(r.last)
	clear(r.entered)
}

// leave takes a join off that ended or was given up; true if others may wait for it.
func (r *roster) leave(j *join) bool {
	if r.stands[j.req.Rank] == j {
		delete(r.stands, j.req.Rank)
	}
	if r.waits[j.req.Rank] != j {
		return false
	}
	delete(r.waits, j.req.Rank)
	return true
}

// missing finds the ranks that would be ended if the job began again for the one that
// joins, until found says that it has seen enough: all but those that wait for the same,
// and those that joined at the first step after that one was last heard of.
func (r *roster) missing(j *join, generation uint64, found func(Rank) (enough bool)) {
	for rank, a := range r.last {
		if r.isMissing(j, generation, a) && found(rank) {
			return
		}
	}
}

func (r *roster) isMissing(j *join, generation uint64, a arrival) bool {
	since := j.lastHeard(generation)
	began := since > 0 && a.join > since && a.generation == generation && a.step == 0
	return a.rank != j.req.Rank && r.waits[a.rank] == nil && !began
}

// anyMissing says whether there is such a rank. One that was found for a join is looked at first
// for all others that wait: each of them asks again whenever one more rank joins.
func (r *roster) anyMissing(j *join, generation uint64) (any bool) {
	if a, joined := r.last[r.holdout]; joined && r.isMissing(j, generation, a) {
		return true
	}
	r.missing(j, generation, func(rank Rank) bool { any, r.holdout = true, rank; return true })
	return any
}

// someoneMissing says whether somebody is missing for whoever waits, as one more that waits changes
// nothing then: if each of them was asked again for each that comes, they would be a square of the ranks.
func (c *Core) someoneMissing() bool {
	r := &c.roster
	if r.goOn && len(r.last)+len(r.waits) < c.fetchers() {
		return true
	}
	a, joined := r.last[r.holdout]
	return joined && r.waits[r.holdout] == nil && (a.generation != c.job.generation || a.step > 0 || a.join <= r.heard)
}

// wasPast says whether ranks of an earlier life were done with a step, by how far the log says that
// they were planned for. They may not have joined this planner yet.
func (c *Core) wasPast(step int64) bool {
	return c.roster.goOn && c.log.next-c.cfg.Plan.Ahead > step
}

// firstMissing is the first of them, and of those that are away.
func (c *Core) firstMissing(j *join) Rank {
	all := c.away(j)
	c.roster.missing(j, c.job.generation, func(rank Rank) bool { all = append(all, rank); return false })
	return slices.MinFunc(all, compareRanks)
}

// anyAway says whether ranks of an earlier life have not joined this planner, which may go on in
// its generation.
func (c *Core) anyAway(j *join) bool {
	r := &c.roster
	return r.goOn && (len(r.last)+len(r.waits)+1 < c.fetchers() || len(c.away(j)) > 0)
}

// away are these ranks.
func (c *Core) away(j *join) (ranks []Rank) {
	if !c.roster.goOn {
		return nil
	}
	sizes := c.job.tree.Sizes()
	for n := range sizes.DP * sizes.CP * sizes.PP * sizes.TP {
		tp, pp, cp := n%sizes.TP, n/sizes.TP%sizes.PP, n/sizes.TP/sizes.PP%sizes.CP
		r := Rank{DP: uint32(n / sizes.TP / sizes.PP / sizes.CP), CP: uint32(cp), PP: uint32(pp), TP: uint32(tp)}
		if _, joined := c.roster.last[r]; !joined && c.roster.waits[r] == nil && r != j.req.Rank && c.fetches(r) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// lastHeard is the last join that was granted when the rank was done with one more
// step; 0 if it was with none in this generation.
func (j *join) lastHeard(generation uint64) uint64 {
	if j.admitted.Generation != generation {
		return 0
	}
	return j.admitted.Advanced
}

// beginning is a position at which ranks joined.
type beginning struct {
	state  plan.State
	digest [32]byte
}

// maxBeginnings of a generation are remembered: one for each time that ranks came back
// alone.
const maxBeginnings = 16

// isBeginning says whether others joined this generation at the very position of j.
func (c *Core) isBeginning(j *join) bool {
	b, ok := c.job.began[j.state.Step]
	return ok && !j.foreign && b.digest == j.token.Digest && b.state.Same(j.state)
}

// enterRank notes a join that is granted with its position, and tells all constructors, which
// know by it what ranks did after it.
func (c *Core) enterRank(j *join) {
	a := c.arrived(j)
	c.roster.entered[j.req.Rank] = a
	if other := c.roster.stands[j.req.Rank]; other != nil && other != j {
		other.ask.heard = true
		c.raise(onHeard)
	}
	if len(j.req.Token) > 0 {
		c.roster.resume = a
	}
	if c.job.began == nil {
		c.job.began = map[int64]beginning{}
	}
	c.job.began[j.state.Step] = beginning{j.state, j.token.Digest}
	if len(c.job.began) > maxBeginnings {
		delete(c.job.began, slices.Min(slices.Collect(maps.Keys(c.job.began))))
	}
}

// arrived notes a join that is granted, and tells all constructors.
func (c *Core) arrived(j *join) arrival {
	c.roster.grants++
	a := arrival{j.req.Rank, j.number, c.job.generation, j.state.Step, c.roster.grants}
	c.roster.last[j.req.Rank] = a
	c.raise(onRoster)
	c.enterJoin(j.number)
	return a
}

// wait is what a rank knew when it began to wait for others.
type wait struct {
	begun      bool
	since      Millis
	grants     int   // joins granted before
	acked      int64 // by all ranks
	generation uint64
}

// mayWait says whether a join could be one that has to wait for others.
func (c *Core) mayWait(j *join) bool {
	return (c.job.positioned || c.roster.goOn) && len(j.req.Token) == 0 && j.req.At == nil && !j.req.Beginning && c.fetches(j.req.Rank)
}

// granted says whether a join whose token was read may go on now. If not it is to be asked again.
func (c *Core) granted(j *join) (bool, error) {
	if j.wait.begun && j.wait.generation == c.job.generation {
		if all, err := c.othersBegin(j); !all || err != nil {
			return false, err
		}
	}
	known, err := len(c.journal.made), error(nil)
	if j.state, err = c.whole(j.token); err != nil {
		return false, err
	}
	j.foreign = j.foreign || len(c.journal.made) > known
	tree := c.plan.MeshAt(j.state)
	if err := c.checkMesh(j.req.Rank, j.req.Sizes, tree, len(j.req.Token) > 0); err != nil || !c.mayWait(j) || !c.moves(j, tree) && !c.wasPast(j.state.Step) {
		return err == nil, err
	}
	return c.othersBegin(j)
}

// othersBegin says whether a rank without a token may move the job to the first step,
// since this ends no rank that goes on. It refuses when some do.
func (c *Core) othersBegin(j *join) (bool, error) {
	if !c.roster.anyMissing(j, c.job.generation) && !c.anyAway(j) {
		return true, nil
	}
	w, r := &j.wait, &c.roster
	if !w.begun || w.generation != c.job.generation {
		*w = wait{begun: true, since: c.now, grants: r.grants, generation: c.job.generation}
		c.note(Warn, "a rank joined without a resume token: it waits for all others to do so", "rank", j.req.Rank.String(), "acked", c.plan.Acked())
	}
	if len(r.waits) == 0 {
		r.heard = math.MaxUint64
	}
	if since := j.lastHeard(c.job.generation); since > 0 {
		r.heard = min(r.heard, since)
	}
	if r.waits[j.req.Rank] == nil {
		r.waits[j.req.Rank] = j
		if !c.someoneMissing() {
			c.raise(onRoster)
		}
	}
	waited := c.now - w.since
	if waited < startSettles {
		w.acked = c.plan.Acked()
	}
	switch resumed := r.resume; {
	case resumed.grant > w.grants:
		return false, c.noStart(j, fmt.Sprintf("%s joined with the token of step %d", resumed.rank, resumed.step))
	case c.plan.Acked() > w.acked:
		return false, c.noStart(j, "the ranks that were here go on")
	case waited >= c.cfg.Window:
		return false, c.noStart(j, fmt.Sprintf("%s has not joined so within %v", c.firstMissing(j), c.cfg.Window))
	}
	c.wait(onRoster | onTick | onMove | onPlanned)
	return false, nil
}

// noStart refuses a rank that joined without a token.
func (c *Core) noStart(j *join, why string) error {
	return fault.Userf("%s joined without a resume token, the job is at step %d, and %s: nothing was changed. "+
		`To go on with the others, load the state of their checkpoint; to begin again at the first step with all ranks, join with start="beginning"; `+
		"to look at batches, use `millrace preview` or millrace.peek()", j.req.Rank, c.plan.Acked(), why)
}

// awaited says in words whom ranks without a token wait for; "" if none does.
func (c *Core) awaited() string {
	if len(c.roster.waits) == 0 {
		return ""
	}
	names := slices.SortedFunc(maps.Keys(c.roster.waits), compareRanks)
	left := c.cfg.Window
	for _, j := range c.roster.waits {
		left = min(left, c.cfg.Window-(c.now-j.wait.since))
	}
	who := names[0].String()
	if more := len(names) - 1; more > 0 {
		who += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("all ranks to join without a resume token, as %s did while the job is at step %d; else they are refused in %.0f s",
		who, c.plan.Acked(), max(left, 0).Seconds())
}
