package reference

// giveBack takes the last sample out of the pool: back to those that wait, or to
// its source, with all that were drawn after it.
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

// giveBack takes the last draw back.
func (s *source) giveBack() {
	s.at--
	s.blocks = s.blocks[:len(s.blocks)-1]
}
