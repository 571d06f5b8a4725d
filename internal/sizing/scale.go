package sizing

import (
	"cmp"
	"fmt"
	"slices"
)

// Scaling says when loaders join and leave: OVERLORD's mixture-driven scaling (section 5.2). Zero values stand for the
// defaults.
type Scaling struct {
	Least     int     // loaders; default those that the job began with
	Most      int     // loaders; below Least + 1 nothing is ever done
	Up        float64 // of its workers busy, a loader is short; default 0.8
	Down      float64 // of its workers busy without the last loader of its own, a source has one too many; default 0.5
	Intervals int     // in a row that it has to be so; default 3
	Idle      int     // the same for a loader that is too many; default 2 * Intervals, as it costs less than to lack one
	CoolDown  int     // intervals after a decision in which none is made; default 3: a loader that comes has files to open first
	Smooth    float64 // of a moving average, the part of the new value; default 0.5
}

// Fill puts the defaults in the place of zeros.
func (o *Scaling) Fill() {
	o.Up, o.Down, o.Smooth = cmp.Or(o.Up, 0.8), cmp.Or(o.Down, 0.5), cmp.Or(o.Smooth, 0.5)
	o.Intervals, o.CoolDown = cmp.Or(o.Intervals, 3), cmp.Or(o.CoolDown, 3)
	o.Idle = cmp.Or(o.Idle, 2*o.Intervals)
}

// Load is what an interval says of a source.
type Load struct {
	Name  string
	Share float64 // of the mix, now
	Ahead float64 // the largest that the schedule gives it until a loader that is asked for now is ready; negative: it follows no schedule
	Cost  float64 // seconds of a worker for a unit of the mix; 0: not known
}

// Interval is a snapshot: what happened since the last one, and who is there.
type Interval struct {
	Sources []Load
	Rate    float64       // units of the mix that were drawn, a second
	Places  []PlaceStatus // by number
}

// PlaceStatus is a share of the reading.
type PlaceStatus struct {
	Loader  string // that has it; "": none
	Workers int    // of it
	Blocks  int    // that it holds or reads
}

// Scaled is the decision of an interval.
type Scaled struct {
	Table   [][]int  // by source: the places that read it
	Want    int      // loaders
	Drained []string // loaders that nothing needs any more, to be ended first
	Did     string   // and why; "": nothing
}

// Scaler decides, interval by interval, who reads what. It is a function of these snapshots: it knows no clock and asks
// nobody. It is for one goroutine.
type Scaler struct {
	opts  Scaling
	base  [][]int // by source: the places that it begins with
	extra []extra // by the order in which they were asked for
	mean  []float64
	short []int // by source: intervals in a row
	idle  []int
	cool  int
	drain []int // places that are to be given up, once nothing is there
}

// extra is a loader that a source got beside those that it began with.
type extra struct{ source, place int } // place: -1 until it came

// NewScaler returns the scaler of a job that begins with a table: by source, the places that read it.
func NewScaler(opts Scaling, table [][]int) *Scaler {
	opts.Fill()
	s := &Scaler{opts: opts, mean: make([]float64, len(table)), short: make([]int, len(table)), idle: make([]int, len(table))}
	most := 0
	for i, of := range table {
		s.base = append(s.base, slices.Clone(of))
		s.mean[i] = -1
		for _, at := range of {
			most = max(most, at+1)
		}
	}
	s.opts.Least = cmp.Or(s.opts.Least, most)
	return s
}

// Next decides about an interval.
func (s *Scaler) Next(x Interval) Scaled {
	s.arrive(x)
	work := s.work(x)
	did := ""
	if s.cool > 0 {
		s.cool--
	}
	grow, why := s.hottest(x, work)
	for i := range s.short {
		if i == grow {
			s.short[i]++
		} else {
			s.short[i] = 0
		}
		if s.hasExtra(i) && s.without(x, work, i) < s.opts.Down {
			s.idle[i]++
		} else {
			s.idle[i] = 0
		}
	}
	switch shrink := s.idlest(); {
	case s.cool > 0:
	case grow >= 0 && s.short[grow] >= s.opts.Intervals && s.count() < s.opts.Most && !s.awaits():
		s.extra, s.short[grow], s.cool = append(s.extra, extra{grow, -1}), 0, s.opts.CoolDown
		did = fmt.Sprintf("one loader more, for %s: %s for %d intervals", x.Sources[grow].Name, why, s.opts.Intervals)
	case shrink >= 0:
		did = s.give(x, shrink, work)
	}
	return Scaled{Table: s.table(), Want: s.count() + s.leaving(x), Drained: s.drained(x), Did: did}
}

// arrive gives loaders that came to the sources that they were asked for, and forgets those that left.
func (s *Scaler) arrive(x Interval) {
	there := func(at int) bool { return at >= 0 && at < len(x.Places) && x.Places[at].Loader != "" }
	s.drain = slices.DeleteFunc(s.drain, func(at int) bool { return !there(at) })
	taken := map[int]bool{}
	for _, of := range s.base {
		for _, at := range of {
			taken[at] = true
		}
	}
	for _, at := range s.drain {
		taken[at] = true
	}
	for i := range s.extra {
		if e := &s.extra[i]; e.place >= 0 && !there(e.place) {
			e.place = -1 // it was lost: who comes in its place has it
		}
		taken[s.extra[i].place] = true
	}
	for i := range s.extra {
		for at := range x.Places {
			if s.extra[i].place < 0 && there(at) && !taken[at] {
				s.extra[i].place, taken[at] = at, true
			}
		}
	}
}

