package plan

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/batch"
)

// digests collects the row digests of steps and chains them in order.
type digests struct {
	rows   map[int64]int      // rows of the steps that are planned and not chained
	head   int64              // steps chained so far
	chain  map[int64][32]byte // chain values from the acked position to head
	open   map[int64][][32]byte
	filled map[int64]map[uint32]bool
	early  map[int64][]Assembled // of steps that are not planned yet
}

// newDigests begins the chain at a position, with those of the positions that follow it as
// far as they are known.
func newDigests(step int64, digest [32]byte, known [][32]byte) digests {
	d := digests{
		rows:   map[int64]int{},
		head:   step,
		chain:  map[int64][32]byte{step: digest},
		open:   map[int64][][32]byte{},
		filled: map[int64]map[uint32]bool{},
		early:  map[int64][]Assembled{},
	}
	for _, digest := range known {
		d.head++
		d.chain[d.head] = digest
	}
	return d
}

// expect says how many rows a step has.
func (d *digests) expect(step int64, rows int) {
	if step >= d.head {
		d.rows[step] = rows
	}
}

// add notes the digests of some rows. A row that was reported before must have the
// same digest: another one means that a batch was not a function of its step.
func (d *digests) add(ev Assembled) error {
	if ev.Step < d.head {
		return nil // chained already; a constructor told it twice
	}
	rows := d.open[ev.Step]
	if rows == nil {
		rows = make([][32]byte, d.rows[ev.Step])
		d.open[ev.Step], d.filled[ev.Step] = rows, map[uint32]bool{}
	}
	for i, r := range ev.Rows {
		if int(r) >= len(rows) {
			return fmt.Errorf("step %d: row %d was assembled, but there are %d", ev.Step, r, len(rows))
		}
		if d.filled[ev.Step][r] && rows[r] != ev.Digests[i] {
			return fmt.Errorf("step %d, row %d was assembled twice with different bytes", ev.Step, r)
		}
		rows[r] = ev.Digests[i]
		d.filled[ev.Step][r] = true
	}
	return nil
}

// next chains one more step if all its rows are there.
func (d *digests) next() (step int64, digest [32]byte, ok bool) {
	if rows, planned := d.rows[d.head]; !planned || len(d.filled[d.head]) < rows {
		return 0, digest, false
	}
	digest = batch.Chain(d.chain[d.head], batch.StepDigest(d.head, d.open[d.head]))
	delete(d.open, d.head)
	delete(d.filled, d.head)
	delete(d.rows, d.head)
	d.head++
	d.chain[d.head] = digest
	return d.head, digest, true
}

func (d *digests) at(step int64) ([32]byte, bool) {
	digest, ok := d.chain[step]
	return digest, ok
}

func (d *digests) missing() (step int64, rows int) {
	return d.head, d.rows[d.head] - len(d.filled[d.head])
}

// forget drops the chain values before step.
func (d *digests) forget(step int64) {
	for k := range d.chain {
		if k < step && k < d.head {
			delete(d.chain, k)
		}
	}
}

// expect says how many rows a step has, and takes what was reported of them before.
func (c *Core) expect(step *Step) {
	c.digests.expect(step.Step, len(step.Rows))
	early := c.digests.early[step.Step]
	delete(c.digests.early, step.Step)
	for _, ev := range early {
		c.assembled(ev)
	}
}

// isEarly says whether rows are of a step that is planned once more: a constructor that had
// them in the life of another core may be faster than this one.
func (c *Core) isEarly(step int64) bool {
	return step >= max(c.state.Step, c.digests.head) && step < max(c.until, c.acked+2*c.cfg.Ahead)
}

func (c *Core) assembled(ev Assembled) {
	if c.isEarly(ev.Step) {
		c.digests.early[ev.Step] = append(c.digests.early[ev.Step], ev)
		return
	}
	if err := c.digests.add(ev); err != nil {
		c.fail(err)
		return
	}
	for {
		step, d, ok := c.digests.next()
		if !ok {
			return
		}
		c.emit(Digested{step, d})
	}
}
