package control

import (
	"slices"

	"github.com/millrace-data/millrace/internal/placement"
)

// Places are the shares of the reading: plans refer to them, and they stay while loaders
// come and go. A loader has a place, or it is a shadow and stands by for some. Any loader
// can answer for any block, so places decide speed only.

// place is one share of the reading.
type place struct {
	loader *loader // that reads its blocks; nil: it is lost, and nobody took its place
	shadow *loader // that stands by for it; nil: nobody does
	used   bool    // a loader had it

	retired bool // no source is read there any more: nobody takes it in place of one that is lost
}

// noPlace is the place of a shadow, and of a loader that left.
const noPlace = placement.None

// seat gives a loader that came a place: the one that it had, one that is free, one of the
// first, or one more if there are shadows enough. Else it is a shadow.
func (c *Core) seat(l *loader, had int) {
	m := &c.members
	l.place = noPlace
	if at := had - 1; at >= 0 && at < max(c.cfg.Loaders, len(m.places)) && c.seatAgain(l, at) {
		return
	}
	free := slices.IndexFunc(m.places, func(p place) bool { return p.loader == nil && !p.retired })
	if free < 0 {
		free = slices.IndexFunc(m.places, func(p place) bool { return p.loader == nil })
	}
	if free < 0 && (len(m.places) < c.cfg.Loaders || m.shadowsBut(l) >= c.cfg.Shadows) {
		free = len(m.places)
		m.places = append(m.places, place{})
	}
	if free < 0 {
		c.note(Info, "loader stands by", "loader", l.name)
		c.emit(Seat{l.session, noPlace})
		c.ready(l)
		return
	}
	c.sit(l, free)
}

// seatAgain gives a loader the place that it had, where it has blocks and open sources. As long
// as nothing was read, one that had no place there makes room.
func (c *Core) seatAgain(l *loader, at int) bool {
	m := &c.members
	for len(m.places) <= at {
		m.places = append(m.places, place{})
	}
	other := m.places[at].loader
	if other != nil && (other.kept || c.plan != nil) {
		return false
	}
	l.kept = true
	c.sit(l, at)
	if other != nil {
		c.seat(other, 0)
	}
	return true
}

// sit gives a loader a place.
func (c *Core) sit(l *loader, at int) {
	p := &c.members.places[at]
	p.loader, p.used, l.place = l, true, at
	c.emit(Seat{l.session, at})
}

// unseat takes a loader that left out of its place.
func (m *members) unseat(l *loader) {
	if l.place != noPlace {
		m.places[l.place].loader, l.place = nil, noPlace
	}
	for i := range m.places {
		if m.places[i].shadow == l {
			m.places[i].shadow = nil
		}
	}
}

// shadows are the loaders without a place, in the order in which they came.
func (m *members) shadows() []*loader {
	return slices.DeleteFunc(slices.Clone(m.loaders), func(l *loader) bool { return l.place != noPlace })
}

// shadowsBut is the number of shadows beside one loader.
func (m *members) shadowsBut(l *loader) (n int) {
	for _, s := range m.shadows() {
		if s != l {
			n++
		}
	}
	return n
}

// primaries is the number of loaders that have a place.
func (m *members) primaries() (n int) {
	for _, l := range m.loaders {
		if l.place != noPlace {
			n++
		}
	}
	return n
}

// ready has a shadow open all sources, so that its first block costs no more than any other.
func (c *Core) ready(l *loader) {
	for i, x := range c.sources.indexed {
		if x != nil {
			c.emit(Index{To: l.session, Source: i, Ahead: true})
		}
	}
}

// sourceOpened takes note of a source that a shadow has open.
func (c *Core) sourceOpened(ev SourceOpened) {
	l := c.members.loader(ev.Session)
	if l == nil || ev.Source >= len(c.sources.indexed) {
		return
	}
	for len(l.opened) <= ev.Source {
		l.opened = append(l.opened, false)
	}
	l.opened[ev.Source] = true
	if m := &c.members; l.place >= 0 && ev.Source < len(m.wanting) && slices.Contains(m.wanting[ev.Source], l.place) && !slices.Contains(m.table[ev.Source], l.place) {
		c.follow()
	}
}

// isOpen says whether a loader said that it has a source open.
func (l *loader) isOpen(source int) bool { return source < len(l.opened) && l.opened[source] }

