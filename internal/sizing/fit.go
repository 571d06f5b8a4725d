package sizing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// divide cuts rising numbers into at most k runs so that the squares of the distances to the means of
// their runs are least. It returns the bounds of the runs. Equal numbers are in one run.
func divide(x []float64, k int) (runs [][2]int) {
	n, distinct := len(x), 0
	for i := range x {
		if i == 0 || x[i] != x[i-1] {
			distinct++
		}
	}
	if k = min(k, distinct); k == 0 {
		return nil
	}
	sum, squares := make([]float64, n+1), make([]float64, n+1)
	for i, v := range x {
		v -= x[0] // the same distances, and smaller squares
		sum[i+1], squares[i+1] = sum[i]+v, squares[i]+v*v
	}
	spread := func(from, to int) float64 {
		s := sum[to] - sum[from]
		return max(squares[to]-squares[from]-s*s/float64(to-from), 0)
	}
	best, cut := make([][]float64, k+1), make([][]int, k+1) // by runs, then by how many numbers they have
	for c := range best {
		best[c], cut[c] = slices.Repeat([]float64{math.Inf(1)}, n+1), make([]int, n+1)
	}
	best[0][0] = 0
	for c := 1; c <= k; c++ {
		for to := c; to <= n; to++ {
			for from := c - 1; from < to; from++ {
				if from > 0 && x[from] == x[from-1] {
					continue
				}
				if cost := best[c-1][from] + spread(from, to); cost < best[c][to] {
					best[c][to], cut[c][to] = cost, from
				}
			}
		}
	}
	for to := n; k > 0; k-- {
		from := cut[k][to]
		runs = append(runs, [2]int{from, to})
		to = from
	}
	slices.Reverse(runs)
	return runs
}

// fit puts loaders together until there are no more than cores keep busy, and until memory suffices.
func (p *partition) fit() {
	whole := func(cores float64) int { return min(max(int(math.Ceil(cores-1e-9)), 1), p.MostLoader) }
	stay, move := p.byStatic()
	if n := whole(p.used); len(p.loaders) > n {
		p.loaders = append(p.pack(stay, max(n-len(move), 1), "they have little to do"), move...)
	}
	p.loaders = p.pack(p.loaders, whole(p.d.Cores), "no more loaders than cores")
	for len(p.loaders) > 1 && p.least() > p.d.Memory {
		p.forMemory()
	}
	if need := p.least(); need > p.d.Memory {
		p.d.note("one loader takes %s at the least, %s are there: blocks that have no room are on the local disk, or are read again", bytes(need), bytes(p.d.Memory))
	}
}

// byStatic divides the loaders: those of sources whose part of the mix stays, and others, as a loader of their own follows
// them better.
func (p *partition) byStatic() (stay, move []*actor) {
	for _, a := range p.loaders {
		if p.static(a) {
			stay = append(stay, a)
		} else {
			move = append(move, a)
		}
	}
	return stay, move
}

// pack puts loaders together until there are n, so that they have as much to do as each other at any time: the largest
// first, each where the busiest phase gets the least.
func (p *partition) pack(all []*actor, n int, why string) []*actor {
	if len(all) <= n {
		return all
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b *actor) int { return cmp.Compare(slices.Max(b.load), slices.Max(a.load)) })
	packed := all[:n:n]
	for _, a := range all[n:] {
		best, least := 0, math.Inf(1)
		for k, b := range packed {
			if most := peak(a, b); most < least {
				best, least = k, most
			}
		}
		p.merge(packed[best], a, why)
	}
	return packed
}

// peak is what two loaders have to do together in the phase that has most.
func peak(a, b *actor) (most float64) {
	for phase := range a.load {
		most = max(most, a.load[phase]+b.load[phase])
	}
	return most
}

// forMemory puts two loaders together: such of one source first, as each of them has its files open, and else those that
// have the least to do.
func (p *partition) forMemory() {
	slices.SortStableFunc(p.loaders, func(a, b *actor) int {
		return cmp.Or(cmp.Compare(a.cores, b.cores), slices.Compare(a.sources, b.sources))
	})
	a, b := p.twins()
	p.merge(p.loaders[a], p.loaders[b], "memory")
	p.loaders = slices.Delete(p.loaders, b, b+1)
}

// static says whether the parts of all sources of a loader stay as they are.
func (p *partition) static(a *actor) bool {
	return !slices.ContainsFunc(a.sources, func(i int) bool { return !p.Sources[i].Static })
}

// twins are two loaders of the source with the largest state that has several; else the first two.
func (p *partition) twins() (first, second int) {
	second, most := 1, int64(-1)
	for a := range p.loaders {
		for b := a + 1; b < len(p.loaders); b++ {
			if x := p.loaders[a]; slices.Equal(x.sources, p.loaders[b].sources) && p.state(x) > most {
				first, second, most = a, b, p.state(x)
			}
		}
	}
	return first, second
}

