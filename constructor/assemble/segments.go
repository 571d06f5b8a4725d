package assemble

import (
	"math"

	"github.com/millrace-data/millrace/internal/batch"
)

// Documents of a line are numbered from 1; padding has 0. A target has the number
// of its document too, so the last position of each, which has none, has 0.
var (
	segmentIDs       = numbered(0)
	targetSegmentIDs = numbered(1)
)

// numbered numbers the documents of each line, but for their last positions. Where
// those are left out, targets that are placeholders of images have no number either.
func numbered(last int) values {
	short := func(p *part) bool { return p.layout.SequenceLength <= math.MaxUint16 }
	return values{
		func(p *part) batch.DType {
			if short(p) {
				return batch.Uint16
			}
			return batch.Int32
		},
		func(dst []byte, p *part) {
			if short(p) {
				number(batch.Elements[uint16](dst), p, last)
			} else {
				number(batch.Elements[int32](dst), p, last)
			}
		},
	}
}

func number[T uint16 | int32](dst []T, p *part, last int) {
	clear(dst)
	for i := range p.lines {
		for _, sp := range p.spans(i) {
			start := 0
			for k, doc := range p.lines[i].docs {
				from, to := max(sp.from, start), min(sp.to, start+len(doc)-last)
				if from < to {
					repeat(dst[from-sp.from:to-sp.from], T(k+1))
				}
				if last > 0 && p.lines[i].images != nil {
					for _, run := range p.lines[i].images[k] {
						run = taught(run, nextTarget)
						if from, to := max(sp.from, start+max(run.from, 0)), min(sp.to, start+run.to); from < to {
							clear(dst[from-sp.from : to-sp.from])
						}
					}
				}
				start += len(doc)
			}
			dst = dst[sp.len():]
		}
	}
}
