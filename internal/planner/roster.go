package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// A rank that joins without a token after the first steps is one of three: it is started
// again together with all others, it forgot its checkpoint, or somebody looks. Only the
// first may move the job, so that it waits until all have joined so. The others are
// refused, and what they joined is as it was.

// DefaultStartWindow is how long a rank without a token waits for the others: those that
// are started together join within seconds of each other, or have long files to read first.
const DefaultStartWindow = 30 * time.Second

// startSettles is how long acknowledgements of ranks that just died may be on their way.
const startSettles = 2 * time.Second

// coordinates are a rank's place, as a key.
type coordinates struct{ dp, cp, pp, tp uint32 }

func placeOf(c *pb.Coordinates) coordinates {
	return coordinates{c.GetDp(), c.GetCp(), c.GetPp(), c.GetTp()}
}

func (c coordinates) String() string {
	return (&pb.Coordinates{Dp: c.dp, Cp: c.cp, Pp: c.pp, Tp: c.tp}).Name()
}

// roster are the ranks that joined, of those that fetch.
type roster struct {
	last   map[coordinates]arrival  // of each rank of this mesh
	waits  map[coordinates]*joining // for all others to begin again
	resume arrival                  // the last one with a token
	grants int                      // joins that were granted so far
}

// arrival is a join that was granted.
type arrival struct {
	rank       coordinates
	join       uint64
	generation uint64
	step       int64
	grant      int // its number among those granted
}

func newRoster() roster {
	return roster{last: map[coordinates]arrival{}, waits: map[coordinates]*joining{}}
}

// forget forgets the ranks of a mesh that is none any more.
func (r *roster) forget() { clear(r.last) }

// leave takes a join off that ended or was given up.
func (r *roster) leave(j *joining) {
	if r.waits[j.rank] == j {
		delete(r.waits, j.rank)
	}
}

// missing finds a rank that would be ended if the job began again for the one that
// joins: all but those that wait for the same, and those that joined at the first step
// after that one was last heard of.
func (r *roster) missing(j *joining, generation uint64) (rank coordinates, found bool) {
	since := j.lastHeard(generation)
	for rank, a := range r.last {
		began := since > 0 && a.join > since && a.generation == generation && a.step == 0
		if rank != j.rank && r.waits[rank] == nil && !began {
			return rank, true
		}
	}
	return rank, false
}

// lastHeard is the last join that was granted when the rank was done with one more
// step; 0 if it was with none in this generation.
func (j *joining) lastHeard(generation uint64) uint64 {
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
func (p *Planner) isBeginning(j *joining) bool {
	b, ok := p.began[j.state.Step]
	return ok && !j.foreign && b.digest == j.token.Digest && b.state.Same(j.state)
}

// enterRank notes a join that is granted, and tells all constructors, which know by it what
// ranks did after it.
func (p *Planner) enterRank(j *joining) {
	p.roster.grants++
	a := arrival{j.rank, j.number, p.generation, j.state.Step, p.roster.grants}
	p.roster.last[j.rank] = a
	if len(j.req.Token) > 0 {
		p.roster.resume = a
	}
	if p.began == nil {
		p.began = map[int64]beginning{}
	}
	p.began[j.state.Step] = beginning{j.state, j.token.Digest}
	if len(p.began) > maxBeginnings {
		delete(p.began, slices.Min(slices.Collect(maps.Keys(p.began))))
	}
	p.tell(func(*constructorSession) *pb.ConstructorOrder { return enteredOrder(j.number) })
}

func enteredOrder(join uint64) *pb.ConstructorOrder {
	return &pb.ConstructorOrder{Order: &pb.ConstructorOrder_Entered{Entered: join}}
}

// wait is what a rank knew when it began to wait for others.
type wait struct {
	since      time.Time // zero: it does not wait
	grants     int       // joins granted before
	acked      int64     // by all ranks
	generation uint64
}

// mayWait says whether a join could be one that has to wait for others.
func (p *Planner) mayWait(j *joining) bool {
	return p.positioned && len(j.req.Token) == 0 && j.req.Start != pb.Start_START_BEGINNING && p.fetches(j.req.Rank)
}

// granted says whether a join whose token was read may go on now. If not it is to be asked again.
func (p *Planner) granted(j *joining) (bool, error) {
	if !j.wait.since.IsZero() && j.wait.generation == p.generation {
		if all, err := p.othersBegin(j); !all || err != nil {
			return false, err
		}
	}
	known, err := len(p.journal), error(nil)
	if j.state, err = p.whole(j.token); err != nil {
		return false, err
	}
	j.foreign = j.foreign || len(p.journal) > known
	tree := p.core.MeshAt(j.state)
	if err := p.checkMesh(j.req.Rank, j.req.Mesh, tree); err != nil || !p.mayWait(j) || !p.moves(j, tree) {
		return err == nil, err
	}
	return p.othersBegin(j)
}

// othersBegin says whether a rank without a token may move the job to the first step,
// since this ends no rank that goes on. It refuses when some do.
func (p *Planner) othersBegin(j *joining) (bool, error) {
	rank, missing := p.roster.missing(j, p.generation)
	if !missing {
		return true, nil
	}
	w, now := &j.wait, time.Now()
	if w.since.IsZero() || w.generation != p.generation {
		*w = wait{since: now, grants: p.roster.grants, generation: p.generation}
		p.opts.Log.Warn("a rank joined without a resume token: it waits for all others to do so", "job", p.id.name, "rank", j.rank.String(), "acked", p.core.Acked())
	}
	if p.roster.waits[j.rank] == nil {
		p.roster.waits[j.rank] = j
	}
	if now.Sub(w.since) < startSettles {
		w.acked = p.core.Acked()
	}
	switch resumed := p.roster.resume; {
	case resumed.grant > w.grants:
		return false, p.noStart(j, fmt.Sprintf("%s joined with the token of step %d", resumed.rank, resumed.step))
	case p.core.Acked() > w.acked:
		return false, p.noStart(j, "the ranks that were here go on")
	case now.Sub(w.since) >= p.startWindow():
		return false, p.noStart(j, fmt.Sprintf("%s has not joined so within %v", rank, p.startWindow()))
	}
	return false, nil
}

func (p *Planner) startWindow() time.Duration {
	return cmp.Or(p.opts.StartWindow, DefaultStartWindow)
}

// noStart refuses a rank that joined without a token.
func (p *Planner) noStart(j *joining, why string) error {
	return fault.Userf("%s joined without a resume token, the job is at step %d, and %s: nothing was changed. "+
		`To go on with the others, load the state of their checkpoint; to begin again at the first step with all ranks, join with start="beginning"; `+
		"to look at batches, use `millrace preview` or millrace.peek()", j.rank, p.core.Acked(), why)
}

// awaited says in words whom ranks without a token wait for; "" if none does.
func (p *Planner) awaited(now time.Time) string {
	var names []string
	left := p.startWindow()
	for rank, j := range p.roster.waits {
		names = append(names, rank.String())
		left = min(left, p.startWindow()-now.Sub(j.wait.since))
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return fmt.Sprintf("all ranks to join without a resume token, as %s and %d others did while the job is at step %d; else they are refused in %.0f s",
		names[0], len(names)-1, p.core.Acked(), max(left, 0).Seconds())
}
