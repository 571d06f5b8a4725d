package reference

import (
	"slices"

	"github.com/millrace-data/millrace/balance"
)

// queue returns the queue of the job's outliers for the present steps.
func (r *reader) queue() (q balance.OutlierQueue) {
	o := r.job.Batch.Outliers
	if o == nil {
		return q
	}
	for _, n := range o.Above {
		q.Thresholds = append(q.Thresholds, int32(n))
	}
	q.Release, q.Patience, q.MaxPerStep = min(o.Together, r.seats), int64(o.Wait), r.seats
	return q
}

// begin starts a step with the outliers that are released, the longest first, and
// the carried samples.
func (r *reader) begin(n int64) {
	banned := func(d drawn) bool { return r.banned[d.ban()] }
	held, carried := slices.DeleteFunc(r.held, banned), slices.DeleteFunc(r.carried, banned)
	r.pool, r.held = pool{admission: balance.Admission{Wide: r.wide()}}, nil
	var waiting []balance.Sample
	for i, d := range held {
		waiting = append(waiting, balance.Sample{ID: int64(i), Tokens: int32(len(d.tokens)), Step: d.step})
	}
	var first []drawn
	if waiting != nil {
		now, still := r.queue().Next(n, waiting, nil, nil, nil)
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
	r.first = len(r.samples)
}

// take adds a drawn sample to the pool, or to the samples that wait for others of
// similar length.
func (r *reader) take(d drawn) {
	r.account(d, 1)
	q, waiting := r.queue(), 0
	level := q.Level(int32(len(d.tokens)))
	if level > 0 {
		for _, x := range r.held {
			if q.Level(int32(len(x.tokens))) == level {
				waiting++
			}
		}
	}
	d.held = level > 0 && waiting < 2*q.Release
	r.draws = append(r.draws, d)
	if d.held {
		r.held = append(r.held, d)
	} else {
		r.include(d)
	}
}

// flush moves the sample that has waited longest into the pool, as nothing is left
// to draw.
func (r *reader) flush() bool {
	if r.flushed == len(r.held) {
		return false
	}
	r.include(r.held[r.flushed])
	r.flushed++
	return true
}
