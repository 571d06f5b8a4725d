// Package fleet is the one seam through which a service gets more of a role, or fewer: in its own process, as
// processes of this machine, or from whatever a command of the user's asks.
//
// It owns the starting and ending of members, their names and the retries; a fleet says what it runs and hears who
// has nothing left to do. It never decides how many there are to be (package sizing does) and never what one of them
// does: members find the planner by themselves, and are members of the job when they join it. No byte of a batch
// depends on a fleet.
package fleet

import "context"

// Role is what a member is, as it is named on the command line.
type Role string

// The roles that fleets scale.
const Loader Role = "loader"

// Member is what a fleet runs, or has asked for.
type Member struct {
	Role     Role
	Name     string
	Draining bool // it has nothing left to do, or is being ended
}

// Fleet runs members of roles. Implementations are safe for concurrent use. Members are Local (in this process, or
// processes of this machine), Command; the way to Kubernetes, Slurm and Ray.
type Fleet interface {
	// Scale has n members of a role run from now on. It returns when that is under way, not when they are there. It is
	// idempotent: what counts is the last number. What it cannot do it tries again, and says in Problem.
	Scale(ctx context.Context, role Role, n int) error
	// Draining names all members of a role that have nothing left to do: a Scale to fewer ends these before others. A name
	// that is left out again stays.
	Draining(role Role, names []string)
	// Joined says how many members of a role are in the job, now and then: a fleet that does not see its members asks again
	// for those that are lost.
	Joined(role Role, n int)
	// Members calls changed with what runs, at once and at every change, until ctx ends. It may leave out what changed
	// again meanwhile. changed is called by one goroutine, which Members waits for.
	Members(ctx context.Context, changed func([]Member))
	// Problem says why the fleet is not as it was asked to be; "" if it is, or nothing is known.
	Problem() string
}
