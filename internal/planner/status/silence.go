package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/millrace-data/millrace/internal/planner/control"
)

// silence is how long a role may say nothing before the status names it: they report
// their memory every second.
const silence = 5 * time.Second

// Silent names the roles that are connected and have said nothing for long: stopped,
// starved, or behind a network that is gone. The connection is given up later. quiet
// is how long a session has said nothing.
func Silent(x control.Snapshot, quiet func(control.Session) time.Duration) string {
	var b strings.Builder
	note := func(role string, m control.Member) {
		if d := quiet(m.Session); d > silence {
			b.WriteString(unheard(role, m, d))
		}
	}
	if len(x.Loaders) == 0 && x.State != "starting" {
		b.WriteString("; no loader is connected")
	}
	for _, l := range x.Loaders {
		note("loader", l)
	}
	for _, c := range x.Constructors {
		note("constructor", c)
	}
	return b.String()
}

// SilentConstructors names those that ranks cannot get batches from, as the core says.
// quiet is how long a session has said nothing.
func SilentConstructors(all []control.Member, quiet func(control.Session) time.Duration) (text string) {
	for _, m := range all {
		text += unheard("constructor", m, quiet(m.Session))
	}
	return text
}

// unheard says of a member that it has said nothing, as the end of a sentence.
func unheard(role string, m control.Member, d time.Duration) string {
	return fmt.Sprintf("; %s %s at %s has said nothing for %.0f s", role, m.Name, m.Address, d.Seconds())
}

// Writing says of the log that the planner waits for how long its last write has taken, and with what an attempt to write
// its mirror ended last; "" while that is not worth a word.
func Writing(d time.Duration, mirror error) string {
	if d < time.Second {
		return ""
	}
	text := fmt.Sprintf(", whose last write has taken %.0f s", d.Seconds())
	if mirror != nil {
		text += fmt.Sprintf(" (its mirror: %v)", mirror)
	}
	return text
}

// Reading says of the loader that the planner waits for that it has said nothing for longer than suspect, or else which
// file it reads and what is called for it; "" if neither is known.
func Reading(quiet, suspect time.Duration, file string) string {
	if quiet > suspect {
		return fmt.Sprintf(", which has said nothing for %.0f s", quiet.Seconds())
	}
	if file != "" {
		return ", which reads " + file
	}
	return ""
}
