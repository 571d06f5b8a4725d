package schedule

// Room is how many bytes the outputs of an operator may take of the ledger now, beside
// what is promised to them. Whoever moves a partition into the store asks it first.
//
// Every operator further on has room of its own for what one task gives, its credit,
// which outputs from before it never take. So one that has its input can always run a
// task to its end, and what that gives is taken by the next: the chain cannot block.
func (s *Snapshot) Room(op int) int64 {
	room, credits := s.Limit-s.Used-s.Promised, int64(0)
	left := room // of the limit, without what the operators after i have of it
	for i := len(s.Operators) - 1; i > op; i-- {
		left += s.Operators[i].Stored + s.Operators[i].Promised
		credits += s.credit(i)
		room = min(room, left-credits)
	}
	return room
}

// begun is the part of its output from which on a source task goes before older ones.
const begun = 0.3

// RoomOf is Room for a task that runs, by its place in Operator.Running. A source task leaves what others have to give that go before it.
func (s *Snapshot) RoomOf(op, task int) int64 {
	room := s.Room(op)
	if op == 0 {
		room -= s.rests(task)
	}
	return room
}

// rests is what source tasks have to give yet that go before one: of those that are not done in the time that they were expected to
// take, the older ones that have begun to give, and, if it has not begun itself, any that has given a good part. Tasks that
// began together end together, and if they shared the room each would keep its slot until all have given nearly everything.
func (s *Snapshot) rests(task int) (bytes int64) {
	o := &s.Operators[0]
	for i, t := range o.Running {
		first := i < task && t.Given > 0 || i > task && o.Running[task].Given == 0 && float64(t.Given) >= begun*float64(o.Estimate.Out)
		if first && t.Started+o.Estimate.Duration <= s.Now {
			bytes += max(0, o.Estimate.Out-t.Given-t.Promise)
		}
	}
	return bytes
}

// credit is the room that one task of the operator needs to start, whatever its input.
func (s *Snapshot) credit(op int) int64 {
	return s.Growth(op, s.Operators[op-1].Declared.Partition)
}

// Growth is how many bytes the ledger has to have for a task that takes in bytes.
// Where its input stays until it ends, its output takes the place of the input.
func (s *Snapshot) Growth(op int, in int64) int64 {
	if op+1 == len(s.Operators) {
		return 0
	}
	out := in
	if ratio := s.Operators[op].Declared.Ratio; ratio > 0 {
		out = (in*ratio + 999) / 1000
	}
	if s.Pinned {
		return max(0, out-in)
	}
	return out
}
