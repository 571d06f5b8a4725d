package control

import "slices"

// dealt says which places read which source, for these numbers of both.
type dealt struct {
	places, sources int
	bySource        [][]int
	groups          []int // by place: the first source whose first place it is; -1: none
}

// placesOf returns the places of a source, rising; they share its blocks. There is a place. The slice is
// read-only.
func (c *Core) placesOf(source int32) []int {
	d := &c.members.dealt
	if d.places != len(c.members.places) || d.sources != len(c.sources.indexed) {
		*d = deal(c.members.table, c.members.exact, len(c.members.places), len(c.sources.indexed))
	}
	return d.bySource[source]
}

// groupOf numbers the sources that share a first place.
func (c *Core) groupOf(place int) int { return c.members.dealt.groups[place] }

// deal deals sources to places, as a table says. Without one they are dealt in turn, and if there are more places than
// sources, those of a source share its blocks. So are places dealt to sources that are behind those of the table, unless
// it is exact: then they have nothing to read, and sources without a place have one of those that it names.
func deal(table [][]int, exact bool, places, sources int) dealt {
	d := dealt{places: places, sources: sources, bySource: make([][]int, sources), groups: make([]int, places)}
	for i := range d.groups {
		d.groups[i] = -1
	}
	tabled := 0 // places that the table names
	for _, of := range table {
		for _, at := range of {
			tabled = max(tabled, at+1)
		}
	}
	others := forOthers(table, exact, places)
	for source := range d.bySource {
		var of []int
		if source < len(table) {
			for _, at := range table[source] {
				if at < places {
					of = append(of, at)
				}
			}
		}
		for at := tabled + source; at < places && !exact; at += sources {
			of = append(of, at)
		}
		if len(of) == 0 {
			of = []int{others[source%len(others)]}
		}
		d.bySource[source] = of
		if g := &d.groups[of[0]]; *g < 0 {
			*g = source
		}
	}
	return d
}

// forOthers are the places for sources that have none in a table: those that it names if it is exact, else all.
func forOthers(table [][]int, exact bool, places int) (all []int) {
	named := make([]bool, places)
	for _, of := range table {
		for _, at := range of {
			if at < places {
				named[at] = true
			}
		}
	}
	some := slices.Contains(named, true)
	for at := range named {
		if named[at] || !exact || !some {
			all = append(all, at)
		}
	}
	return all
}

// redeal has sources read by other places from now on. A place that reads a source for the first time begins when its loader
// has that open, which may take as long as a thousand files take, and others read it meanwhile. What was read stays where it
// is, and what is being read comes from who reads it, so that a place which is left out has less and less that is needed, and
// no block is read again for it.
func (c *Core) redeal(ev Redeal) {
	m := &c.members
	m.table, m.exact, m.wanting = c.table(), true, ev.Table
	wanted := deal(ev.Table, true, max(len(m.places), 1), len(c.sources.indexed)).bySource
	for at := range m.places {
		m.places[at].retired = !slices.ContainsFunc(wanted, func(of []int) bool { return slices.Contains(of, at) })
	}
	for source, of := range ev.Table {
		for _, at := range of {
			if !c.reads(source, at) && source < len(c.sources.indexed) && at < len(m.places) && m.places[at].loader != nil {
				c.emit(Index{To: m.places[at].loader.session, Source: source, Ahead: true})
			}
		}
	}
	c.follow()
}

// follow deals sources as far as those that are to read them can.
func (c *Core) follow() {
	m := &c.members
	table := make([][]int, len(m.wanting))
	for source, of := range m.wanting {
		for _, at := range of {
			if c.reads(source, at) {
				table[source] = append(table[source], at)
			}
		}
		if len(table[source]) == 0 {
			table[source] = of
		}
	}
	m.table, m.dealt = table, dealt{}
	if len(m.places) > 0 {
		c.rearrange()
	}
}

// reads says whether a place reads a source, or could at once.
func (c *Core) reads(source, at int) bool {
	m := &c.members
	return source < len(m.table) && slices.Contains(m.table[source], at) || at < len(m.places) && m.places[at].loader != nil && m.places[at].loader.isOpen(source)
}

// table is who reads what now.
func (c *Core) table() [][]int {
	if len(c.members.places) == 0 || len(c.sources.indexed) == 0 {
		return nil
	}
	c.placesOf(0) // brings it up to date
	return slices.Clone(c.members.dealt.bySource)
}
