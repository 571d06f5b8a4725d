package deliver

import (
	"fmt"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	pb "github.com/millrace-data/millrace/internal/proto"
)

// waiting is a rank's wait for a step, over all requests that it makes for it: a client asks
// again after each deadline.
type waiting struct {
	step  uint64
	since time.Time
	open  int // requests under way
}

// arrive notes that a rank asks.
func (s *Steps) arrive(r Rank, step uint64, now time.Time) *waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.waiting[r]
	if w == nil || w.step != step {
		w = &waiting{step: step, since: now}
		s.waiting[r] = w
	}
	w.open++
	return w
}

// leave notes that a request ended, answered or not. The lock is held.
func (s *Steps) leave(r Rank, w *waiting, answered bool) {
	if w.open--; answered && s.waiting[r] == w {
		delete(s.waiting, r)
	}
}

// waits says whether a rank's trainer has no batch: a request for a later step than the one
// that it is at is of a client that reads ahead. The lock is held.
func (s *Steps) waits(r Rank) bool {
	w := s.waiting[r]
	return w != nil && w.open > 0 && w.step <= s.acked[r]
}

// slowest is the rank of a bucket that holds it back, and how far that is. Of those that
// are equally far it is one that does not wait itself. The lock is held.
func (s *Steps) slowest(dp uint32) (slow Rank, low uint64) {
	low = ^uint64(0)
	for _, r := range s.buckets[dp].ranks {
		if a := s.acked[r]; a < low || a == low && s.waits(slow) && !s.waits(r) {
			slow, low = r, a
		}
	}
	return slow, low
}

func (s *Steps) ackedOf(dp uint32) *pb.Acked {
	slow, low := s.slowest(dp)
	return &pb.Acked{Generation: s.generation, Bucket: dp, Step: low, Slowest: slow.String(), Waits: s.waits(slow), Left: s.hasLeft(slow)}
}

// awaited is what somebody said that he waits for. The zero value is nothing.
type awaited struct {
	what  string
	moved time.Time // when something of it moved last; zero: it moves, as far as is known
	heard time.Time // when he said so
	ranks bool      // ranks are waited for
}

func awaits(w *pb.Waiting, now time.Time) awaited {
	return awaited{what: w.Reason, moved: now.Add(-time.Duration(w.IdleMs) * time.Millisecond), heard: now, ranks: w.Ranks}
}

// wordEvery is how often at least one who waits says so; one who does not for longer than this is
// named himself.
const wordEvery = 3 * time.Second

// wire is the same with what others are to read in its place.
func (a awaited) wire(reason string, now time.Time) *pb.Waiting {
	w := &pb.Waiting{Reason: reason, Ranks: a.ranks}
	if !a.moved.IsZero() {
		w.IdleMs = uint64(max(now.Sub(a.moved), 0).Milliseconds())
	}
	return w
}

// blockedOn says why a step is not there yet. The lock is held.
func (s *Steps) blockedOn(r Rank, step uint64, now time.Time) *pb.Waiting {
	if s.job == nil {
		return s.withoutPlanner("this constructor has no job: ", now)
	}
	if c := s.building[step]; c != nil && !c.crowded {
		return c.blockedOn("", now)
	}
	if s.plans[step] != nil || s.building[step] != nil {
		if before, c := s.builtBefore(step); c != nil {
			return c.blockedOn(fmt.Sprintf("it is planned, and step %d comes before it: ", before), now)
		}
		return s.forRanks(fmt.Sprintf("it is planned, but %d of %d bytes of this constructor's buffer are held by steps that ranks have not finished: ", s.held, s.budget), s.behind(r, now), now)
	}
	const unplanned = "the planner has not planned it; "
	if who := s.behind(r, now); who != "" {
		return s.forRanks(unplanned, who, now)
	}
	return s.unplanned(unplanned+"no rank of this constructor is further behind", now)
}

// forRanks says that a rank here is waited for. Nothing comes of it if that is one that is refused.
// The lock is held.
func (s *Steps) forRanks(prefix, behind string, now time.Time) *pb.Waiting {
	if q, since, ok := s.outcast(now); ok {
		return awaited{moved: since}.wire(prefix+s.outcastText(q), now)
	}
	return &pb.Waiting{Ranks: true, Reason: prefix + behind}
}

// blockedOn says what holds up a step that is being built.
func (c *claim) blockedOn(prefix string, now time.Time) *pb.Waiting {
	text := prefix + "its samples are being fetched from the loaders"
	if c.awaits.what != "" {
		text = prefix + "its samples are being fetched: " + c.awaits.what
	}
	return c.awaits.wire(text, now)
}

// builtBefore is the first step before one that is being built; nil if none is. The lock is held.
func (s *Steps) builtBefore(step uint64) (first uint64, of *claim) {
	for k, c := range s.building {
		if k < step && !c.crowded && (of == nil || k < first) {
			first, of = k, c
		}
	}
	return first, of
}

