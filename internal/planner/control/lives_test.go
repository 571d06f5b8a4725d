package control

import (
	"fmt"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/planner/plan"
)

// succeed has another planner take this one's place: it has what the log has. Those who were
// there come back, or not.
func (w *world) succeed() {
	if w.lives++; w.failed {
		w.failures++
	}
	w.failed = false
	w.disk.reopen()
	var back []Held
	var nodes []*uint32
	for _, s := range w.builders {
		if h := w.holds[s]; h != nil && w.rng.IntN(4) > 0 {
			h.Entered = w.core.roster.joins
			back, nodes = append(back, *h), append(nodes, w.nodes[s])
		}
	}
	w.core, w.twin.core = newCore(w.t, w.words), newCore(w.t, w.words)
	for _, c := range []*Core{w.core, w.twin.core} {
		c.cfg.Resumes = true
		c.roster.joins = uint64(w.lives) << epochBits
	}
	w.here, w.loaders, w.builders, w.orders, w.persists = nil, nil, nil, nil, nil
	clear(w.cuts)
	clear(w.open)
	clear(w.holds)
	clear(w.unmet)
	clear(w.briefs)
	clear(w.resent)
	w.barrier, w.durable, w.positioned, w.generation = 0, 0, false, 0
	for i, h := range back {
		w.join(&w.builders, func(s Session) Event {
			w.holds[s], w.unmet[s], w.nodes[s] = &h, true, nodes[i]
			told := h
			told.Acked = slices.Clone(h.Acked)
			return ConstructorJoined{Session: s, Name: fmt.Sprint("c", s), Address: "c", Held: &told, Node: nodes[i]}
		})
	}
}

// getsJob notes which ranks a constructor is to serve from its next Restart on.
func (w *world) getsJob(e Brief) {
	if w.holds[e.To] == nil {
		w.holds[e.To] = &Held{Identity: w.core.id.Identity[:]}
	}
	w.briefs[e.To] = e.Buckets
}

// getsAnything checks that a constructor that comes back with what it kept hears first where
// the job goes on: anything else that is about the job would have it begin again.
func (w *world) getsAnything(e Effect) {
	switch e.(type) {
	case Admit, Deliver, EndOfData:
		if to, _ := addressee(e); w.unmet[to] {
			w.t.Errorf("%s before it hears where the job goes on", w.show(e))
		}
	}
}

// getsRestart notes where a constructor begins, or goes on.
func (w *world) getsRestart(e Restart) {
	delete(w.unmet, e.To)
	h := w.holds[e.To]
	w.takesJob(e.To)
	w.resent[e.To] = -1
	if !e.Continues {
		h.Generation, h.Next = e.Generation, e.NextStep
		for i := range h.Acked {
			h.Acked[i].Generation, h.Acked[i].Step = e.Generation, e.NextStep
		}
		return
	}
	if w.kept++; e.Generation != h.Generation || e.NextStep > h.Next {
		w.t.Errorf("a constructor with generation %d up to step %d goes on with generation %d, its rows from step %d on", h.Generation, h.Next, e.Generation, e.NextStep)
	}
	w.resent[e.To] = e.NextStep
}

// takesJob has a constructor serve the ranks that it was given last.
func (w *world) takesJob(s Session) {
	buckets, given := w.briefs[s]
	if !given {
		return
	}
	delete(w.briefs, s)
	h, before := w.holds[s], w.holds[s].Acked
	h.Acked = nil
	for _, b := range buckets {
		a := Acked{Bucket: b, Generation: h.Generation}
		if i := slices.IndexFunc(before, func(x Acked) bool { return x.Bucket == b }); i >= 0 {
			a = before[i]
		}
		h.Acked = append(h.Acked, a)
	}
}

// getsStep notes that a constructor gets a plan: of the next step, or, after it heard where the job goes on, of each
// from there on, which it may have.
func (w *world) getsStep(e Deliver) {
	w.takesJob(e.To)
	h, want := w.holds[e.To], w.resent[e.To]
	if want < 0 {
		want = h.Next
	}
	if e.Step != want {
		w.t.Errorf("step %d is sent to a constructor that is to get step %d", e.Step, want)
	}
	h.Next = max(h.Next, e.Step+1)
	if w.resent[e.To] = -1; e.Step+1 < h.Next {
		w.resent[e.To] = e.Step + 1
	}
}

// train lets ranks and constructors go on.
func (w *world) train() {
	c := w.core
	if c.plan == nil || len(w.builders) == 0 {
		return
	}
	m := w.builders[w.rng.IntN(len(w.builders))]
	switch w.rng.IntN(8) {
	case 0, 1, 2:
		w.apply(Restarted{m, c.job.generation})
	case 3:
		step := c.plan.Acked()
		if s := c.job.steps[step]; s != nil {
			ev := plan.Assembled{Step: step}
			for row := range s.Rows {
				ev.Rows, ev.Digests = append(ev.Rows, uint32(row)), append(ev.Digests, [32]byte{byte(step), byte(row)})
			}
			w.apply(Assembled{c.job.generation, ev})
		}
	case 4:
		w.apply(Lag{Session: m, Generation: c.job.generation, Absent: w.rng.IntN(2)})
	default:
		bucket := uint32(w.rng.IntN(c.job.tree.Sizes().DP))
		step := c.acks.of[bucket].Step
		sent := c.plan.Planned()
		if c.job.remesh != nil {
			sent = c.job.remesh.Step // the steps from there on are for other ranks
		}
		ev := Acked{Generation: c.job.generation, Bucket: bucket, Step: min(max(step, c.plan.Acked())+w.rng.Int64N(3), sent)}
		for _, h := range w.holds {
			for i := range h.Acked {
				if h.Generation == ev.Generation && h.Acked[i].Bucket == bucket && ev.Step <= h.Next {
					h.Acked[i] = ev
				}
			}
		}
		w.apply(ev)
	}
}

// write makes the oldest write durable, or fails.
func (w *world) write() {
	p := w.persists[0]
	w.persists = w.persists[1:]
	if w.rng.IntN(1000) == 0 {
		w.persists = nil // the log has stopped
		w.apply(LogStopped{fault.Lostf("the disk is full")})
		return
	}
	w.durable = p.Seq
	if err := w.disk.write(w.core.id, p.Ops); err != nil {
		w.t.Errorf("write %d: %v", p.Seq, err)
	}
	for _, op := range p.Ops {
		switch op := op.(type) {
		case AppendStep:
			w.steps[op.Step] = true
		case AddChange:
			w.changes = append(w.changes, op.Change)
		}
	}
	w.apply(Persisted{Seq: p.Seq})
}
