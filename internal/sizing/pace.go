package sizing

// paceMemory is of how many intervals a pace is: one of few steps says little.
const paceMemory = 4

// Pace is how fast trainers take steps, from intervals of some steps each: a moving average. While steps wait for blocks it is
// what loaders give, which says nothing of what trainers would take: then it only grows. Its zero value has seen nothing. It is
// for one goroutine.
type Pace struct {
	steps float64 // a second
	seen  float64 // intervals, up to paceMemory
}

// Next takes in an interval of some seconds and steps, and returns steps a second.
func (p *Pace) Next(steps, seconds float64, starved bool) float64 {
	now := steps / seconds
	if p.seen == 0 || !starved || now > p.steps {
		p.seen = min(p.seen+1, paceMemory)
		p.steps += (now - p.steps) / p.seen
	}
	return p.steps
}
