package control

import (
	"fmt"
	"slices"
)

// Loaders that answer beats may still be of no use: a disk that gives a byte a second, a
// machine that swaps. So while ranks wait for steps that wait for blocks, a loader that has
// finished none of its blocks for far longer than blocks take is suspect.

const (
	// leastStall is how long a loader may take for a block at least, and firstStall for one
	// of a source none of whose blocks was read before.
	leastStall Millis = 3000
	firstStall Millis = 15_000
	// stallTimes is how many times as long as usual a block may take.
	stallTimes = 6
	// paceKept is how many of the last readings the usual time is the median of.
	paceKept = 9
)

// pace is how long loaders take for blocks, as far as that can be seen every lookEvery.
type pace struct {
	due        Millis // when to look next
	generation uint64 // of the blocks
	asked      map[block]reading
	dealt      map[block]bool     // that were taken from a slow loader: how long they take may be their own doing
	took       map[int32][]Millis // the last readings of each source
	last       []Millis           // and of all
	waits      Millis             // ranks have waited for blocks since then
	starved    bool
}

// reading is a block that a loader was asked for.
type reading struct {
	by    *loader
	since Millis
}

// look notes what was read since it looked last, and who is slow.
func (c *Core) look() {
	p := &c.pace
	if c.now < p.due || c.plan == nil {
		return
	}
	p.due = c.now + lookEvery
	if p.generation != c.job.generation { // other blocks are wanted now
		p.asked, p.dealt, p.generation = nil, nil, c.job.generation
	}
	p.follow(c.members.wanted, c.now)
	starved := len(c.members.wanted) > 0 && c.job.positioned && c.job.ended < 0 && c.plan.Planned()-c.plan.Acked() <= c.cfg.Plan.Ahead/2
	if starved && !p.starved {
		p.waits = c.now
	}
	if p.starved = starved; starved && c.now-p.waits >= leastStall/2 {
		c.doubtSlow()
	}
}

// follow brings asked to what is wanted.
func (p *pace) follow(wanted map[block]*loader, now Millis) {
	if p.asked == nil {
		p.asked, p.dealt = map[block]reading{}, map[block]bool{}
	}
	var read []block
	for b := range p.asked {
		if _, open := wanted[b]; !open {
			read = append(read, b)
		}
	}
	slices.SortFunc(read, compareBlocks)
	for _, b := range read {
		r := p.asked[b]
		r.by.finished = now
		if r.by.sound() {
			p.note(b.source, now-r.since)
		}
		delete(p.asked, b)
		delete(p.dealt, b)
	}
	for b, l := range wanted {
		if l != nil && p.asked[b].by != l {
			p.asked[b] = reading{l, now}
		}
	}
}

// note keeps how long a block took.
func (p *pace) note(source int32, took Millis) {
	if p.took == nil {
		p.took = map[int32][]Millis{}
	}
	keep := func(of []Millis) []Millis { return append(of[max(len(of)-paceKept+1, 0):], took) }
	p.took[source], p.last = keep(p.took[source]), keep(p.last)
}

// allowed is how long a loader may take for a block; ok is false while nobody can tell.
func (p *pace) allowed(source int32) (d Millis, ok bool) {
	if of := p.took[source]; len(of) > 0 {
		return max(leastStall, stallTimes*median(of)), true
	}
	if len(p.last) < paceKept/2 {
		return 0, false
	}
	return max(firstStall, stallTimes*median(p.last)), true
}

func median(of []Millis) Millis {
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// doubtSlow makes the loader suspect that has gone longest without finishing a block, if
// that is too long. More than half of the loaders are never slow: then the data is.
func (c *Core) doubtSlow() {
	if 2*(c.members.suspects()+1) > len(c.members.loaders) {
		return
	}
	var slow *loader
	var of block
	var longest Millis
	for b, r := range c.pace.asked {
		stall := c.now - max(r.since, r.by.finished)
		allowed, ok := c.pace.allowed(b.source)
		if !ok || stall <= allowed || !r.by.sound() || c.pace.dealt[b] {
			continue
		}
		if slow == nil || stall > longest || stall == longest && compareBlocks(b, of) < 0 {
			slow, of, longest = r.by, b, stall
		}
	}
	if slow == nil {
		return
	}
	for b, r := range c.pace.asked {
		if r.by == slow {
			c.pace.dealt[b] = true
		}
	}
	c.doubtLoader(slow, fmt.Sprintf("ranks wait, and it has read no block for %v: block %d of source %q was asked of it, and others take %v",
		longest, of.seq, c.sources.specs[of.source].Name, c.pace.usual(of.source)))
}

// usual is how long blocks of a source take, or any blocks.
func (p *pace) usual(source int32) Millis {
	if of := p.took[source]; len(of) > 0 {
		return median(of)
	}
	return median(p.last)
}