// warm says whether a shadow has all sources of a place open.
func (c *Core) warm(s *loader, place int) bool {
	for source, x := range c.sources.indexed {
		if x != nil && slices.Contains(c.placesOf(int32(source)), place) && !s.isOpen(source) {
			return false
		}
	}
	return true
}

// rearrange fills places again after a loader came or went, or the doubts about one changed,
// and has done what follows: constructors learn where loaders are, and blocks that are lost
// are read again where constructors will ask for them.
func (c *Core) rearrange() {
	m := &c.members
	c.promote()
	c.standBy()
	m.open = m.open[:0]
	for _, p := range m.places {
		m.open = append(m.open, p.loader != nil && p.loader.sound())
	}
	if len(m.loaders) == 0 {
		return // constructors wait, with their deadlines, until one comes back
	}
	c.placementChanged()
	c.wantOrphans()
	c.readAgain()
}

// promote has shadows take the places whose loader is lost or in doubt.
func (c *Core) promote() {
	m := &c.members
	for i := range m.places {
		p := &m.places[i]
		if p.loader != nil && p.loader.sound() || !p.used && c.plan == nil || p.retired {
			continue
		}
		s := c.successor(i)
		if s == nil {
			continue
		}
		before := p.loader
		m.unseat(s)
		c.sit(s, i)
		m.promotions++
		c.note(Info, "a shadow takes a loader's place", "loader", s.name, "place", i)
		if before != nil {
			before.place = noPlace
			c.emit(Seat{before.session, noPlace})
			c.ready(before)
		}
	}
}

// successor is the shadow that takes a place: rather one that has its sources open, and of those
// the one that stands by for it. One that is in doubt itself takes a place only if nobody has it.
func (c *Core) successor(place int) (best *loader) {
	p, most := &c.members.places[place], -1
	shadows := c.members.shadows()
	for _, s := range shadows {
		n := 0
		if c.warm(s, place) {
			n += 2
		}
		if s == p.shadow {
			n++
		}
		if s.sound() && n > most {
			best, most = s, n
		}
	}
	if best == nil && len(shadows) > 0 && p.loader == nil {
		return shadows[0]
	}
	return best
}

// standBy gives each place a shadow on another host, those that have none first: the one that
// stands by for the fewest. Only if all loaders are on one host it may be beside them.
func (c *Core) standBy() {
	m := &c.members
	able := slices.DeleteFunc(m.shadows(), func(l *loader) bool { return !l.sound() })
	count, near := map[*loader]int{}, m.oneHost()
	for i := range m.places {
		p := &m.places[i]
		if s := p.shadow; s != nil && (!s.sound() || s.place != noPlace || beside(s, p.loader) && !near) {
			p.shadow = nil
		}
		count[p.shadow]++
	}
	if len(able) > 0 && near {
		c.noteBeside(able[0])
	}
	for i := range m.places {
		if p := &m.places[i]; p.shadow == nil {
			if p.shadow = choose(able, count, p.loader, near); p.shadow != nil {
				count[p.shadow]++
			}
		}
	}
	for i := range m.places { // one that just came takes over from those that have many
		p := &m.places[i]
		if s := choose(able, count, p.loader, near); s != nil && count[s]+1 < count[p.shadow] {
			count[p.shadow]--
			count[s]++
			p.shadow = s
		}
	}
}

// choose picks the shadow with the fewest places for a place's loader; nil if there is none.
func choose(able []*loader, count map[*loader]int, of *loader, near bool) (best *loader) {
	for _, s := range able {
		if (near || !beside(s, of)) && (best == nil || count[s] < count[best]) {
			best = s
		}
	}
	return best
}

// oneHost says whether all loaders run on one host.
func (m *members) oneHost() bool {
	return !slices.ContainsFunc(m.loaders, func(l *loader) bool { return !beside(l, m.loaders[0]) })
}

// beside says whether a loader runs on the host of another one.
func beside(a, b *loader) bool {
	return b != nil && placement.Host(a.address) == placement.Host(b.address)
}

// noteBeside says once that a host has loaders and their shadows.
func (c *Core) noteBeside(s *loader) {
	if m := &c.members; !m.besides {
		m.besides = true
		c.note(Info, "all loaders run on one host, shadows too: its loss takes them all", "host", placement.Host(s.address))
	}
}
