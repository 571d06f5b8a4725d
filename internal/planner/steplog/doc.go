// Package steplog is the planner's side of the step log (internal/checkpoint): it takes the log of
// the planner before over, opens it, writes what the core decides and reads what it asks for.
//
// It owns the log while the planner runs, and the goroutine that writes it. It decides neither what
// is written nor when, and sends nothing to anyone: what is done becomes an event of the core.
package steplog

import (
	"log/slog"

	"github.com/millrace-data/millrace/internal/checkpoint"
)

// Options say where the log is. Logger is required.
type Options struct {
	Dir     string        // "" keeps no log
	Mirror  string        // URL of the object store (object.Open) with a second copy; "" keeps none
	Proved  bool          // the store of Mirror took the credentials before: where it denies access now, that is tried again
	FS      checkpoint.FS // file system of Dir; default: the operating system's
	Spec    [32]byte      // identity of the job spec: a log of another one is refused; zero: any is taken
	Standby bool          // wait until there is a log that no other planner has open, or whose mirror none renews any more
	Ready   func() error  // why a planner that stands by could not serve now, so that it does not take over; may be nil
	Open    func() error  // opens the planner's address, before the log is taken from another planner, which goes on if this one cannot listen; may be nil
	Shut    func()        // closes it, as the log was not taken; with Open
	Logger  *slog.Logger
	// KeyFrame says whether a step has a key frame, which changes no byte of a batch; default: by the
	// time that replaying takes.
	KeyFrame func(step int64) bool
}
