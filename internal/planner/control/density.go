package control

import (
	"slices"

	"github.com/millrace-data/millrace/jobspec"
)

// density finds bad records that lie close together. It depends on what is in the blocks, and
// not on the order in which they are read. The zero value is ready.
type density struct {
	blocks  map[int64]run // that were read, by number
	records int64         // in them
	bad     int64
}

// run is a number of records in a row.
type run struct{ records, bad int64 }

// densityWindows is how many windows of records are remembered: loaders may read ahead by
// more than one.
const densityWindows = 4

// add takes in a block. It returns a run of records, no longer than the policy's window, in
// which more are bad than the policy allows; the zero run if there is none.
func (d *density) add(ev *BlockRead, policy jobspec.BadRecords) run {
	if policy.Policy != "skip" {
		return run{}
	}
	if d.blocks == nil {
		d.blocks = map[int64]run{}
	}
	bad := int64(len(ev.Skips))
	d.put(ev.Block.Seq, run{max(int64(ev.Records), bad), bad})
	window, limit := int64(policy.Window), int64(policy.InWindow())
	if d.bad > limit {
		if found := d.densest(ev.Block.Seq, window, limit); found.bad > 0 {
			return found
		}
	}
	d.forget(densityWindows * window)
	return run{}
}

func (d *density) put(seq int64, r run) {
	before := d.blocks[seq]
	d.records += r.records - before.records
	d.bad += r.bad - before.bad
	d.blocks[seq] = r
}

// densest looks at the runs of whole blocks that a block is part of and that fit into a
// window. A block that is larger than the window is a run, too, of which as large a part may
// be bad.
func (d *density) densest(seq, window, limit int64) run {
	for last := seq; ; last++ {
		var sum, behind run // of the run that ends with last, and of its part behind seq
		for at := last; ; at-- {
			b, known := d.blocks[at]
			if !known || sum.records > 0 && sum.records+b.records > window {
				break
			}
			sum = run{sum.records + b.records, sum.bad + b.bad}
			if at > seq {
				behind = sum
			}
			if at <= seq && sum.bad*window > limit*max(sum.records, window) {
				return sum
			}
		}
		if _, known := d.blocks[last+1]; !known || behind.records > window {
			return run{}
		}
	}
}

// forget forgets the first blocks, as long as there are more records than that.
func (d *density) forget(most int64) {
	if d.records <= most {
		return
	}
	var all []int64
	for seq := range d.blocks {
		all = append(all, seq)
	}
	slices.Sort(all)
	for _, seq := range all[:len(all)-1] {
		if d.records <= most/2 {
			return
		}
		d.put(seq, run{})
		delete(d.blocks, seq)
	}
}
