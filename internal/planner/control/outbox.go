package control

import "slices"

// outbox orders effects. What others get of the job waits in it until what was given to
// the log before is durable; orders to loaders do not: to read too much harms no one.
type outbox struct {
	now       []Effect // of this event
	bans      int      // that this event made
	held      []held   // by rising seq
	persists  uint64   // given to the log so far
	barrier   uint64   // the last of them that has to be durable before anything is sent
	persisted uint64   // durable so far
	since     Millis   // when the log began with the first of what is not; read only if there is something
}

// held is an effect that waits.
type held struct {
	after uint64 // until this Persist is durable
	Effect
}

// emit has something done at once.
func (c *Core) emit(e Effect) { c.out.now = append(c.out.now, e) }

// send has something done when all that was given to the log so far is durable.
func (c *Core) send(e Effect) {
	if c.out.barrier > c.out.persisted {
		c.out.held = append(c.out.held, held{c.out.barrier, e})
		return
	}
	c.emit(e)
}

// sendAll sends every constructor an order.
func (c *Core) sendAll(order func(m *constructor) Effect) {
	for _, m := range c.members.present() {
		c.send(order(m))
	}
}

// persist gives the log something to do, if there is one.
func (c *Core) persist(ops ...Op) {
	if !c.log.kept || len(ops) == 0 {
		return
	}
	if c.out.persists == c.out.persisted {
		c.out.since = c.now
	}
	c.out.persists++
	for _, op := range ops {
		switch op.(type) {
		case SetDigest, Trim: // nobody waits for them
		default:
			c.out.barrier = c.out.persists
		}
		c.log.note(op)
	}
	c.emit(Persist{c.out.persists, ops})
}

// persisted sends what waited for the log.
func (c *Core) persisted(ev Persisted) {
	if ev.Err != nil {
		c.fail(ev.Err)
		return
	}
	c.out.persisted, c.out.since = max(c.out.persisted, ev.Seq), c.now
	n := 0
	for ; n < len(c.out.held) && c.out.held[n].after <= c.out.persisted; n++ {
		c.emit(c.out.held[n].Effect)
	}
	c.out.held = slices.Delete(c.out.held, 0, n)
}

// Unwritten is for how long the log has been at what it was given, 0 if it has done all; of a job that has failed nothing
// is known.
func (c *Core) Unwritten() (d Millis, failed bool) {
	if c.out.persists > c.out.persisted {
		d = c.now - c.out.since
	}
	return d, c.failed != nil
}

// unlogged says whether the part of a step waits for the log, which is to have its plan first.
func (o *outbox) unlogged(step int64) bool {
	return slices.ContainsFunc(o.held, func(h held) bool {
		d, ok := h.Effect.(Deliver)
		return ok && d.Step == step
	})
}

// drop forgets effects that wait.
func (o *outbox) drop(which func(Effect) bool) {
	o.held = slices.DeleteFunc(o.held, func(h held) bool { return which(h.Effect) })
}

// steplog is what the core knows of the job's log, with what it was given to do and has
// not done yet.
type steplog struct {
	opened      bool
	kept        bool // there is one
	dir         string
	first, next int64 // its steps; none if they are equal
	trimmed     int64 // the steps before it were let go of
	begun       bool  // it has steps, or had some that were left
	begin       *Begin
	digests     map[int64]*DigestRead // asked for; nil until they are read
}

// note follows what an operation does to the steps of the log.
func (l *steplog) note(op Op) {
	switch op := op.(type) {
	case AppendStep:
		if l.first == l.next {
			l.first, l.next = op.Step.Step, op.Step.Step
		}
		l.next, l.begun = max(l.next, op.Step.Step+1), true
	case Truncate:
		l.first, l.next = op.From, op.From // what is left before it is there to be read, not to be planned again
	case Trim:
		l.trimmed = op.Before
	}
}

// steps is the number of steps whose plans are in the log, whether they were planned
// again in this life or not.
func (l *steplog) steps() int64 {
	if l.first == l.next {
		return 0
	}
	return l.next
}

// digest reads a digest of the log; ready is false until it is read.
func (c *Core) digest(step int64) (d *DigestRead, ready bool) {
	d, asked := c.log.digests[step]
	switch {
	case !asked:
		if c.log.digests == nil {
			c.log.digests = map[int64]*DigestRead{}
		}
		c.log.digests[step] = nil
		c.emit(ReadDigest{step})
		fallthrough
	case d == nil:
		c.wait(onLog | onMove) // a move may make the log forget the step
		return nil, false
	}
	delete(c.log.digests, step)
	return d, true
}

func (c *Core) digestRead(ev DigestRead) {
	if _, asked := c.log.digests[ev.Step]; asked {
		c.log.digests[ev.Step] = &ev
		c.raise(onLog)
	}
}
