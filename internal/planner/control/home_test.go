package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/planner/mesh"
)

// TestHome is the law of nodes: after constructors with and without nodes came and went at random,
// planners took over from each other and nothing changes any more for a while, each number that has
// buckets is served by a constructor of its node, if one is there. It holds in the middle of all else
// that TestLaws does.
func TestHome(t *testing.T) {
	sequences := 300
	if testing.Short() {
		sequences = 100
	}
	homes, moves, spares := 0, 0, 0
	for seed := range uint64(sequences) {
		w := newWorld(t, seed)
		words := append(w.words, "dp=3", fmt.Sprintf("node=%d", 1+seed%2), fmt.Sprintf("constructors=%d", 2+seed%2))
		w.words, w.core, w.twin.core = words, newCore(t, words), newCore(t, words)
		for range 20 + w.rng.IntN(100) {
			w.step()
			if w.rng.IntN(3) == 0 && len(w.builders) < 6 {
				w.join(&w.builders, w.builder)
			}
		}
		w.rest()
		if w.core.failed != nil {
			continue
		}
		homes += w.checkHome()
		spares += len(w.core.members.spares)
		for _, h := range w.core.members.homes {
			moves += h.times
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d numbers are at home, %d moves, %d spare ones", homes, moves, spares)
	if homes < sequences/4 || moves < sequences/8 || spares < sequences/4 {
		t.Errorf("%d numbers are at home after %d moves, with %d spare ones, in %d sequences: too few to show anything", homes, moves, spares, sequences)
	}
}

// reader is a loader that joins.
func (w *world) reader(s Session) Event {
	return LoaderJoined{Session: s, Name: "l", Address: fmt.Sprintf("host%d:1", w.rng.IntN(3)), Workers: 2, Buffer: 1000}
}

// builder is a constructor that joins, on a node or on none.
func (w *world) builder(s Session) Event {
	w.nodes[s] = []*uint32{nil, new(uint32(1)), new(uint32(2))}[s%3]
	return ConstructorJoined{Session: s, Name: fmt.Sprint("c", w.rng.IntN(4)), Address: "c", Node: w.nodes[s]}
}

// rest lets all be heard, and answers what is asked, until nothing changes any more.
func (w *world) rest() {
	for range 400 {
		for _, s := range w.here {
			if w.silent[s] {
				w.silent[s] = false
				w.apply(Heard{s})
			}
			if w.quiet[s] {
				w.quiet[s] = false
				w.apply(Quiet{s, true})
			}
		}
		for n := 0; n < 20 && len(w.orders) > 0; n++ {
			w.answerOrder()
		}
		for len(w.persists) > 0 {
			w.write()
		}
		if len(w.loaders) < w.core.cfg.Loaders {
			w.join(&w.loaders, w.reader)
		}
		w.apply(Tick{w.core.now + 10_000})
	}
}

// checkHome checks the law, and counts the numbers that are at home.
func (w *world) checkHome() (homes int) {
	c := w.core
	for number := range c.members.constructors {
		m := c.serving(number)
		if c.plan == nil || !c.dealt(number) {
			continue
		}
		for _, x := range c.members.allConstructors() {
			if c.home(x) != number {
				continue
			}
			if m == nil || c.home(m) != number {
				w.t.Errorf("number %d is served by %+v, and %+v is on its node", number, m, x)
			}
			homes++
			break
		}
	}
	return homes
}

// TestFlapping: a constructor of a node that comes and goes moves ranks ever more rarely, and one that never stays
// for two seconds moves none that another one has.
func TestFlapping(t *testing.T) {
	for _, test := range []struct{ stays, away, most int }{{1, 1, 0}, {3, 1, 2}, {20, 1, 9}} {
		p := newPlayer(t)
		for _, command := range []string{"job dp=2 constructors=2 absence=2 node=1 web", "loader l0", "constructor c9", "constructor s1 node=1", "indexed l0 web", "log", "read", "read", "join j0 0", "admit c9", "join j1 1", "admit s1"} {
			p.do(command)
		}
		moved := 0
		for began := p.core.now; p.core.now-began < 10*60_000; {
			p.do("constructor s0 node=0")
			moved += strings.Count(p.do(fmt.Sprintf("tick %d", test.stays)), "s0 <- the job, ranks [0]")
			p.do("lost s0")
			p.do(fmt.Sprintf("tick %d", test.away))
		}
		if moved > test.most || test.stays > 2 && moved == 0 {
			t.Errorf("a constructor that stays for %d s moved ranks %d times in ten minutes, want at most %d", test.stays, moved, test.most)
		}
		p.do("constructor s0 node=0")
		p.do("tick 301")
		if m := p.core.serving(0); m.name != "s0" {
			t.Errorf("%s serves node 0, and its own constructor has been there for five minutes", m.name)
		}
	}
}

// TestMisplaced: a node that has no ranks is none, until the mesh grows to it; then its constructor is at home there.
func TestMisplaced(t *testing.T) {
	p := newPlayer(t)
	for _, command := range []string{"job dp=2 constructors=2 node=1 web", "constructor s3 node=3", "constructor s9 node=4294967295", "constructor s0 node=0", "tick 1"} {
		p.do(command)
	}
	c := p.core
	if m := c.members.constructors[0]; m == nil || m.name != "s0" {
		t.Errorf("%+v serves node 0, and its own constructor is there", m)
	}
	if got := c.allMisplaced(); len(got) != 2 || got[0].Nodes != 2 || got[0].Ranks != 1 {
		t.Errorf("misplaced are %+v", got)
	}
	tree, err := c.job.tree.Change(mesh.Sizes{DP: 4})
	if err != nil {
		t.Fatal(err)
	}
	c.job.tree = tree
	p.do("tick 1")
	if got := c.allMisplaced(); len(got) != 1 || got[0].Node != 4294967295 || got[0].Nodes != 4 {
		t.Errorf("on a mesh of four nodes misplaced are %+v", got)
	}
	if m := c.members.constructors[1]; m == nil || m.name != "s3" || c.home(m) != 1 {
		t.Errorf("%+v serves node 3", m)
	}
}

// TestUneven: ranks that do not fill the nodes that they are said to be on are a mistake more often than not, and nothing
// to refuse: a mesh may grow.
func TestUneven(t *testing.T) {
	for each, want := range map[int]string{
		0: "", 1: "", 2: "", 4: "",
		3: "--ranks-per-node does not divide the ranks of the job: the last of 2 nodes is taken to have 1",
		8: "--ranks-per-node is more than the ranks of the job: all of them are taken to be on node 0",
	} {
		if got := Uneven(4, each); got != want {
			t.Errorf("of 4 ranks, %d on a node, it says %q, want %q", each, got, want)
		}
	}
}
