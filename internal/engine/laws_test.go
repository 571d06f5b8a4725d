package engine

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace-data/millrace/internal/engine/schedule"
	"github.com/millrace-data/millrace/internal/fault"
)

var (
	firstSeed = flag.Uint64("seed", 0, "first seed of the laws")
	seeds     = flag.Uint64("seeds", 60, "how many seeds the laws are tested with")
)

// rows is the partition of these tests: numbers, each of which has a size.
type rows []uint64

func (r rows) Bytes() (n int64) {
	for _, x := range r {
		n += sizeOf(x)
	}
	return n
}

func (r rows) Digest() (d uint64) {
	for _, x := range r {
		d = mix(d ^ x)
	}
	return d
}

func mix(x uint64) uint64 {
	x ^= x >> 31
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

// sizeOf is 10 to 73 bytes, and for one row of 64 ten times that.
func sizeOf(x uint64) int64 {
	n := int64(10 + mix(x)%64)
	if mix(x+1)%64 == 0 {
		n *= 10
	}
	return n
}

// law is a random pipeline with its data, from a seed.
type law struct {
	stages  int
	drop    []uint64 // of 16 rows, those that a stage leaves out
	double  []uint64 // and those that it gives twice
	keeps   []bool
	merge   []bool
	gathers int // stage that gathers, 0: none
	gather  int // source tasks
	target  int64
	runs    int
	sources int
	rows    int
}

func randomLaw(r *rand.Rand) law {
	l := law{stages: 1 + r.IntN(4), target: int64(100 + r.IntN(2000)), runs: 1 + r.IntN(4), sources: 1 + r.IntN(6), rows: r.IntN(300)}
	for range l.stages {
		l.drop, l.double = append(l.drop, r.Uint64N(16)), append(l.double, r.Uint64N(6))
		l.keeps, l.merge = append(l.keeps, r.IntN(2) == 0), append(l.merge, r.IntN(2) == 0)
	}
	if l.stages > 1 && r.IntN(3) == 0 {
		l.gathers, l.gather = 1+r.IntN(l.stages-1), []int{2, 3, All}[r.IntN(3)]
	}
	return l
}

// apply is what stage k makes of a row.
func (l *law) apply(k int, x uint64) rows {
	switch h := mix(x+uint64(k)) % 16; {
	case h < l.drop[k]:
		return nil
	case h < l.drop[k]+l.double[k]:
		return rows{mix(x), mix(x + 1)}
	default:
		return rows{mix(x)}
	}
}

func (l *law) source(run, source int) (out rows) {
	for i := range l.rows * (1 + source%3) {
		out = append(out, mix(uint64(run)<<40|uint64(source)<<20|uint64(i)))
	}
	return out
}

// through is what stages make of rows, one row after the other.
func (l *law) through(first, end int, all rows) rows {
	for k := first; k < end; k++ {
		var next rows
		for _, x := range all {
			next = append(next, l.apply(k, x)...)
		}
		all = next
	}
	return all
}

// groups are the rows of a run that are worked on together by the stage that gathers, or by none.
func (l *law) groups(run int) (groups []rows) {
	end := l.stages
	if l.gathers > 0 {
		end = l.gathers
	}
	for s := range l.sources {
		if l.gathers == 0 || s == 0 || l.gather > 0 && s%l.gather == 0 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], l.through(1, end, l.source(run, s))...)
	}
	return groups
}

// want is what a run gives.
func (l *law) want(run int) (out rows) {
	for _, group := range l.groups(run) {
		if l.gathers > 0 {
			group = l.through(l.gathers, l.stages, l.gathered(group))
		}
		out = append(out, group...)
	}
	return out
}

// gathered is what a task does that needs all rows at once.
func (l *law) gathered(all rows) rows {
	all = slices.Clone(all)
	slices.Sort(all)
	return all
}

// need is how much of the limit the stage that gathers takes at the least.
func (l *law) need() (need int64) {
	if l.gathers == 0 {
		return 0
	}
	for run := range l.runs {
		for _, group := range l.groups(run) {
			need = max(need, group.Bytes())
		}
	}
	return need + 10*(l.target+730)
}

// setting is how a law is executed: nothing of it may change what comes out.
type setting struct {
	law     *law
	slots   int
	limit   int64
	lose    float64 // of tasks
	kills   bool    // workers join and leave
	stores  bool    // and take with them what they made
	shelf   *shelf  // nil: nothing is written to a disk
	mu      sync.Mutex
	rng     *rand.Rand
	lost    int
	deaths  map[uint64]int // of tasks, by their first row
	credits int64
}

