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
	Share float64   // of the mix, now
	Ahead []float64 // the same at some times of the next intervals (Scaler.Lead), for all sources alike; nil: it follows no schedule
	Cost  float64   // seconds of a worker for a unit of the mix; 0: not known
}

// Interval is a snapshot: what happened since the last one, and who is there.
type Interval struct {
	Sources []Load
	Rate    float64       // units of the mix that trainers take, a second (Pace)
	Places  []PlaceStatus // by number
	Reads   [][]int       // by source: the places that read it by now; nil: all that are to
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
	short []int // by place: intervals in a row
	cool  int
	lead  int   // intervals from asking for a loader until it reads its sources, as far as is known
	drain []int // places that are to be given up, once nothing is there
}

// extra is a loader that some sources got beside those that they began with.
type extra struct {
	sources []int // rising
	place   int   // -1 until it came
	waits   int   // intervals since it was asked for, until it reads them
	reads   bool  // all of them
	idle    int   // intervals in a row in which they had enough without it
}

// NewScaler returns the scaler of a job that begins with a table: by source, the places that read it. Those beyond the least are
// of loaders that came for an earlier planner: they are given up as others that came are, when they are one too many.
func NewScaler(opts Scaling, table [][]int) *Scaler {
	opts.Fill()
	s := &Scaler{opts: opts, mean: make([]float64, len(table)), lead: opts.CoolDown}
	places := 0
	for i, of := range table {
		s.mean[i] = -1
		for _, at := range of {
			places = max(places, at+1)
		}
	}
	s.opts.Least = cmp.Or(s.opts.Least, places)
	came := make([]extra, max(places-s.opts.Least, 0))
	for i, of := range table {
		var base []int
		for _, at := range of {
			if at < s.opts.Least {
				base = append(base, at)
			} else {
				e := &came[at-s.opts.Least]
				e.sources, e.place, e.reads = append(e.sources, i), at, true
			}
		}
		if base == nil { // as it was dealt without them
			base = []int{i % s.opts.Least}
		}
		s.base = append(s.base, base)
	}
	for _, e := range came {
		switch {
		case len(e.sources) == 0: // nobody has that place
		case s.count() < s.opts.Most:
			s.extra = append(s.extra, e)
		default: // there may be no more
			s.drain = append(s.drain, e.place)
		}
	}
	return s
}

// mostLead bounds for how many intervals a loader is waited for: what comes later is no reason to ask for one now.
const mostLead = 60

// Lead is for how many intervals from now on work has to be known: one that is too much is a reason after some of them, or after
// the cool-down of another decision, and the loader that is asked for then takes as long as those before it took until
// they read their sources.
func (s *Scaler) Lead() int { return max(s.opts.Intervals, s.opts.CoolDown) + s.lead }

// Arrived gives loaders that came between two intervals their sources: who reads what then. Nothing is decided.
func (s *Scaler) Arrived(places []PlaceStatus) [][]int {
	s.arrive(places)
	return s.table()
}

// Next decides about an interval.
func (s *Scaler) Next(x Interval) Scaled {
	s.forget(len(x.Sources))
	s.arrive(x.Places)
	s.begin(x.Reads)
	work := s.work(x)
	short := s.note(x, work)
	s.cool = max(s.cool-1, 0)
	did := ""
	switch {
	case s.cool > 0:
	case short && !s.Awaits():
		did = s.grow(x, work)
		s.arrive(x.Places)
	}
	if did == "" && s.cool == 0 {
		did = s.shrink(x, work)
	}
	if did != "" {
		s.cool = s.opts.CoolDown
	}
	return Scaled{Table: s.table(), Want: s.count() + s.leaving(x), Drained: s.drained(x), Did: did}
}

// forget drops the sources from number n on: they were to join the job when it began, and were refused since.
func (s *Scaler) forget(n int) {
	if n >= len(s.base) {
		return
	}
	s.base, s.mean = s.base[:n], s.mean[:n]
	for i := range s.extra {
		e := &s.extra[i]
		e.sources = slices.DeleteFunc(e.sources, func(source int) bool { return source >= n })
		if len(e.sources) == 0 && e.place >= 0 {
			s.drain = append(s.drain, e.place)
		}
	}
	s.extra = slices.DeleteFunc(s.extra, func(e extra) bool { return len(e.sources) == 0 })
}