func (p *partition) merge(a, b *actor, why string) {
	same := slices.Equal(a.sources, b.sources)
	for _, i := range b.sources {
		if at, found := slices.BinarySearch(a.sources, i); !found {
			a.sources = slices.Insert(a.sources, at, i)
		}
	}
	a.cores += b.cores
	for phase := range a.load {
		a.load[phase] += b.load[phase]
	}
	p.say(a, map[bool]string{true: "; fewer loaders: ", false: "; with other sources: "}[same]+why)
}

// say adds a reason to the sources of a loader, once.
func (p *partition) say(a *actor, why string) {
	for _, i := range a.sources {
		if r := &p.d.Rows[i]; !strings.HasSuffix(r.Why, why) {
			r.Why += why
		}
	}
}

// room is how many workers a loader has room for: half of its samples are of blocks that are read, as many as there are workers,
// and half of those that steps are drawn from. Blocks count by the work of their sources.
func (p *partition) room(a *actor) int {
	block, work := 0.0, 0.0
	for _, i := range a.sources {
		s := &p.Sources[i]
		block, work = block+s.Work*float64(s.Block), work+s.Work
	}
	if block == 0 {
		return math.MaxInt
	}
	return max(int(float64(a.buffer/2)*work/block), 1)
}

// state is what a loader has open whatever its workers do.
func (p *partition) state(a *actor) (n int64) {
	for _, i := range a.sources {
		n += p.Sources[i].State
	}
	return n
}

// workersOf is how many workers a loader has: as many as its sources keep busy, at least one.
func (p *partition) workersOf(a *actor) int {
	most := 0
	for _, i := range a.sources {
		most += p.mostWorkers(&p.Sources[i])
	}
	return min(max(int(math.Ceil(a.cores*p.stretch-1e-9)), 1), most, p.perLoader())
}

// fixed is what a loader takes beside samples.
func (p *partition) fixed(a *actor) int64 {
	reader := int64(0)
	for _, i := range a.sources {
		reader = max(reader, p.Sources[i].Reader)
	}
	return p.LoaderMemory + p.state(a) + int64(p.workersOf(a))*reader
}

// least is the memory below which loaders cannot go.
func (p *partition) least() (n int64) {
	for _, a := range p.loaders {
		n += p.fixed(a) + min(leastBuffer, p.Buffer)
	}
	return n
}

// finish divides the memory, and numbers the loaders by their first sources.
func (p *partition) finish() {
	slices.SortStableFunc(p.loaders, func(a, b *actor) int { return slices.Compare(a.sources, b.sources) })
	rest, wants := p.d.Memory, 0.0
	for _, a := range p.loaders {
		rest -= p.fixed(a)
		wants += p.wants(a)
	}
	floor := min(leastBuffer, p.Buffer)
	over := float64(max(rest-int64(len(p.loaders))*floor, 0))
	for _, a := range p.loaders {
		a.buffer = min(floor+int64(over*p.wants(a)/wants), p.Buffer)
		if a.workers = p.workersOf(a); p.room(a) < a.workers {
			a.workers = p.room(a)
			p.say(a, fmt.Sprintf("; workers of its loader: %d, as half of %s has no room for the blocks of more", a.workers, bytes(a.buffer)))
		}
	}
	for n, a := range p.loaders {
		l := Loader{Workers: a.workers, Buffer: a.buffer}
		blocks := int64(0)
		for _, i := range a.sources {
			l.Sources = append(l.Sources, p.Sources[i].Name)
			p.d.Rows[i].Loaders = append(p.d.Rows[i].Loaders, n)
			blocks += max(p.Sources[i].Block, 1)
		}
		for _, i := range a.sources {
			s := &p.Sources[i]
			p.d.Rows[i].Memory += s.State + int64(a.workers)*s.Reader + int64(float64(a.buffer)*float64(max(s.Block, 1))/float64(blocks))
		}
		p.d.Taken += p.fixed(a) + a.buffer
		p.d.Loaders = append(p.d.Loaders, l)
	}
	if short := int64(len(p.loaders))*p.Buffer > rest; short {
		p.d.note("memory is short of %s of samples for each loader: the larger the blocks of its sources, the more a loader has", bytes(p.Buffer))
	}
}

// wants is the memory that a loader has use for: some blocks of each of its sources.
func (p *partition) wants(a *actor) (n float64) {
	for _, i := range a.sources {
		n += float64(max(p.Sources[i].Block, 1<<20))
	}
	return n
}

// bytes is a number of bytes for a person.
func bytes(n int64) string {
	switch {
	case n < 0:
		return "-" + bytes(-n)
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