// unplanned says why the planner has not planned a step. The lock is held.
func (s *Steps) unplanned(text string, now time.Time) *pb.Waiting {
	p := s.planner
	switch quiet := now.Sub(p.heard); {
	case s.alone.what != "":
		return s.withoutPlanner(text+", and ", now)
	case p.what == "":
		return &pb.Waiting{Reason: text + ", `millrace status` says what the planner waits for"}
	case quiet > wordEvery:
		return &pb.Waiting{Reason: fmt.Sprintf("%s; %.0f s ago it waited for %s", text, quiet.Seconds(), p.what), IdleMs: uint64(quiet.Milliseconds())}
	}
	return p.wire(text+"; the planner waits for "+p.what, now)
}

// withoutPlanner says since when there is no planner, and why. The lock is held.
func (s *Steps) withoutPlanner(text string, now time.Time) *pb.Waiting {
	if s.alone.what == "" {
		return &pb.Waiting{Reason: text + "the planner is about to give it one"}
	}
	return s.alone.wire(fmt.Sprintf("%sthere has been no planner for %.0f s: %s", text, now.Sub(s.alone.moved).Seconds(), s.alone.what), now)
}

// Waits says what a rank's request for a step waits for.
func (s *Steps) Waits(r Rank, step uint64) *pb.Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blockedOn(r, step, time.Now())
}

// Awaits notes what a loader that is asked for samples of a step waits for itself.
func (s *Steps) Awaits(p *pb.StepPlan, loader string, w *pb.Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.building[p.Step]; c != nil && c.plan == p {
		c.awaits = awaits(w, time.Now())
		c.awaits.what = fmt.Sprintf("the loader at %s %s", loader, w.Reason)
	}
}

// PlannerAwaits notes what the planner waits for.
func (s *Steps) PlannerAwaits(w *pb.Waiting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planner = awaits(w, time.Now())
}

// Alone notes that the planner is gone, until the next Take, and why.
func (s *Steps) Alone(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.alone.what == "" {
		s.alone.moved = now
	}
	if s.alone.heard.IsZero() {
		s.alone.heard = now
		for _, after := range []time.Duration{aloneTime, aloneBuilding} {
			time.AfterFunc(s.alone.moved.Add(after).Sub(now), s.wakeRanks)
		}
	}
	s.alone.what, s.planner = why.Error(), awaited{}
}

// A planner that hears nothing of a constructor gives its ranks to another one, which this one may
// never hear of: the way to the planner may be all that is lost. So a rank that waits here while there
// is no planner is sent to ask the planner itself; if that is gone, too, it asks here again.
const (
	// aloneTime is how long there has been no planner when ranks are sent away that wait for a step
	// which is not being built: longer than another planner takes to be there.
	aloneTime = 3 * time.Second
	// aloneBuilding is the same of steps that are being built: the loaders may be lost, too.
	aloneBuilding = 10 * time.Second
)

// forsaken sends a rank that waits for a step to the planner, if there has been none here for long.
// The lock is held.
func (s *Steps) forsaken(step uint64) error {
	now, most := time.Now(), aloneTime
	if c := s.building[step]; c != nil && !c.crowded {
		most = aloneBuilding
	}
	if s.alone.what == "" || now.Sub(s.alone.moved) < most {
		return nil
	}
	return fault.As(fault.Lost, fmt.Errorf("%s: the rank asks the planner itself, as another constructor may serve it: %w",
		s.withoutPlanner(fmt.Sprintf("step %d is not there, and ", step), now).Reason, ErrJoinAgain))
}

// wakeRanks has those look again who wait for a step.
func (s *Steps) wakeRanks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps.wakeAll()
}

// laggard is the slowest rank of a bucket.
type laggard struct {
	rank  Rank
	at    uint64
	waits bool
}

const (
	// fewRanks are looked at each time that one of them asks why it waits.
	fewRanks = 64
	// lookTime is for how long a look at more of them serves all: each of thousands that wait hears
	// up to five times a second why, and looking at all for each took more than a core.
	lookTime = 100 * time.Millisecond
)

// laggards are the slowest ranks of all buckets. The lock is held.
func (s *Steps) laggards(now time.Time) []laggard {
	if len(s.acked) > fewRanks && now.Sub(s.looked) < lookTime {
		return s.lagging
	}
	s.looked, s.lagging = now, s.lagging[:0]
	for _, dp := range s.job.Buckets {
		r, at := s.slowest(dp)
		s.lagging = append(s.lagging, laggard{r, at, s.waits(r)})
	}
	return s.lagging
}

// behind names the rank here that others wait for; "" if there is none beside the one that asks.
// The lock is held.
func (s *Steps) behind(asks Rank, now time.Time) string {
	slow, low := Rank{}, s.acked[asks]
	found := false
	for _, l := range s.laggards(now) {
		if r, a := l.rank, l.at; r != asks && (a < low || a == low && !found && !l.waits) {
			slow, low, found = r, a, true
		}
	}
	if !found {
		return ""
	}
	return fmt.Sprintf("the slowest rank here: %s is at step %d", slow, low)
}
