package assemble

import (
	"math"

	"github.com/millrace-data/millrace/internal/batch"
)

// derived says how values that follow from where documents lie are written: as
// runs. doc adds those of positions at of document k of a line, pad those of n
// positions of padding, of which the first is number from.
type derived struct {
	doc func(out *runs, line *sequence, k int, at span)
	pad func(out *runs, from, n int)
}

// runs writes the values of the spans of each line of p.
func (d derived) runs(p *part) []batch.Run {
	most := 0 // or a few more
	for i := range p.lines {
		most += 2 * (len(p.lines[i].docs) + 1)
	}
	out := make(runs, 0, most)
	for i := range p.lines {
		line := &p.lines[i]
		for _, sp := range p.spans(i) {
			for k, in := range line.within(sp) {
				d.doc(&out, line, k, in)
			}
			from := max(sp.from, line.used)
			d.pad(&out, from-line.used, sp.to-from)
		}
	}
	return out
}

// copies writes what fill does as copies of the ids of p.
func (w tokenwise) copies(p *part) []batch.Run {
	most := 0 // or a few more
	for i := range p.lines {
		most += 2 * (len(p.lines[i].docs) + 1)
	}
	out, at := make(runs, 0, most), 0
	for i := range p.lines {
		line := &p.lines[i]
		for _, sp := range p.spans(i) {
			for k, in := range line.within(sp) {
				next := in.from
				for _, run := range line.untaughtOf(k) {
					run = taught(run, w.targets)
					if from, to := max(run.from, next), min(run.to, in.to); from < to {
						w.copied(&out, line.docs[k], span{next, from}, in, at)
						out.add(to-from, int(w.ignored), 0)
						next = to
					}
				}
				w.copied(&out, line.docs[k], span{next, in.to}, in, at)
				at += in.len()
			}
			n := sp.to - max(sp.from, line.used)
			out.add(n, int(w.ignored), 0)
			at += max(n, 0)
		}
	}
	return out
}

// copied adds the targets of some positions of a document. The ids of in are those that the rank has, from
// place at of its tensor on.
func (w tokenwise) copied(out *runs, doc []int32, some, in span, at int) {
	if w.targets == ownTarget {
		if some.from == 0 && some.to > 0 {
			out.add(1, int(w.ignored), 0)
			some.from = 1
		}
		out.add(some.len(), at+some.from-in.from, batch.Copied)
		return
	}
	out.add(min(some.to, in.to-1)-some.from, at+some.from+1-in.from, batch.Copied)
	switch {
	case some.to < in.to || some.len() == 0:
	case in.to < len(doc): // the next one is another rank's
		out.add(1, int(doc[in.to]), 0)
	default:
		out.add(1, int(w.ignored), 0)
	}
}

func asRuns(d derived) values { return values{wire: batch.AsRuns, runs: d.runs} }

// Padding is at position 0 for most formats and a document of its own for HF.
// Documents of a line are numbered from 1; padding has 0. A target has the number
// of its document too, so the last position of each, which has none, has 0.
var (
	positionsZeroPad = asRuns(derived{docPositions, padZero})
	positionsRampPad = asRuns(derived{docPositions, func(out *runs, from, n int) { out.add(n, from, 1) }})
	lossMask         = asRuns(derived{func(out *runs, line *sequence, k int, at span) { out.targets(line, k, at, 1) }, padZero})
	segmentIDs       = asRuns(derived{func(out *runs, _ *sequence, k int, at span) { out.add(at.len(), k+1, 0) }, padZero})
	targetSegmentIDs = asRuns(derived{func(out *runs, line *sequence, k int, at span) { out.targets(line, k, at, k+1) }, padZero})
)

func docPositions(out *runs, _ *sequence, _ int, at span) { out.add(at.len(), at.from, 1) }

func padZero(out *runs, _, n int) { out.add(n, 0, 0) }

// runs are those of a tensor so far.
type runs []batch.Run

// add appends n elements, which may continue the run before them.
func (r *runs) add(n, first, step int) {
	if n <= 0 {
		return
	}
	if len(*r) > 0 {
		last := &(*r)[len(*r)-1]
		after := int(last.First) + int(last.Length)*min(int(last.Step), 1)
		if int(last.Step) == step && after == first && int(last.Length)+n <= math.MaxInt32 {
			last.Length += int32(n)
			return
		}
	}
	*r = append(*r, batch.Run{Length: int32(n), First: int32(first), Step: int32(step)})
}

// targets adds value where document k of a line has a next token to predict, which a
// placeholder of an image and a token without loss are not, and 0 elsewhere.
func (r *runs) targets(line *sequence, k int, at span, value int) {
	next, last := at.from, min(at.to, len(line.docs[k])-1)
	if line.untaught != nil {
		for _, run := range line.untaught[k] {
			run = taught(run, nextTarget)
			from, to := max(run.from, next), min(run.to, last)
			if from < to {
				r.add(from-next, value, 0)
				r.add(to-from, 0, 0)
				next = to
			}
		}
	}
	r.add(last-next, value, 0)
	r.add(at.to-max(last, next), 0, 0)
}
