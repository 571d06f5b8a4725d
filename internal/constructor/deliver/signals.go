package deliver

// signals wake those who wait for one of several things, by key. The zero value is ready; the
// lock of its owner guards it.
type signals struct{ of map[uint64]*signal }

type signal struct {
	woken   chan struct{}
	waiting int
}

// enter adds one who waits. It hears once, or leaves.
func (s *signals) enter(key uint64) *signal {
	if s.of == nil {
		s.of = map[uint64]*signal{}
	}
	if s.of[key] == nil {
		s.of[key] = &signal{woken: make(chan struct{})}
	}
	s.of[key].waiting++
	return s.of[key]
}

// leave forgets one who waits no longer.
func (s *signals) leave(key uint64, of *signal) {
	if of.waiting--; of.waiting == 0 && s.of[key] == of {
		delete(s.of, key)
	}
}

func (s *signals) wake(key uint64) {
	if of := s.of[key]; of != nil {
		delete(s.of, key)
		close(of.woken)
	}
}

func (s *signals) wakeAll() {
	for _, of := range s.of {
		close(of.woken)
	}
	clear(s.of)
}
