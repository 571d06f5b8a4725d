package plan

import (
	"errors"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/mix"
	"github.com/millrace-data/millrace/planner/dgraph"
	"github.com/millrace-data/millrace/planner/strategy"
)

// Prepare draws, packs and places the next step before it may be planned, as far as its
// samples are known, and returns the blocks to ask for. It is for a time when there is
// nothing else to do, and changes no plan: what it draws and where that goes is what would
// come of it later, and is dropped if a change or a move comes first. If it finds an end or
// an error, it says nothing: that is found again in its turn. Without need it takes no time.
func (c *Core) Prepare() []Effect {
	return c.drain(func() {
		pending := c.state.Pending
		changes := c.step.skip > 0 || len(pending) > 0 && pending[0].Step <= c.state.Step
		if c.prepared || changes || c.ended >= 0 || c.state.Step-c.acked < c.cfg.Ahead {
			return
		}
		c.prepared = true
		if c.pending == nil {
			c.pending = c.newDraft()
		}
		if d := c.pending; d != nil {
			var err error
			if d.placed, err = c.run(d); err != nil && !errors.Is(err, strategy.ErrBlocked) {
				c.pending = nil
			}
		}
		if c.failed != nil {
			c.pending, c.failed = nil, nil
			c.effects = slices.DeleteFunc(c.effects, func(e Effect) bool { _, failed := e.(Fail); return failed })
		}
	})
}

// drawAll draws and packs the step's samples for a strategy, once.
func (d *draft) drawAll(shares []uint64) (*dgraph.Buffer, []int32, error) {
	if d.rowOf != nil {
		return d.pool, d.rowOf, nil
	}
	d.blocked = false
	if shares != nil && d.byHand == nil {
		all, err := strategy.Shares(shares).Of(len(d.cursors))
		if err != nil {
			return nil, nil, err
		}
		if d.byHand = mix.FromShares(all); d.byHand == nil { // it would be the job's own mix
			return nil, nil, fault.Userf("strategy: mix: all %d shares are 0", len(shares))
		}
		d.setShares(0)
	}
	d.fill()
	switch {
	case d.c.failed != nil:
		return nil, nil, d.c.failed
	case d.blocked:
		return nil, nil, strategy.ErrBlocked
	case d.pool.Len() == 0:
		return nil, nil, errEnd
	}
	bins := d.pack()
	if d.c.failed != nil {
		return nil, nil, d.c.failed
	}
	d.addImages()
	d.rowOf = slices.Clone(bins)
	return d.pool, d.rowOf, nil
}
