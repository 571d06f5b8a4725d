package planner

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
	"github.com/millrace-data/millrace/internal/rpc"
)

// Loaders and constructors send beats on their sessions. The loop looks now and then who has
// said nothing, and tells the core; the core decides what that means.

// DefaultSuspect is how long a member may say nothing before others are asked in its place:
// four beats.
const DefaultSuspect = 2 * time.Second

// quietFor is how long a constructor may say nothing before it is quiet: it counts only if a rank
// hears nothing of it either. Three beats.
const quietFor = 3 * rpc.ConstructorBeatEvery

// stalled is how late a tick may be before the planner blames itself: it was stopped, or plans
// for long, and has not heard what was said meanwhile.
const stalled = time.Second

// speaking is in place of a time while what a member said is being taken in.
const speaking = math.MaxInt64

// clock is where times of members count from: it is monotonic, as the system's clock is not.
var clock = time.Now()

// member is what every session knows of its other side. It may be read from anywhere.
type member[U any] struct {
	session control.Session
	heard   atomic.Int64 // ns on clock when it last said something, or speaking
	usage   atomic.Pointer[U]
	beats   bool // it sends beats, as those of the version before do not
	faint   bool // the core knows that it has said nothing for quietFor; the loop's, as the next
	silent  bool // the core knows that it says nothing
}

// hear notes that a member says something. The function that it returns ends that.
func (m *member[U]) hear() (taken func()) {
	m.heard.Store(speaking)
	return func() { m.heard.Store(int64(time.Since(clock))) }
}

// quiet is how long it has said nothing. now is on clock.
func (m *member[U]) quiet(now time.Duration) time.Duration {
	return max(now-time.Duration(m.heard.Load()), 0)
}

// quiet returns how long a loader or constructor has said nothing, as far as the loop heard it. now is on clock.
func (p *Planner) quiet(now time.Duration) func(control.Session) time.Duration {
	return func(of control.Session) time.Duration {
		heard := max(now-p.listening.since, 0)
		if l := p.loaders[of]; l != nil {
			return min(l.quiet(now), heard)
		}
		return min(p.constructors[of].quiet(now), heard)
	}
}

// listening is since when the loop hears everybody.
type listening struct {
	last  time.Duration // on clock, when it looked last
	since time.Duration // it was not late since then
}

// listen tells the core who fell silent and who speaks again. now is on clock.
func (p *Planner) listen(now time.Duration) {
	if now-p.listening.last > stalled {
		p.listening.since = now
	}
	p.listening.last = now
	for _, l := range p.loaders {
		if l.beats {
			p.listenTo(l.session, &l.silent, min(l.quiet(now), now-p.listening.since))
		}
	}
	for _, c := range p.constructors {
		if c.beats {
			quiet := min(c.quiet(now), now-p.listening.since)
			if c.faint != (quiet >= quietFor) {
				c.faint = !c.faint
				p.apply(control.Quiet{Session: c.session, Ended: !c.faint})
			}
			p.listenTo(c.session, &c.silent, quiet)
		}
	}
}

// listenTo tells the core of a member what it does not know.
func (p *Planner) listenTo(s control.Session, silent *bool, quiet time.Duration) {
	switch now := quiet >= p.opts.Suspect; {
	case now && !*silent:
		*silent = true
		p.apply(control.Silent{Session: s, For: control.Millis(quiet.Milliseconds())})
	case !now && *silent:
		*silent = false
		p.apply(control.Heard{Session: s})
	}
}
