package control

import "slices"

// Constructors hear of each join that is granted, and before the rank does: they keep beside each
// acknowledgement which joins there were when it came. One message to each constructor for each
// join is a square of them when all ranks of a large job join at once. So what is granted beyond
// some messages waits for the next tick: one message to each tells of the last join, and the
// answers follow.

// enteredPerTick are the messages of joins that are sent at once between two ticks. A few ranks
// that come back wait for none.
const enteredPerTick = 64

// unheard are the joins that constructors have not heard of.
type unheard struct {
	sent    int      // messages since the last tick
	join    uint64   // the last join that was granted
	waits   bool     // for the next tick
	answers []Answer // to joins, until constructors have heard of them
}

// enterJoin tells constructors of a join that is granted, now or at the next tick.
func (c *Core) enterJoin(join uint64) {
	e := &c.unheard
	e.join = max(e.join, join)
	e.waits = e.waits || e.sent >= enteredPerTick
	if !e.waits {
		c.sendEntered()
	}
}

func (c *Core) sendEntered() {
	e := &c.unheard
	c.sendAll(func(m *constructor) Effect {
		e.sent++
		return Entered{m.session, e.join}
	})
}

// answerJoin answers a join that is granted.
func (c *Core) answerJoin(a Answer) {
	if c.unheard.waits {
		c.unheard.answers = append(c.unheard.answers, a)
		return
	}
	c.send(a)
}

// flushEntered tells constructors of the joins that waited for the tick, and answers these.
func (c *Core) flushEntered() {
	e := &c.unheard
	e.sent = 0
	if !e.waits {
		return
	}
	e.waits = false
	c.sendEntered()
	for _, a := range e.answers {
		c.send(a)
	}
	e.answers = nil
}

// withdraw forgets an answer that waits.
func (e *unheard) withdraw(id uint64) {
	e.answers = slices.DeleteFunc(e.answers, func(a Answer) bool { return a.ID == id })
}