// note counts for how many intervals in a row places are short and extra ones idle; short: one is for long enough.
func (s *Scaler) note(x Interval, work demand) (short bool) {
	part := busy(x.Places, work, s.table())
	for len(s.short) < len(part) {
		s.short = append(s.short, 0)
	}
	for at, p := range part {
		if s.short[at]++; p <= s.opts.Up {
			s.short[at] = 0
		}
		short = short || s.short[at] >= s.opts.Intervals
	}
	for i := range s.extra {
		if s.extra[i].idle++; s.without(x, work, i) >= s.opts.Down {
			s.extra[i].idle = 0
		}
	}
	return short
}

// arrive gives loaders that came to the sources that they were asked for, and forgets those that left. One that drained and is
// there yet has them sooner than one that has to come: so nothing waits for a fleet that does not end what it should.
func (s *Scaler) arrive(places []PlaceStatus) {
	there := func(at int) bool { return at >= 0 && at < len(places) && places[at].Loader != "" }
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
			e.place, e.waits, e.reads = -1, 0, false // it was lost: who comes in its place has it
		}
		taken[s.extra[i].place] = true
	}
	for i := range s.extra {
		for at := range places {
			if s.extra[i].place < 0 && there(at) && !taken[at] {
				s.extra[i].place, taken[at] = at, true
			}
		}
	}
	for i := range s.extra {
		if s.extra[i].place < 0 && len(s.drain) > 0 {
			s.extra[i].place, s.extra[i].reads = s.drain[0], true // of how long others take it says nothing
			s.drain = s.drain[1:]
		}
	}
}

// begin sees which loaders read their sources by now, and learns how long that took.
func (s *Scaler) begin(reads [][]int) {
	for i := range s.extra {
		e := &s.extra[i]
		if e.reads {
			continue
		}
		e.waits++
		lacks := func(source int) bool {
			return reads != nil && (source >= len(reads) || !slices.Contains(reads[source], e.place))
		}
		if e.reads = e.place >= 0 && !slices.ContainsFunc(e.sources, lacks); e.reads {
			s.lead = min(max(e.waits, (s.lead+e.waits+1)/2), mostLead)
		}
	}
}

// table is who reads what now, by source.
func (s *Scaler) table() [][]int {
	table := make([][]int, len(s.base))
	for i := range table {
		table[i] = slices.Clone(s.base[i])
	}
	for _, e := range s.extra {
		for _, i := range e.sources {
			if e.place >= 0 {
				table[i] = append(table[i], e.place)
			}
		}
	}
	for i := range table {
		slices.Sort(table[i])
	}
	return table
}

// grow has loaders that came read more, and asks for as many more as it takes until no place is short, or for as many as there
// may be. Each takes a part of what the place reads that is the busiest with those before it.
func (s *Scaler) grow(x Interval, work demand) string {
	places, table := slices.Clone(x.Places), s.table()
	part := busy(places, work, table)
	most, first := slices.Max(part), []int(nil)
	n, wider := 0, 0
	for slices.Max(part) > s.opts.Up {
		at := slices.Index(part, slices.Max(part))
		sources := dearest(at, work, table)
		e := s.idle(sources, work, part, table, places)
		if e == nil && s.count()+s.leaving(x) >= s.opts.Most {
			break
		}
		if first == nil {
			first = slices.Clone(sources)
		}
		if slices.Sort(sources); e != nil {
			wider++
			sources = slices.DeleteFunc(sources, func(i int) bool { return slices.Contains(e.sources, i) })
			e.sources = slices.Sorted(slices.Values(append(e.sources, sources...)))
		} else {
			n++
			e = &extra{sources: sources, place: -1}
			s.extra = append(s.extra, *e)
			e.place, places = len(places), append(places, PlaceStatus{Workers: places[at].Workers})
		}
		for _, i := range sources {
			table[i] = append(table[i], e.place)
		}
		part = busy(places, work, table)
	}
	if n+wider == 0 {
		return ""
	}
	names, take := s.named(x, work, first)
	return fmt.Sprintf("%s %s: a loader is %.0f %% busy, and %s, for %d intervals", grown(n, wider), names, 100*most, take, s.opts.Intervals)
}

