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
}

func newDigests(step int64, digest [32]byte) digests {
	return digests{
		rows:   map[int64]int{},
		head:   step,
		chain:  map[int64][32]byte{step: digest},
		open:   map[int64][][32]byte{},
		filled: map[int64]map[uint32]bool{},
	}
}

// expect says how many rows a step has.
func (d *digests) expect(step int64, rows int) { d.rows[step] = rows }

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

func (c *Core) assembled(ev Assembled) {
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
