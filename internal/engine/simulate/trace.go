package simulate

import (
	"fmt"
	"io"

	"github.com/millrace-data/millrace/internal/engine/schedule"
)

// Kind is what happened to a task.
type Kind int

// The life of a task.
const (
	Started Kind = iota
	Stalled      // its work is done, and what it gives does not fit
	Ended
)

var kinds = [...]string{"starts", "waits for room for", "ends, gave"}

// Event is one line of a transcript.
type Event struct {
	At       schedule.Nanos
	Kind     Kind
	Op, Task int
	Name     string
	Bytes    int64
	Used     int64 // bytes in the store after it
	Held     int64 // bytes of outputs that executors hold
	Free     []schedule.Resource
}

func (e Event) String() string {
	text := fmt.Sprintf("%8.3f s  %s %d %s", float64(e.At)/float64(schedule.Second), e.Name, e.Task, kinds[e.Kind])
	if e.Kind != Started {
		text += fmt.Sprintf(" %d MB", e.Bytes/MB)
	}
	text = fmt.Sprintf("%-52s store %d MB, held %d MB, free", text, e.Used/MB, e.Held/MB)
	for _, r := range e.Free {
		text += fmt.Sprintf(" %s %g", r.Name, float64(r.Free)/float64(schedule.Slot))
	}
	return text
}

// Transcript returns a trace that writes each event as a line.
func Transcript(w io.Writer) func(Event) {
	return func(e Event) { fmt.Fprintln(w, e) }
}

func (r *run) trace(e Event) {
	if r.cfg.Trace == nil {
		return
	}
	e.At, e.Name, e.Used, e.Held = r.s.Now, r.s.Operators[e.Op].Name, r.s.Used, r.held
	e.Free = r.s.Resources
	r.cfg.Trace(e)
}