// idle is the loader that came before, and has least to do, of those that a part of these sources would not make short; nil if
// there is none.
func (s *Scaler) idle(sources []int, work demand, part []float64, table [][]int, places []PlaceStatus) (best *extra) {
	for i := range s.extra {
		e := &s.extra[i]
		if e.place < 0 || best != nil && part[e.place] >= part[best.place] {
			continue
		}
		then, more := slices.Clone(table), false
		for _, i := range sources {
			if !slices.Contains(then[i], e.place) {
				then[i], more = append(slices.Clone(then[i]), e.place), true
			}
		}
		if more && busy(places, work, then)[e.place] <= s.opts.Up {
			best = e
		}
	}
	return best
}

// grown says what a decision to grow is.
func grown(n, wider int) string {
	switch {
	case wider == 0:
		return loaders(n) + " more, for"
	case n == 0:
		return loaders(wider) + " of those that came read, too,"
	}
	return fmt.Sprintf("%s more, and %s of those that came, for", loaders(n), loaders(wider))
}

// dear is the part of a place's work that a loader beside it shares: sources with less than the rest would only be opened
// once more.
const dear = 0.9

// dearest are the sources that keep a place busiest when it has most to do, the first ones before others.
func dearest(at int, work demand, table [][]int) (sources []int) {
	for i, of := range table {
		if slices.Contains(of, at) {
			sources = append(sources, i)
		}
	}
	then, all := work[0], 0.0
	for _, work := range work {
		sum := 0.0
		for _, i := range sources {
			sum += work[i] / float64(len(table[i]))
		}
		if sum > all {
			then, all = work, sum
		}
	}
	part := func(i int) float64 { return then[i] / float64(len(table[i])) }
	slices.SortStableFunc(sources, func(a, b int) int { return cmp.Compare(part(b), part(a)) })
	n := 0
	for have := 0.0; n < len(sources) && have < dear*all; n++ {
		have += part(sources[n])
	}
	return sources[:n]
}

// without is how busy the busiest place of an extra loader's sources would be without it.
func (s *Scaler) without(x Interval, work demand, at int) (most float64) {
	table, e := s.table(), &s.extra[at]
	for _, i := range e.sources {
		table[i] = slices.DeleteFunc(table[i], func(at int) bool { return at == e.place })
	}
	part := busy(x.Places, work, table)
	for _, i := range e.sources {
		for _, at := range table[i] {
			if at < len(part) {
				most = max(most, part[at])
			}
		}
	}
	return most
}

// Awaits says whether a loader that was asked for is not there yet: another one would come no sooner.
func (s *Scaler) Awaits() bool {
	return slices.ContainsFunc(s.extra, func(e extra) bool { return e.place < 0 })
}

// shrink gives up loaders that have been one too many for long enough, the last ones first, as long as those that stay would
// not be busy: nothing more is read there, and when what they hold is not needed any more, they may leave.
func (s *Scaler) shrink(x Interval, work demand) string {
	var of []int // sources that lose one
	n := 0
	for at := len(s.extra) - 1; at >= 0; at-- {
		e := s.extra[at]
		if e.idle < s.opts.Idle || s.without(x, work, at) >= s.opts.Down {
			continue
		}
		if e.place >= 0 {
			s.drain = append(s.drain, e.place)
		}
		s.extra = slices.Delete(s.extra, at, at+1)
		of, n = append(of, e.sources...), n+1
	}
	if n == 0 {
		return ""
	}
	verb := "drain"
	if n == 1 {
		verb = "drains"
	}
	slices.Sort(of)
	names, take := s.named(x, work, slices.Compact(of))
	return fmt.Sprintf("%s of %s %s: %s, and the others would be less than %.0f %% busy, for %d intervals", loaders(n), names, verb, take, 100*s.opts.Down, s.opts.Idle)
}

// loaders is a number of them, for a person.
func loaders(n int) string {
	if n == 1 {
		return "one loader"
	}
	return fmt.Sprintf("%d loaders", n)
}

// named names sources, and says how many workers they take.
func (s *Scaler) named(x Interval, work demand, sources []int) (names, take string) {
	takes := work.of(sources)
	names = x.Sources[sources[0]].Name
	if n := len(sources) - 1; n > 0 {
		return fmt.Sprintf("%s and %d more", names, n), fmt.Sprintf("they take %.2f workers", takes)
	}
	return names, fmt.Sprintf("it takes %.2f workers", takes)
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
