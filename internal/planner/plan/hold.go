package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace-data/millrace/balance"
)

// Held is a sample of outlying length that waits for others.
type Held struct {
	Ref
	Since int64 // step in which it was drawn
}

// outliers are the samples of a draft that wait, or have waited, for others of
// their length. A sample is counted by the mix when it is drawn. It comes into the
// pool of a later step, before all draws of that step, so that what is drawn fills
// the room that is left: the draws of one step decide what the next one begins
// with.
type outliers struct {
	queue    balance.OutlierQueue
	outlying int32  // tokens from which a sample is of a level
	waited   []Held // that are in the pool, its first samples
	held     []Held // that wait: from earlier steps, then from this one
	marks    []int  // of those from this one, the samples in the pool before each
	level    []int  // samples that wait, by level
	flushed  int    // of held, the first, that came into the pool as there was nothing to draw
}

// outliers is the queue of a job in steps of a shape. No step has more rows than
// samples that are released, so that each finds room.
func (c *Core) outliers(s Shape) outliers {
	q := c.cfg.Outliers
	if len(q.Thresholds) == 0 {
		return outliers{outlying: math.MaxInt32}
	}
	q.Release, q.MaxPerStep = min(q.Release, s.Rows), s.Rows
	return outliers{queue: q, outlying: q.Thresholds[0], level: make([]int, len(q.Thresholds)+1)}
}

// release puts the samples whose wait is over into the pool, the longest first.
func (d *draft) release(held []Held) {
	if len(held) == 0 {
		return
	}
	waiting := make([]balance.Sample, len(held))
	for i, h := range held {
		waiting[i] = balance.Sample{ID: int64(i), Tokens: h.Length, Step: h.Since}
	}
	now, still := d.queue.Next(d.c.state.Step, waiting, nil, nil, nil)
	for _, s := range now {
		d.waited = append(d.waited, held[s.ID])
	}
	slices.SortStableFunc(d.waited, func(a, b Held) int { return cmp.Compare(b.Length, a.Length) })
	for _, h := range d.waited {
		d.add(h.Ref)
	}
	for _, s := range still {
		d.held = append(d.held, held[s.ID])
		d.level[d.queue.Level(s.Tokens)]++
	}
}

// hold has a sample that is drawn wait, unless enough of its level do: twice as
// many as are released together. That bounds what a position holds, and a stream
// with that many outliers has several in each step anyway.
func (d *draft) hold(r Ref) bool {
	level := d.queue.Level(r.Length)
	if d.level[level] >= 2*d.queue.Release {
		return false
	}
	d.level[level]++
	d.held = append(d.held, Held{r, d.c.state.Step})
	d.marks = append(d.marks, d.pool.Len())
	return true
}

// unhold takes the last draw back if it is one that waits.
func (d *draft) unhold() (Ref, bool) {
	m := len(d.marks) - 1
	if m < 0 || d.marks[m] < d.pool.Len() {
		return Ref{}, false
	}
	last := d.held[len(d.held)-1].Ref
	d.held, d.marks = d.held[:len(d.held)-1], d.marks[:m]
	d.level[d.queue.Level(last.Length)]--
	return last, true
}

// flush puts the oldest sample that waits into the pool, when there is nothing
// left to draw.
func (d *draft) flush() bool {
	if !d.stopped || d.flushed == len(d.held) {
		return false
	}
	d.add(d.held[d.flushed].Ref)
	d.flushed++
	return true
}

// stillHeld are the samples that wait on after the step.
func (d *draft) stillHeld() []Held {
	if d.flushed == len(d.held) {
		return nil
	}
	return d.held[d.flushed:]
}

// draws is the number of samples drawn so far.
func (d *draft) draws() int { return d.pool.Len() - d.pool.Carried - d.flushed + len(d.marks) }
