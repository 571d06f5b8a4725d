package control

// checkServed finds each DP rank at one constructor at most, the one that the core names, which
// heard so.
func (w *world) checkServed() {
	c, by := w.core, map[uint32]*constructor{}
	for _, m := range c.members.present() {
		for _, dp := range m.buckets {
			if by[dp] != nil {
				w.t.Errorf("two constructors serve dp=%d: %s and %s", dp, by[dp].name, m.name)
			}
			by[dp] = m
		}
	}
	for dp := range uint32(c.job.tree.Sizes().DP) {
		if m := c.constructorOf(dp); m != by[dp] {
			w.t.Errorf("dp=%d is served by %v, and the core names %v", dp, by[dp], m)
		}
	}
	for _, m := range c.members.spares {
		if len(m.buckets) > 0 {
			w.t.Errorf("the spare constructor %s serves %v", m.name, m.buckets)
		}
	}
}

// checkReplaced is the law of a constructor whose session was ended for the reports of ranks: each
// DP rank that nobody else was missing for has another one now.
func (w *world) checkReplaced(m *constructor) {
	w.replaced++
	all := len(w.core.members.constructors)
	for dp := range uint32(w.core.job.tree.Sizes().DP) {
		if int(dp)%all == m.number && w.core.constructorOf(dp) == nil {
			w.t.Errorf("dp=%d has no constructor after %s was replaced", dp, m.name)
		}
	}
}
