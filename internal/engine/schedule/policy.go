package schedule

// The constants of the policy. They are the same for every pipeline and limit;
// docs/engine.md shows what other values do.
const (
	// ahead is how many source tasks' outputs may be on the way, whatever the limit:
	// with fewer, a source could not start before all of the one before it had left.
	ahead = 2
	// early is the part of the pace by which source tasks may start before they are due, to make up for one that started
	// late since slots were taken. Without it a delay is never made up for, and any noise adds to the pace.
	early = 0.3
	// ample is how many source tasks' outputs the store holds, for each that can run at the same time,
	// from which on nothing is paced. A round of sources then never waits for the one before.
	ample = 1.4
)

// Decide is the policy of the engine.
//
// A task after the source starts when its output has room, those nearest to the end
// first. A source task starts at once if all that is on its way fits. Otherwise it is
// paced by the scarcest resource, starts only if its output is predicted to find
// room, and goes before all others then: what comes evenly needs the least memory.
func Decide(s *Snapshot) Decision {
	if len(s.Operators) == 0 {
		return Decision{}
	}
	if s.gathers() {
		return s.gathering()
	}
	all := s.allFits()
	var source Decision
	if !all {
		if source = s.paced(); source.Launch {
			return source
		}
	}
	if d := s.downstream(); d.Launch {
		return d
	}
	if all && s.Ready(0) {
		return Decision{Launch: true, Promise: s.Operators[0].Estimate.Out}
	}
	if s.idle() {
		return s.anything()
	}
	return source
}

// downstream starts the ready task nearest to the end whose output has room.
func (s *Snapshot) downstream() Decision {
	for op := len(s.Operators) - 1; op > 0; op-- {
		if !s.Ready(op) {
			continue
		}
		in := s.Operators[op].NextBytes
		keep, room := s.Growth(op, in), s.Room(op)
		if !s.Pinned {
			room += in // which the start of the task sets free
		}
		if keep == 0 || keep <= room {
			return Decision{Launch: true, Operator: op, Promise: keep}
		}
	}
	return Decision{}
}

// anything starts the ready task nearest to the end. It is asked when no task works, so
// that waiting would bring nothing: a task whose whole output never fits gives it
// out in pieces. A source starts so only where nothing is under way.
func (s *Snapshot) anything() Decision {
	none := true
	for op := len(s.Operators) - 1; op >= 0; op-- {
		none = none && len(s.Operators[op].Running) == 0
		if s.Ready(op) && (op > 0 || none) {
			return Decision{Launch: true, Operator: op}
		}
	}
	return Decision{}
}

// idle reports whether no task works.
func (s *Snapshot) idle() bool {
	for op := range s.Operators {
		for _, t := range s.Operators[op].Running {
			if !t.Stalled {
				return false
			}
		}
	}
	return true
}

// allFits reports whether sources need no pace, and the outputs of one more, and of
// those that run, have room now.
func (s *Snapshot) allFits() bool {
	o := &s.Operators[0]
	if o.Estimate.Out == 0 && o.Estimate.Tasks == 0 {
		return false
	}
	if o.Estimate.Tasks > 0 && float64(s.Limit) < ample*float64(s.parallel()*o.Estimate.Out) {
		return false
	}
	return s.oneFits()
}

// oneFits reports whether the outputs of one more source task, and of those that run, have room now.
func (s *Snapshot) oneFits() bool {
	o := &s.Operators[0]
	tasks := int64(1)
	for _, t := range o.Running {
		if t.Promise == 0 {
			tasks++
		}
	}
	return tasks*o.Estimate.Out <= s.Room(0)
}

// paced starts a source task whose output may have to wait for room, or says when it
// may start.
func (s *Snapshot) paced() Decision {
	o := &s.Operators[0]
	if !s.Ready(0) || !s.leavesSlots() {
		return Decision{}
	}
	if o.Estimate.Tasks == 0 {
		return Decision{Launch: int64(len(o.Running)) < s.unpaced()}
	}
	every, bySlots := s.pace()
	if due := s.due(every, bySlots); s.Now < due {
		return Decision{Wake: due}
	}
	if s.crowded(every) {
		return Decision{}
	}
	out := float64(o.Estimate.Out)
	excess := s.projected(every) + out - max(float64(s.Limit), ahead*out)
	if excess <= 0 {
		return Decision{Launch: true}
	}
	return Decision{Wake: s.Now + max(Nanos(excess/out*float64(every)), Second/1000)}
}

// leavesSlots reports whether sources, with one more, leave slots for any one task
// after them. Tasks after the source have room for what they give before they start,
// so with these slots there is always one that can end.
func (s *Snapshot) leavesSlots() bool {
	o := &s.Operators[0]
	for r, need := range o.Needs {
		most := Amount(0)
		for op := 1; op < len(s.Operators); op++ {
			most = max(most, s.Operators[op].Needs[r])
		}
		if sources := Amount(len(o.Running)+1) * need; need > 0 && sources+most > s.Resources[r].Slots {
			return false
		}
	}
	return true
}