func (s *setting) below(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rng.IntN(n)
}

// spared says whether a task has died as often as one may: a run of 250 had one that died nine times in a row, which ends
// the job.
func (s *setting) spared(first uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaths == nil {
		s.deaths = map[uint64]int{}
	}
	s.deaths[first]++
	return s.deaths[first] > mostLosses
}

// work gives what f makes of some rows, in partitions of the target.
func (s *setting) work(ctx context.Context, in rows, out *Output, f func(uint64) rows) error {
	dies := -1
	if s.lose > 0 && float64(s.below(1000)) < 1000*s.lose {
		dies = s.below(len(in) + 1)
	}
	if dies >= 0 && dies < len(in) && s.spared(in[0]) {
		dies = -1
	}
	var open rows
	size := int64(0)
	for i, x := range in {
		if i == dies {
			s.mu.Lock()
			s.lost++
			s.mu.Unlock()
			return fault.Lostf("worker died at row %d", i)
		}
		if i%16 == 0 {
			select {
			case <-time.After(time.Duration(s.below(1000)) * time.Microsecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for _, y := range f(x) {
			if n := sizeOf(y); size+n > out.Target() && size > 0 {
				if err := out.Emit(open); err != nil {
					return err
				}
				open, size = nil, 0
			}
			size += sizeOf(y)
			if err := out.Reserve(size); err != nil {
				return err
			}
			open = append(open, y)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return out.Emit(open)
}

func (s *setting) pipeline(t *testing.T, e *Executor) *Pipeline {
	cpu := map[string]schedule.Amount{"cpu": schedule.Slot}
	stages := []Stage{{Name: "read", Needs: cpu, Partition: s.law.target}}
	for k := 1; k < s.law.stages; k++ {
		st := Stage{Name: fmt.Sprint("stage", k), Needs: cpu, Partition: s.law.target, Ratio: 1500, Keeps: s.law.keeps[k]}
		if k%2 == 0 {
			st.Needs = map[string]schedule.Amount{"gpu": schedule.Slot / 2}
		}
		if s.law.merge[k] {
			st.Merge = s.law.target
		}
		if k == s.law.gathers {
			st.Gather, st.Merge = s.law.gather, 0
		}
		st.Process = func(ctx context.Context, in []Partition, out *Output) error {
			var all rows
			for _, p := range in {
				all = append(all, p.(rows)...)
			}
			if k == s.law.gathers {
				all = s.law.gathered(all)
			}
			if !st.Keeps {
				if err := out.Release(); err != nil {
					return err
				}
			}
			return s.work(ctx, all, out, func(x uint64) rows { return s.law.apply(k, x) })
		}
		stages = append(stages, st)
	}
	p, err := e.Pipeline(stages)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run executes the law and returns the partitions of each run.
func (s *setting) run(t *testing.T) (out [][]rows, peak int64) {
	o := Options{Limit: s.limit, Slots: map[string]schedule.Amount{"cpu": schedule.Amount(s.slots) * schedule.Slot, "gpu": schedule.Slot}}
	if s.shelf != nil {
		o.Spill = s.shelf
	}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	if s.kills {
		wg.Go(func() { s.killWorkers(ctx, e) })
	}
	var runs sync.WaitGroup
	out = make([][]rows, s.law.runs)
	pipelines := []*Pipeline{s.pipeline(t, e), s.pipeline(t, e)}
	s.credits = pipelines[0].credits
	for i := range out {
		p := pipelines[i%2]
		runs.Go(func() {
			var w Work
			for k := range s.law.sources {
				in := s.law.source(i, k)
				w.Sources = append(w.Sources, Source{Expect: in.Bytes(), Read: func(ctx context.Context, out *Output) error {
					return s.work(ctx, in, out, func(x uint64) rows { return rows{x} })
				}})
			}
			w.Seq = int64(i)
			err := p.Run(ctx, w, func(source int, part Partition) error {
				out[i] = append(out[i], part.(rows))
				time.Sleep(time.Duration(s.below(500)) * time.Microsecond)
				p.Turn(int64(s.below(5)), int64(s.below(3)))
				return nil
			})
			if err != nil {
				t.Errorf("run %d: %v", i, err)
			}
		})
	}
	runs.Wait()
	peak = e.Usage().Peak
	if u := e.Usage(); u.Stored != 0 || u.Promised != 0 || u.Tasks != 0 || u.Spilled != 0 {
		synctest.Wait()
		if u := e.Usage(); u.Stored != 0 || u.Promised != 0 || u.Tasks != 0 || u.Spilled != 0 {
			t.Errorf("all runs have ended, and the ledger has %+v", u)
		}
	}
	end()
	wg.Wait()
	if s.shelf != nil {
		if err := s.shelf.ended(); err != nil {
			t.Error(err)
		}
	}
	return out, peak
}

func (s *setting) killWorkers(ctx context.Context, e *Executor) {
	for i := 0; ctx.Err() == nil; i++ {
		w := &Worker{Name: fmt.Sprint("w", i), Slots: map[string]schedule.Amount{"cpu": 2 * schedule.Slot, "gpu": schedule.Slot}, Stores: s.stores}
		_ = e.Join(ctx, w)
		time.Sleep(time.Duration(20000+s.below(200000)) * time.Microsecond)
		_ = e.Leave(ctx, w)
		time.Sleep(time.Duration(s.below(5000)) * time.Microsecond)
	}
}

// TestLaws executes random pipelines under random settings: each run ends, each row comes once and in
// order, partitions are the same under every setting, the ledger is not over its limit, and no goroutine is left.
func TestLaws(t *testing.T) {
	lost, over, gathers, disks, n := 0, 0, 0, shelf{}, *seeds
	if testing.Short() {
		n = min(n, 20)
	}
	for seed := *firstSeed; seed < *firstSeed+n; seed++ {
		r := rand.New(rand.NewPCG(seed, 11))
		l := randomLaw(r)
		gathers += min(l.gathers, 1)
		var first [][]rows
		for k := range 3 {
			s := &setting{law: &l, slots: 1 + r.IntN(6), limit: l.need() + 40*l.target + r.Int64N(200*l.target), rng: r}
			if k > 0 {
				s.lose, s.kills, s.stores = []float64{0, 0.05, 0.2}[r.IntN(3)], r.IntN(2) == 0, r.IntN(2) == 0
				if r.IntN(2) == 0 {
					s.limit = l.need() + l.target/2 + r.Int64N(20*l.target)
					if l.gathers > 0 { // for each task that is lost behind it a whole group may be made again, one at a time: minutes at 0.2
						s.lose = min(s.lose, 0.05)
					}
				}
				if r.IntN(2) == 0 {
					s.shelf = newShelf(rand.New(rand.NewPCG(seed, uint64(k))), l.target)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				got, peak := s.run(t)
				lost += s.lost
				if s.shelf != nil {
					disks.writes, disks.reads, disks.bad = disks.writes+s.shelf.writes, disks.reads+s.shelf.reads, disks.bad+s.shelf.bad
				}
				check(t, seed, s, got, peak, &over)
				if first == nil {
					first = got
				} else if !equalParts(first, got) {
					t.Errorf("seed %d, setting %d: other partitions than under the first setting", seed, k)
				}
			})
			if t.Failed() {
				t.Fatalf("seed %d, setting %d: %d slots, limit %d, target %d, %d stages, %d gathers %d, lose %g, kills %t, stores %t, a disk %t", seed, k, s.slots, s.limit, l.target, l.stages, l.gathers, l.gather, s.lose, s.kills, s.stores, s.shelf != nil)
			}
		}
	}
	t.Logf("%d tasks lost, %d runs with a record that was larger than what the limit left", lost, over)
	t.Logf("%d partitions written to a disk, %d read back, %d of them lost there", disks.writes, disks.reads, disks.bad)
	if !testing.Short() && (disks.writes == 0 || disks.reads == 0 || disks.bad == 0) { // what comes back depends on which goroutine is first
		t.Error("nothing came back from a disk, or all of it as it was written")
	}
	if gathers < int(n)/10 {
		t.Errorf("in %d of %d pipelines a stage gathers", gathers, n)
	}
	if lost == 0 {
		t.Error("no task was lost: the laws are not tested where they matter")
	}
}

func check(t *testing.T, seed uint64, s *setting, got [][]rows, peak int64, over *int) {
	if peak > s.limit {
		*over++
	}
	if peak > max(s.limit, 2*(s.credits+730*int64(s.law.stages))) {
		t.Errorf("seed %d: the ledger held %d of %d, credits %d, target %d, %d stages", seed, peak, s.limit, s.credits, s.law.target, s.law.stages)
	}
	for i, parts := range got {
		if want := s.law.want(i); !slices.Equal(slices.Concat(parts...), want) {
			t.Errorf("seed %d, run %d: %d rows, want %d, or others", seed, i, len(slices.Concat(parts...)), len(want))
		}
	}
}

func equalParts(a, b [][]rows) bool {
	return slices.EqualFunc(a, b, func(x, y []rows) bool {
		return slices.EqualFunc(x, y, func(x, y rows) bool { return slices.Equal(x, y) })
	})
}