// work is how many workers each source keeps busy: now, or before a loader that is asked for now is ready.
func (s *Scaler) work(x Interval) []float64 {
	work := make([]float64, len(s.base))
	for i := range work {
		l := &x.Sources[i]
		if s.mean[i] < 0 {
			s.mean[i] = l.Share
		}
		s.mean[i] += s.opts.Smooth * (l.Share - s.mean[i])
		share := s.mean[i]
		if l.Ahead >= 0 {
			share = max(l.Share, l.Ahead)
		}
		work[i] = x.Rate * share * l.Cost
	}
	return work
}

// placesOf are the places that read a source now.
func (s *Scaler) placesOf(source int) []int {
	of := slices.Clone(s.base[source])
	for _, e := range s.extra {
		if e.source == source && e.place >= 0 {
			of = append(of, e.place)
		}
	}
	slices.Sort(of)
	return of
}

func (s *Scaler) table() [][]int {
	table := make([][]int, len(s.base))
	for i := range table {
		table[i] = s.placesOf(i)
	}
	return table
}

// busy is the part of each place's workers that is busy, if each source is read by these places.
func busy(x Interval, work []float64, table [][]int) []float64 {
	part := make([]float64, len(x.Places))
	for i, of := range table {
		for _, at := range of {
			if at < len(part) {
				part[at] += work[i] / float64(len(of)) / float64(max(x.Places[at].Workers, 1))
			}
		}
	}
	return part
}

// hottest is the source that makes the busiest place short; -1 if none is.
func (s *Scaler) hottest(x Interval, work []float64) (source int, why string) {
	table := s.table()
	part, worst := busy(x, work, table), -1
	for at, p := range part {
		if p > s.opts.Up && (worst < 0 || p > part[worst]) {
			worst = at
		}
	}
	source = -1
	for i, of := range table {
		if worst >= 0 && slices.Contains(of, worst) && (source < 0 || work[i]/float64(len(of)) > work[source]/float64(len(table[source]))) {
			source = i
		}
	}
	if source >= 0 {
		why = fmt.Sprintf("its loaders are %.0f %% busy, %s takes %.2f workers", 100*part[worst], x.Sources[source].Name, work[source])
	}
	return source, why
}

// without is how busy the busiest place of a source would be without the last loader of its own.
func (s *Scaler) without(x Interval, work []float64, source int) (most float64) {
	table := s.table()
	of := table[source]
	if n := len(of); n > len(s.base[source]) {
		last := s.last(source)
		table[source] = slices.DeleteFunc(of, func(at int) bool { return at == s.extra[last].place })
	}
	part := busy(x, work, table)
	for _, at := range table[source] {
		if at < len(part) {
			most = max(most, part[at])
		}
	}
	return most
}

// last is the last extra of a source; there is one.
func (s *Scaler) last(source int) (at int) {
	for i, e := range s.extra {
		if e.source == source {
			at = i
		}
	}
	return at
}

// awaits says whether a loader that was asked for is not there yet: another one would come no sooner.
func (s *Scaler) awaits() bool {
	return slices.ContainsFunc(s.extra, func(e extra) bool { return e.place < 0 })
}

func (s *Scaler) hasExtra(source int) bool {
	return slices.ContainsFunc(s.extra, func(e extra) bool { return e.source == source })
}

// idlest is the source that has had a loader too many for longest; -1 if none has for long enough.
func (s *Scaler) idlest() int {
	best := -1
	for i, n := range s.idle {
		if n >= s.opts.Idle && (best < 0 || n > s.idle[best]) {
			best = i
		}
	}
	return best
}

// give has a source give up the last loader of its own: nothing more is read there, and when what it holds is not needed
// any more, it may leave.
func (s *Scaler) give(x Interval, source int, work []float64) string {
	at := s.last(source)
	if place := s.extra[at].place; place >= 0 {
		s.drain = append(s.drain, place)
	}
	s.extra = slices.Delete(s.extra, at, at+1)
	s.idle[source], s.cool = 0, s.opts.CoolDown
	return fmt.Sprintf("one loader of %s drains: it takes %.2f workers, and the others would be less than %.0f %% busy, for %d intervals", x.Sources[source].Name, work[source], 100*s.opts.Down, s.opts.Idle)
}

// count is how many loaders there are to be, without those that drain.
func (s *Scaler) count() int { return s.opts.Least + len(s.extra) }

// leaving are the loaders that drain and still hold what is needed.
func (s *Scaler) leaving(x Interval) (n int) {
	for _, at := range s.drain {
		if x.Places[at].Blocks > 0 {
			n++
		}
	}
	return n
}

// drained are the loaders that drained.
func (s *Scaler) drained(x Interval) (names []string) {
	for _, at := range s.drain {
		if x.Places[at].Blocks == 0 {
			names = append(names, x.Places[at].Loader)
		}
	}
	return names
}
