package deliver

import (
	"maps"
	"slices"
	"time"

	pb "github.com/millrace-data/millrace/internal/proto"
)

// How long trainers stand still for data, by their own clocks: that is what the service is there to
// avoid. Each request of a rank says how long its trainer has waited in all, up to now; of a wait that goes on after that, the
// constructor knows since when.

const (
	// waitWindow is what a share is about: long enough for the steps of most trainings, short enough
	// to follow what a person changes.
	waitWindow = 10 * time.Second
	// waitLook is the least time between two looks: whoever asks more often gets the same.
	waitLook = 500 * time.Millisecond
	// waitMarks looks are kept: those of a window.
	waitMarks = int(waitWindow/waitLook) + 1
)

// trainer is how long the trainer of a rank has stood still.
type trainer struct {
	join    uint64                   // of the client that said so last
	said    time.Duration            // by it, in all
	total   time.Duration            // by all clients of the rank
	stands  time.Time                // when it was done with the step before
	told    time.Time                // when it said something new of its waits
	counted time.Duration            // of total, and of a wait that goes on
	marks   [waitMarks]time.Duration // counted at the last looks
	began   time.Time                // it is looked at since then
	share   float64                  // of the last waitWindow
}

// looks are the times of the last looks at trainers.
type looks struct {
	times [waitMarks]time.Time
	last  int // of times
}

// next begins a look, and returns the one that a window ends at which ends now; ok is false if it is too early for one.
func (l *looks) next(now time.Time) (from int, dt time.Duration, ok bool) {
	if dt = now.Sub(l.times[l.last]); dt < waitLook {
		return 0, 0, false
	}
	from = l.last
	for i := range l.times {
		if at := l.times[i]; now.Sub(at) <= waitWindow && at.Before(l.times[from]) {
			from = i
		}
	}
	l.last = (l.last + 1) % waitMarks
	if from == l.last { // it is overwritten
		from = (from + 1) % waitMarks
	}
	l.times[l.last] = now
	return from, dt, true
}

// say takes how long the rank's client has waited in all. One client's requests may overtake each other. What a client waited
// before it came here is not counted. It leaves out the wait for its first batch, so what was counted of that stands beside what it says.
func (t *trainer) say(join uint64, waited time.Duration) {
	switch {
	case join > t.join && (t.join == 0 || waited < t.said): // of another client
		t.join, t.said = join, waited
		return
	case waited < t.said:
		return
	case t.said == 0 && waited > 0:
		t.total = max(t.total, t.counted)
	}
	t.total += waited - t.said
	t.join, t.said = max(t.join, join), waited
}

// count takes dt more, of which the trainer stood still as long as it says by now, and goesOn beside that. What it
// says at once of a longer time counts in the next looks, too.
func (t *trainer) count(dt, goesOn time.Duration) {
	t.counted += min(max(t.total+goesOn-t.counted, 0), dt)
}

// mark keeps what is counted as that of a look at now, and takes the share since another one.
func (t *trainer) mark(at, from int, since, now time.Time) {
	still := t.counted - t.marks[from]
	if t.marks[at] = t.counted; since.Before(t.began) {
		since, still = t.began, t.counted
	}
	if d := now.Sub(since); d > 0 {
		t.share = min(still.Seconds()/d.Seconds(), 1)
	}
}

// trainerOf is what is known of a rank's trainer. The lock is held.
func (s *Steps) trainerOf(r Rank) *trainer {
	t := s.trainers[r]
	if t == nil {
		now := time.Now()
		t = &trainer{stands: now, began: now}
		s.trainers[r] = t
	}
	return t
}

// hearWait takes what a request says of its rank's trainer; one of an older client says nothing. The lock is held.
func (s *Steps) hearWait(c Caller) {
	if c.Waited > 0 {
		t := s.trainerOf(c.Rank)
		before := t.total
		if t.say(c.Join, time.Duration(c.Waited-1)*time.Microsecond); t.total > before {
			t.told = time.Now()
		}
	}
}

// lookAtTrainers brings all shares up to date. The lock is held.
func (s *Steps) lookAtTrainers(now time.Time) {
	from, dt, ok := s.seen.next(now)
	if !ok {
		return
	}
	for r, t := range s.trainers {
		t.count(dt, s.goesOn(r, now))
		t.mark(s.seen.last, from, s.seen.times[from], now)
	}
}

// goesOn is how long a wait goes on of which the trainer has told nothing. The lock is held.
func (s *Steps) goesOn(r Rank, now time.Time) time.Duration {
	if t := s.trainers[r]; s.waits(r) {
		return now.Sub(latest(latest(s.waiting[r].since, t.stands), t.told))
	}
	return 0
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// trainersUsage is how long all trainers here stood still. The lock is held.
func (s *Steps) trainersUsage() *pb.TrainerWaits {
	s.lookAtTrainers(time.Now())
	w := &pb.TrainerWaits{}
	for _, dp := range slices.Sorted(maps.Keys(s.buckets)) {
		for _, r := range s.buckets[dp].ranks {
			t := s.trainers[r]
			if t == nil || t.join == 0 {
				continue
			}
			if w.Ranks == 0 || t.share > w.Most {
				w.Most, w.MostRank = t.share, r.String()
			}
			if w.Ranks == 0 || t.share < w.Least {
				w.Least, w.LeastRank = t.share, r.String()
			}
			w.Share = (w.Share*float64(w.Ranks) + t.share) / float64(w.Ranks+1)
			w.Ranks++
		}
	}
	return w
}
