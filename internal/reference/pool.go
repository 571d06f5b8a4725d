package reference

import "github.com/millrace-data/millrace/balance"

// pool holds the samples for the rows of a step, in packing order:
// first held or carried ones, then those drawn.
type pool struct {
	samples   []drawn
	first     int               // samples that were not drawn in this step
	tokens    int               // of the samples, as rows count them
	waiting   int               // samples that fit no wide row; their tokens do not count
	admission balance.Admission // of samples into wide rows
	draws     []drawn           // all of this step: some are held
	flushed   int               // held samples added because nothing was left to draw
	live      []uint64          // shares of the last draw
	widths    []int32           // of the rows, if a strategy chose them
}

// include adds a sample to the pool. One that fits no wide row waits there, and does
// not count.
func (r *reader) include(d drawn) {
	r.samples = append(r.samples, d)
	n := r.job.RowLength(len(d.tokens))
	if r.job.Batch.ContextSplit > 0 && !r.admission.Admit(int32(n)) {
		r.waiting++
		return
	}
	r.tokens += n
}

// lengths returns those of the pool, as rows count them.
func (r *reader) lengths() (lengths []int32) {
	for _, d := range r.samples {
		lengths = append(lengths, int32(r.job.RowLength(len(d.tokens))))
	}
	return lengths
}