// crowded reports whether more source tasks have ended and wait for room than the store holds outputs of, and one more
// that runs would leave too few slots to the tasks after them for the pace. Each new source would then
// take the slot of one that ended, and none of those that wait would ever catch up.
func (s *Snapshot) crowded(every Nanos) bool {
	out := s.Operators[0].Estimate.Out
	return out > 0 && s.waiting() > max(1, s.Limit/out) && s.squeezes(every)
}

// waiting is how many source tasks have ended, by the clock, which says the same whatever event of an instant came first.
func (s *Snapshot) waiting() (n int64) {
	o := &s.Operators[0]
	for _, t := range o.Running {
		if t.Started+o.Estimate.Duration <= s.Now {
			n++
		}
	}
	return n
}

// queued reports whether a task after the sources waits for slots or room.
func (s *Snapshot) queued() bool {
	for op := range s.Operators[1:] {
		if s.Operators[op+1].Queued > 0 {
			return true
		}
	}
	return false
}

// squeezes reports whether one more source task would leave too few slots to the tasks after them for the pace.
func (s *Snapshot) squeezes(every Nanos) bool {
	o := &s.Operators[0]
	for r, need := range o.Needs {
		left := s.Resources[r].Slots - Amount(len(o.Running)+1)*need
		if need > 0 && float64(left)*float64(every) < s.work(1, r) {
			return true
		}
	}
	return false
}

// work is the slot time of a resource that the operators from first on take for one source task.
func (s *Snapshot) work(first, r int) (work float64) {
	tasks := 1.0
	for op := range s.Operators {
		o := &s.Operators[op]
		if op >= first {
			work += tasks * float64(o.Estimate.Duration) * float64(o.Needs[r])
		}
		tasks *= float64(o.Estimate.Parts) / 1000
	}
	return work
}

// unpaced is how many source tasks start before one has ended: half of what the slots allow, and as many as the
// store holds the expected outputs of, unless these are fewer than ahead. They end together, and each
// keeps its slot until all that it gives has room.
func (s *Snapshot) unpaced() int64 {
	half, out := s.parallel()/2, s.Operators[0].Estimate.Out
	if out > 0 && s.Limit >= ahead*out {
		half += s.Limit / out
	}
	return max(1, half)
}

// parallel is how many source tasks the slots allow at the same time.
func (s *Snapshot) parallel() int64 {
	most := int64(1 << 20) // for a source that needs no slot
	for r, need := range s.Operators[0].Needs {
		if need > 0 {
			most = min(most, int64(s.Resources[r].Slots/need))
		}
	}
	return most
}

// pace is the time that the scarcest resource works for one source task: the slots
// of a resource, or the store, where inputs of running tasks stay in it. (Algorithm
// 2 of the paper adds up the times of the operators instead.) The second result looks at slots only.
func (s *Snapshot) pace() (every, bySlots Nanos) {
	slowest, tasks, held := 0.0, 1.0, 0.0
	for r := range s.Resources {
		if slots := s.Resources[r].Slots; slots > 0 {
			slowest = max(slowest, s.work(0, r)/float64(slots))
		}
	}
	bySlots = Nanos(slowest)
	for op := range s.Operators {
		o := &s.Operators[op]
		if op > 0 {
			tasks *= float64(s.Operators[op-1].Estimate.Parts) / 1000
			held += tasks * float64(o.Estimate.Duration) * float64(o.Estimate.In)
		}
	}
	if s.Pinned && s.Limit > 0 {
		slowest = max(slowest, held/float64(s.Limit))
	}
	return Nanos(slowest), bySlots
}

// due is when the next source task may start: n times the pace after the nth last of those that run. If nothing waits, or
// slots are left for what does, it may start early, but over all that run not faster than slots work.
func (s *Snapshot) due(every, bySlots Nanos) (due Nanos) {
	o := &s.Operators[0]
	n, before := Nanos(len(o.Running)), Nanos(0)
	if s.waiting() == 0 && !s.queued() || !s.squeezes(every) {
		before = Nanos(early * float64(every))
	}
	due = s.Now
	for i, t := range o.Running {
		less := before
		if i == 0 {
			less = min(before, n*(every-bySlots))
		}
		due = max(due, t.Started+(n-Nanos(i))*every-less)
	}
	return due
}

// projected is how many bytes are expected in the store when a source task that
// starts now ends: what is there, and what running sources have to give until then, less what
// leaves at the pace.
func (s *Snapshot) projected(every Nanos) float64 {
	o := &s.Operators[0]
	out := float64(o.Estimate.Out)
	leaves := out / float64(max(every, 1))
	bytes, at := float64(s.Used+s.Promised), s.Now
	for _, t := range o.Running {
		bytes -= float64(t.Promise) // given at its end
	}
	for _, t := range o.Running { // oldest first, so in the order of their ends
		ends := max(t.Started+o.Estimate.Duration, at)
		bytes = max(0, bytes-leaves*float64(ends-at)) + max(0, out-float64(t.Given))
		at = ends
	}
	return max(0, bytes-leaves*float64(max(0, s.Now+o.Estimate.Duration-at)))
}
