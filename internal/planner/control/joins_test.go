package control

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/millrace-data/millrace/internal/planner/compile"
	"github.com/millrace-data/millrace/jobspec"
)

// crowd is a job of many ranks, whose constructors answer at once.
type crowd struct {
	core    *Core
	dp      int
	entered int                // messages that told constructors of joins
	heard   map[Session]uint64 // the last join that a constructor heard of
	joined  map[uint64]uint64  // by question: the join that was granted
	early   int                // answers that came before a constructor heard of the join
	asked   uint64
	last    uint64 // join before which all ranks trained
	trained uint64 // generation in which they did
}

func newCrowd(t testing.TB, dp, constructors int) *crowd {
	spec := fmt.Sprintf("name: crowd\nsources: [{name: web, files: web/*.jsonl}]\nbatch: {sequence_length: 8, sequences: %d}\ntopology: {dp: %d, tp: 4, pp: 4}\n", dp, dp)
	job, findings := jobspec.Parse("crowd.yaml", []byte(spec), "/data")
	cfg, err := compile.Plan(job, compile.Registry{})
	if findings.Err() != nil || err != nil {
		t.Fatal(findings.Err(), err)
	}
	c := &crowd{dp: dp, heard: map[Session]uint64{}, joined: map[uint64]uint64{}}
	c.core = New(Config{Job: job, Plan: cfg, Loaders: 1, Constructors: constructors, AllowRoots: job.Roots(), Window: 30_000})
	c.take(LoaderJoined{Session: 1, Name: "l", Address: "l"})
	for n := range constructors {
		c.take(ConstructorJoined{Session: Session(2 + n), Name: fmt.Sprint(n), Address: fmt.Sprint(n)})
	}
	c.take(Indexed{Session: 1, Blocks: 1, Manifest: make([]byte, 32)})
	c.take(LogOpened{})
	return c
}

func (c *crowd) take(ev Event) {
	for _, e := range c.core.Apply(ev) {
		switch e := e.(type) {
		case Admit:
			c.take(Admitted{Session: e.To, Join: e.Join})
		case Restart:
			c.take(Restarted{Session: e.To, Generation: e.Generation})
		case Entered:
			c.entered++
			c.heard[e.To] = e.Join
		case Answer:
			r, granted := e.Reply.(JoinReply)
			if !granted {
				continue
			}
			c.joined[e.ID] = r.Join
			for _, heard := range c.heard {
				if heard < r.Join {
					c.early++
				}
			}
		}
	}
}

// joinAll has all ranks join, some hundred between two ticks.
func (c *crowd) joinAll() {
	for n := range 16 * c.dp {
		c.asked++
		c.take(Ask{c.asked, Join{Rank: Rank{DP: uint32(n / 16), PP: uint32(n / 4 % 4), TP: uint32(n % 4)}}})
		if n%512 == 511 {
			c.take(Tick{c.core.now + 50})
		}
	}
	c.take(Tick{c.core.now + 50})
}

// TestJoinsOfManyRanks: what joins cost in messages does not grow with the ranks times the
// constructors, and no rank hears that it joined before all constructors have.
func TestJoinsOfManyRanks(t *testing.T) {
	for _, constructors := range []int{1, 2, 16} {
		c := newCrowd(t, 64, constructors)
		c.joinAll()
		if len(c.joined) != 1024 || c.early > 0 {
			t.Errorf("%d constructors: %d of 1024 ranks joined, %d answers came before a constructor heard of the join", constructors, len(c.joined), c.early)
		}
		if most := 4 * (enteredPerTick + constructors); c.entered > most {
			t.Errorf("%d constructors got %d messages of joins, want at most %d", constructors, c.entered, most)
		}
	}
	c := newCrowd(t, 4, 2)
	c.take(Ask{1, Join{}})
	if c.joined[1] == 0 {
		t.Error("a rank that joins alone waits for a tick")
	}
}

// TestJoinsTakeLittleMemory: a rank that joins costs some kilobytes. With a core of steps made for each, 1024 of them took 8 GB, and a
// second of the planner.
func TestJoinsTakeLittleMemory(t *testing.T) {
	c := newCrowd(t, 64, 2)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.joinAll()
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / 1024; len(c.joined) != 1024 || each > 32<<10 {
		t.Errorf("%d ranks joined, want 1024; each took %d bytes, want at most 32 KiB", len(c.joined), each)
	}
}

// BenchmarkJoins has all ranks of a job join, and counts the messages to constructors that
// this takes.
func BenchmarkJoins(b *testing.B) {
	for _, dp := range []int{64, 256} {
		for _, constructors := range []int{2, 64} {
			b.Run(fmt.Sprintf("ranks=%d/constructors=%d", 16*dp, constructors), func(b *testing.B) {
				entered := 0
				for b.Loop() {
					c := newCrowd(b, dp, constructors)
					c.joinAll()
					entered = c.entered
				}
				b.ReportMetric(float64(entered), "messages")
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*16*dp), "µs/join")
			})
		}
	}
}

// restart has all ranks join again after the job went on, each as `as` says, and counts the questions
// that are tried for it, and the orders to constructors.
func (c *crowd) restart(as func(*Join)) (tries, orders int) {
	counted := map[uint64]bool{}
	var take func(ev Event)
	take = func(ev Event) {
		for _, e := range c.core.Apply(ev) {
			if _, ok := addressee(e); ok {
				orders++
			}
			switch e := e.(type) {
			case Admit:
				take(Admitted{Session: e.To, Join: e.Join, Generation: c.trained, Acked: 1, Advanced: c.last})
			case Restart:
				take(Restarted{Session: e.To, Generation: e.Generation})
			case Answer:
				if r, granted := e.Reply.(JoinReply); granted {
					c.joined[e.ID] = r.Join
				}
			}
		}
		for _, a := range c.core.asks.waiting {
			if !counted[a.id] {
				counted[a.id] = true
				try := a.try
				a.try = func(a *asked) (Reply, bool, error) { tries++; return try(a) }
			}
		}
	}
	for n := range 16 * c.dp {
		c.asked++
		q := Join{Rank: Rank{DP: uint32(n / 16), PP: uint32(n / 4 % 4), TP: uint32(n % 4)}}
		as(&q)
		take(Ask{c.asked, q})
		if n%512 == 511 {
			take(Tick{c.core.now + 50})
		}
	}
	take(Tick{c.core.now + 50})
	return tries, orders
}

// TestRestartOfManyRanks: what it takes for all ranks of a job to begin again grows with their number,
// not with its square: in orders to constructors, and in questions that are tried again when others come.
func TestRestartOfManyRanks(t *testing.T) {
	for name, as := range map[string]func(*Join){
		"without a token":   func(*Join) {},
		"at the beginning":  func(q *Join) { q.Beginning = true },
		"one after another": func(q *Join) { q.Beginning = q.Rank == Rank{} },
	} {
		for _, dp := range []int{16, 64} {
			c := newCrowd(t, dp, 16)
			c.joinAll()
			c.last, c.trained = c.core.roster.joins, c.core.job.generation
			clear(c.joined)
			tries, orders := c.restart(as)
			if len(c.joined) != 16*dp {
				t.Errorf("%s: %d of %d ranks joined", name, len(c.joined), 16*dp)
			}
			if tries > 16*16*dp || orders > 4*16*dp {
				t.Errorf("%s, %d ranks: %d questions were tried again, and %d orders were sent", name, 16*dp, tries, orders)
			}
			t.Logf("%s, %d ranks: %d questions tried again, %d orders", name, 16*dp, tries, orders)
		}
	}
}
