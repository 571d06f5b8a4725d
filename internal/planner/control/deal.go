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
// it is exact.
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
			of = []int{source % places}
		}
		d.bySource[source] = of
		if g := &d.groups[of[0]]; *g < 0 {
			*g = source
		}
	}
	return d
}

// redeal has sources read by other places from now on. What was read stays where it is, and what is being read comes from
// who reads it, so that a place which is left out has less and less that is needed, and no block is read again for it.
func (c *Core) redeal(ev Redeal) {
	m := &c.members
	m.table, m.exact, m.dealt = ev.Table, true, dealt{}
	table := c.table()
	for at := range m.places {
		m.places[at].retired = !slices.ContainsFunc(table, func(of []int) bool { return slices.Contains(of, at) })
	}
	if len(m.places) > 0 {
		c.rearrange()
	}
}

// table is who reads what now.
func (c *Core) table() [][]int {
	if len(c.members.places) == 0 || len(c.sources.indexed) == 0 {
		return nil
	}
	c.placesOf(0) // brings it up to date
	return slices.Clone(c.members.dealt.bySource)
}
