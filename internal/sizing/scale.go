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
	short []int // by place: intervals in a row
	cool  int
	drain []int // places that are to be given up, once nothing is there
}

// extra is a loader that some sources got beside those that they began with.
type extra struct {
	sources []int // rising
	place   int   // -1 until it came
	idle    int   // intervals in a row in which they had enough without it
}

// NewScaler returns the scaler of a job that begins with a table: by source, the places that read it.
func NewScaler(opts Scaling, table [][]int) *Scaler {
	opts.Fill()
	s := &Scaler{opts: opts, mean: make([]float64, len(table))}
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
	short := s.note(x, work)
	s.cool = max(s.cool-1, 0)
	did := ""
	switch {
	case s.cool > 0:
	case short && !s.awaits() && s.count()+s.leaving(x) < s.opts.Most:
		did = s.grow(x, work)
	default:
		did = s.shrink(x, work)
	}
	if did != "" {
		s.cool = s.opts.CoolDown
	}
	return Scaled{Table: s.table(), Want: s.count() + s.leaving(x), Drained: s.drained(x), Did: did}
}

// note counts for how many intervals in a row places are short and extra ones idle; short: one is for long enough.
func (s *Scaler) note(x Interval, work []float64) (short bool) {
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

// busy is the part of each place's workers that is busy, if each source is read by these places.
func busy(places []PlaceStatus, work []float64, table [][]int) []float64 {
	part := make([]float64, len(places))
	for i, of := range table {
		for _, at := range of {
			if at < len(part) {
				part[at] += work[i] / float64(len(of)) / float64(max(places[at].Workers, 1))
			}
		}
	}
	return part
}

// grow asks for as many loaders as it takes until no place is short, or for as many as there may be. Each takes a part of
// what the place reads that is the busiest with those that were asked for before it.
func (s *Scaler) grow(x Interval, work []float64) string {
	places, table := slices.Clone(x.Places), s.table()
	part := busy(places, work, table)
	most, first := slices.Max(part), []int(nil)
	n := 0
	for ; slices.Max(part) > s.opts.Up && s.count()+s.leaving(x) < s.opts.Most; n++ {
		at := slices.Index(part, slices.Max(part))
		sources := dearest(at, work, table)
		if first == nil {
			first = sources
		}
		for _, i := range sources {
			table[i] = append(table[i], len(places))
		}
		slices.Sort(sources)
		s.extra = append(s.extra, extra{sources: sources, place: -1})
		places = append(places, PlaceStatus{Workers: places[at].Workers})
		part = busy(places, work, table)
	}
	names, take := s.named(x, work, first)
	return fmt.Sprintf("%s more, for %s: a loader is %.0f %% busy, and %s, for %d intervals", loaders(n), names, 100*most, take, s.opts.Intervals)
}

// dear is the part of a place's work that a loader beside it shares: sources with less than the rest would only be opened
// once more.
const dear = 0.9

// dearest are the sources that keep a place busiest, the first ones before others.
func dearest(at int, work []float64, table [][]int) (sources []int) {
	all := 0.0
	part := func(i int) float64 { return work[i] / float64(len(table[i])) }
	for i, of := range table {
		if slices.Contains(of, at) {
			sources, all = append(sources, i), all+part(i)
		}
	}
	slices.SortStableFunc(sources, func(a, b int) int { return cmp.Compare(part(b), part(a)) })
	n := 0
	for have := 0.0; n < len(sources) && have < dear*all; n++ {
		have += part(sources[n])
	}
	return sources[:n]
}

// without is how busy the busiest place of an extra loader's sources would be without it.
func (s *Scaler) without(x Interval, work []float64, at int) (most float64) {
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

// awaits says whether a loader that was asked for is not there yet: another one would come no sooner.
func (s *Scaler) awaits() bool {
	return slices.ContainsFunc(s.extra, func(e extra) bool { return e.place < 0 })
}

// shrink gives up loaders that have been one too many for long enough, the last ones first, as long as those that stay would
// not be busy: nothing more is read there, and when what they hold is not needed any more, they may leave.
func (s *Scaler) shrink(x Interval, work []float64) string {
	var of []int
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
		of, n = e.sources, n+1
	}
	if n == 0 {
		return ""
	}
	verb := "drain"
	if n == 1 {
		verb = "drains"
	}
	names, take := s.named(x, work, of)
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
func (s *Scaler) named(x Interval, work []float64, sources []int) (names, take string) {
	takes := 0.0
	for _, i := range sources {
		takes += work[i]
	}
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
