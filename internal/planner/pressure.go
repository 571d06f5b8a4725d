package planner

import (
	"runtime"
	"time"
)

// pressure is whether trainers leave the planner as much time as it takes to draw a step
// ahead. If they do, drawing waits until the parts of the step before are sent, which are
// what trainers wait for. If they do not, they would wait for both, and a second core draws
// while parts are sent. It decides when a step is drawn, never what.
type pressure struct {
	pressed bool
	drew    time.Duration // since a step was planned
	waited  time.Duration // for something to do, since then or since the last draw
}

// leastDraw is what a draw takes that counts: less is a look at whether there is one.
const leastDraw = time.Millisecond

// draw draws ahead.
func (p *pressure) draw(ahead func()) {
	began := time.Now()
	ahead()
	if took := time.Since(began); took >= leastDraw {
		p.drew, p.waited = p.drew+took, 0
	}
}

// planned is called when a step is planned: the trainers are done with an earlier one.
func (p *pressure) planned() {
	p.pressed = p.waited < p.drew && runtime.GOMAXPROCS(0) > 1
	p.drew, p.waited = 0, 0
}
