package reference

// giveBack removes the last sample from the pool: it waits again, or returns to
// its source with all later draws.
func (r *reader) giveBack() {
	r.samples = r.samples[:len(r.samples)-1]
	if r.flushed > 0 {
		r.flushed--
		return
	}
	for held := true; held; {
		last := r.draws[len(r.draws)-1]
		r.draws = r.draws[:len(r.draws)-1]
		r.account(last, -1)
		r.sources[last.source].giveBack()
		if held = last.held; held {
			r.held = r.held[:len(r.held)-1]
		}
	}
}

// giveBack undoes the last draw, and what it stepped over.
func (s *source) giveBack() {
	last := len(s.from) - 1
	s.at, s.from = s.from[last], s.from[:last]
	s.blocks = s.blocks[:len(s.blocks)-1]
}
