package reference

import "github.com/millrace-data/millrace/balance"

// pool are the samples for the rows of a step, in the order in which they are packed:
// first those that were held or carried, then those that were drawn.
type pool struct {
	samples   []drawn
	first     int               // so many of them were not drawn in this step
	tokens    int               // of the samples, as rows count them
	waiting   int               // samples that wide rows have no room for; their tokens do not count
	admission balance.Admission // of samples into wide rows
	draws     []drawn           // all of this step: some are held
	flushed   int               // held samples that are here as there was nothing to draw
	live      []uint64          // shares of the last draw
}

// include puts a sample into the pool. One that wide rows have no room for waits
// there, and does not count.
func (r *reader) include(d drawn) {
	r.samples = append(r.samples, d)
	n := r.job.RowLength(len(d.tokens))
	if r.job.Batch.ContextSplit > 0 && !r.admission.Admit(int32(n)) {
		r.waiting++
		return
	}
	r.tokens += n
}

// lengths are those of the pool, as rows count them.
func (r *reader) lengths() (lengths []int32) {
	for _, d := range r.samples {
		lengths = append(lengths, int32(r.job.RowLength(len(d.tokens))))
	}
	return lengths
}
