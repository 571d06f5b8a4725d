package reference

import (
	"slices"

	"github.com/millrace-data/millrace/balance"
)

// queueNow is the queue of the job's outliers in steps as they are now.
func (r *reader) queueNow() (q balance.OutlierQueue) {
	o := r.job.Batch.Outliers
	if o == nil {
		return q
	}
	for _, n := range o.Above {
		q.Thresholds = append(q.Thresholds, int32(n))
	}
	q.Release, q.Patience, q.Most = min(o.Together, r.seats), int64(o.Wait), r.seats
	return q
}

// begin has a step begin with the samples that waited for others and are
// released, the longest first, and with those that were carried.
func (r *reader) begin(n int64) {
	banned := func(d drawn) bool { return r.banned[d.ban()] }
	held, carried := slices.DeleteFunc(r.held, banned), slices.DeleteFunc(r.carried, banned)
	r.pool, r.draws, r.flushed, r.held = nil, nil, nil, nil
	r.queue, r.admission, r.tokens, r.waiting = r.queueNow(), balance.Admission{Wide: r.wide()}, 0, 0
	var waiting []balance.Sample
	for i, d := range held {
		waiting = append(waiting, balance.Sample{ID: int64(i), Tokens: int32(len(d.tokens)), Step: d.step})
	}
	var first []drawn
	if waiting != nil {
		now, still := r.queue.Next(n, waiting, nil, nil, nil)
		for _, s := range now {
			first = append(first, held[s.ID])
		}
		for _, s := range still {
			r.held = append(r.held, held[s.ID])
		}
	}
	slices.SortStableFunc(first, func(a, b drawn) int { return len(b.tokens) - len(a.tokens) })
	for _, d := range append(first, carried...) {
		r.include(d)
	}
}

// take draws a sample: into the pool, or to wait for others of its length.
func (r *reader) take(d drawn) {
	r.account(d, 1)
	level, waiting := r.queue.Level(int32(len(d.tokens))), 0
	if level > 0 {
		for _, x := range r.held {
			if r.queue.Level(int32(len(x.tokens))) == level {
				waiting++
			}
		}
	}
	d.waits = level > 0 && waiting < 2*r.queue.Release
	r.draws = append(r.draws, d)
	if d.waits {
		r.held = append(r.held, d)
	} else {
		r.include(d)
	}
}

// include puts a sample into the pool.
func (r *reader) include(d drawn) {
	r.pool = append(r.pool, d)
	n := r.job.RowLength(len(d.tokens))
	if r.job.Batch.ContextSplit > 0 && !r.admission.Admit(int32(n)) {
		r.waiting++
		return
	}
	r.tokens += n
}

// flush puts the sample that has waited longest into the pool: there is nothing
// left to draw.
func (r *reader) flush() bool {
	if len(r.flushed) == len(r.held) {
		return false
	}
	next := r.held[len(r.flushed)]
	r.flushed = append(r.flushed, next)
	r.include(next)
	return true
}

// giveBack takes the last sample out of the pool: back to those that wait, or to
// its source, with all that were drawn after it.
func (r *reader) giveBack() {
	r.pool = r.pool[:len(r.pool)-1]
	if n := len(r.flushed); n > 0 {
		r.flushed = r.flushed[:n-1]
		return
	}
	for waits := true; waits; {
		last := r.draws[len(r.draws)-1]
		r.draws = r.draws[:len(r.draws)-1]
		r.account(last, -1)
		r.sources[last.source].giveBack()
		if waits = last.waits; waits {
			r.held = r.held[:len(r.held)-1]
		}
	}
}
