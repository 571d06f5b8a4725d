package control

import (
	"maps"
	"strconv"
	"strings"
	"testing"
)

// readers says which loader has each block, or was asked to read it.
func (w *world) readers() map[block]*loader {
	of := maps.Clone(w.core.members.wanted)
	for i, s := range w.core.data.sources {
		for seq, x := range s.blocks {
			of[block{int32(i), seq}] = x.by
		}
	}
	return of
}

// checkPlaces checks these laws, while the job has not failed:
//
//   - a loader has a place, or it is a shadow; no place is closed while a shadow could take it;
//   - while any place is open, no block is left to a loader that is lost or in doubt;
//   - when a loader comes or goes, no block moves from one that stays;
//   - a hot shadow is asked for all that the loaders of its places have.
func (w *world) checkPlaces(ev Event, before map[block]*loader) {
	c, m := w.core, &w.core.members
	if c.failed != nil {
		return
	}
	anyOpen := m.any() != nil && m.reads(m.any())
	for i, p := range m.places {
		if p.loader != nil && p.loader.place != i {
			w.t.Errorf("after %T, the loader of place %d says %d", ev, i, p.loader.place)
		}
		if s := c.successor(i); s != nil && !m.open[i] && !p.retired && (p.used || c.plan != nil) {
			w.t.Errorf("after %T, place %d is closed, and shadow %v could take it", ev, i, s)
		}
		if p.shadow != nil && (p.shadow.place != noPlace || !p.shadow.sound() || m.loader(p.shadow.session) == nil) {
			w.t.Errorf("after %T, %v stands by for place %d and cannot", ev, p.shadow, i)
		}
	}
	for b, l := range w.readers() {
		if anyOpen && !m.reads(l) {
			w.t.Errorf("after %T, block %v is left to %v", ev, b, l)
		}
		switch ev.(type) {
		case LoaderJoined, LoaderLeft, Silent, Heard, Tick:
			if was := before[b]; m.reads(was) && was != l {
				w.t.Errorf("%T: block %v moved from %v to %v", ev, b, was, l)
			}
		}
		if x := c.data.sources[b.source].blocks[b.seq]; c.cfg.Hot && m.reads(x.by) && x.copy != m.places[x.by.place].shadow {
			w.t.Errorf("after %T, block %v is not read by the shadow of place %d", ev, b, x.by.place)
		}
	}
}

// TestShadowsElsewhere: a shadow stands by for loaders of other hosts as long as there are
// any, each for about as many as the others.
func TestShadowsElsewhere(t *testing.T) {
	p := newPlayer(t)
	p.do("job loaders=6 shadows=3 web")
	for _, l := range []string{"l0 a", "l1 a", "l2 b", "l3 b", "l4 c", "l5 c", "l6 a", "l7 b", "l8 c"} {
		p.do("loader " + l)
	}
	m := &p.core.members
	count := map[*loader]int{}
	for i, x := range m.places {
		count[x.shadow]++
		if beside(x.shadow, x.loader) {
			t.Errorf("place %d: %v stands by for %v", i, x.shadow, x.loader)
		}
	}
	for s, n := range count {
		if s == nil || n > 3 {
			t.Errorf("%v stands by for %d places", s, n)
		}
	}
	if len(m.shadows()) != 3 || m.besides {
		t.Errorf("%d shadows; beside: %v", len(m.shadows()), m.besides)
	}
	p.do("lost l7")
	p.do("lost l8")
	for i, want := range []bool{false, false, true, true, true, true} { // l6 is all there is
		if x := m.places[i]; (x.shadow != nil) != want {
			t.Errorf("place %d: %v stands by for %v", i, x.shadow, x.loader)
		}
	}
	p.do("lost l0")
	if m.places[0].loader.name != "l6" {
		t.Errorf("%v has place 0, and a shadow was there", m.places[0].loader)
	}
}

// TestSeatAgain: loaders that come back to another planner have their places again, in whichever
// order they come, and shadows stand by. If one does not come, a shadow has its place when the
// job starts.
func TestSeatAgain(t *testing.T) {
	for _, test := range []struct{ come, want string }{
		{"l3 l2=3 l0=1 l1=2", "l0 l1 l2"},
		{"l2=3 l3 l4 l1=2 l0=1", "l0 l1 l2 l3"},
		{"l0=9 l1=2 l2=2", "l0 l1 l2"},
		{"l2=3 l3 l4 l1=2", "l3 l1 l2"},
	} {
		p := newPlayer(t)
		p.do("job loaders=3 shadows=1 web")
		for _, word := range strings.Fields(test.come) {
			name, had, _ := strings.Cut(word, "=")
			n, _ := strconv.Atoi(had)
			for _, e := range p.core.Apply(LoaderJoined{Session: Session(p.number(name)), Name: name, Address: name, Had: n}) {
				if s, ok := e.(Seat); ok && p.core.members.loader(s.To).name == name && p.core.members.loader(s.To).place != s.Place {
					t.Errorf("%s: %s has place %d, and hears %d", test.come, name, p.core.members.loader(s.To).place, s.Place)
				}
			}
		}
		var got []string
		for _, x := range p.core.members.places {
			got = append(got, x.loader.name)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v have the places, want %s", test.come, got, test.want)
		}
	}
}

// TestOneHost: where all loaders are on one host, so are shadows, and this is said.
func TestOneHost(t *testing.T) {
	p := newPlayer(t)
	p.do("job loaders=1 shadows=1 web")
	p.do("loader l0 a")
	p.do("loader l1 a")
	if m := &p.core.members; m.places[0].shadow == nil || !m.besides {
		t.Errorf("%v stands by; said: %v", m.places[0].shadow, m.besides)
	}
}
