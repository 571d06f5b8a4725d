package schedule

// gathers reports whether a task takes all that several source tasks gave.
func (s *Snapshot) gathers() bool {
	for op := range s.Operators {
		if s.Operators[op].Declared.Gathers {
			return true
		}
	}
	return false
}

// gathering is Decide where a task takes all that several source tasks gave. That stays until the last of them has ended,
// so no pace brings room. A source starts, after all others, if its output has room beside those of the sources that
// run, or if none runs.
func (s *Snapshot) gathering() Decision {
	if d := s.downstream(); d.Launch {
		return d
	}
	if s.Ready(0) && s.leavesSlots() {
		if s.oneFits() {
			return Decision{Launch: true, Promise: s.Operators[0].Estimate.Out}
		}
		if len(s.Operators[0].Running) == 0 {
			return Decision{Launch: true}
		}
	}
	if s.idle() {
		return s.anything()
	}
	return Decision{}
}
