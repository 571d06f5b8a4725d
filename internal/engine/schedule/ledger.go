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
