package schedule

// Nanos is a time or a duration in nanoseconds. Whoever drives the scheduler
// counts from any beginning it likes.
type Nanos int64

// Second is a second.
const Second Nanos = 1e9

// Amount counts slots of a resource in thousandths, so that fractions of a slot
// add up exactly.
type Amount int64

// Slot is one whole slot.
const Slot Amount = 1000

// Resource is a kind of executor slots: cpu, gpu, or any other name.
type Resource struct {
	Name  string
	Slots Amount // free and taken
	Free  Amount // not held by a task now
}

// Task is a task that runs, or that has ended and still holds outputs.
type Task struct {
	Started Nanos
	Promise int64 // bytes of the ledger promised to its outputs and not yet used
	Given   int64 // bytes that it has given
	Stalled bool  // its work is done, and its outputs wait for room
}

// Operator is one stage of the chain, as it stands now.
type Operator struct {
	Name        string
	Needs       []Amount // a task's share of each resource, in the order of Snapshot.Resources
	Queued      int      // tasks that have their input
	QueuedBytes int64    // of those inputs; 0 for the source, whose inputs are places in files
	NextBytes   int64    // the input of the next task
	Running     []Task   // oldest first
	Stored      int64    // bytes of its outputs in the store
	Promised    int64    // bytes promised to its outputs
	Estimate    Estimate
	Declared    Declared
}

// Declared is what an operator says of its tasks before any has run. Both are bounds: the ledger
// keeps its limit whatever they are, but a task that gives more than they say may wait for room that
// nothing brings.
type Declared struct {
	Partition int64 // the greatest partition that a task gives: the target size
	Ratio     int64 // most bytes given for each byte taken, in thousandths; 0 means 1000
	// Gathers says that a task takes all that several source tasks gave, once they have ended.
	Gathers bool
}

// Snapshot is all that a policy knows. It belongs to the caller; a policy only
// reads it.
type Snapshot struct {
	Now       Nanos
	Resources []Resource
	Operators []Operator // in the order of the data; the first is the source
	Limit     int64      // bytes that the ledger may hold
	Used      int64      // bytes of partitions in the store
	Promised  int64      // bytes promised to outputs of running tasks
	Pinned    bool       // the input of a running task stays in the store until the task ends
}

// Decision is one thing to do. The caller does it and asks again, until Launch
// is false.
type Decision struct {
	Launch   bool
	Operator int
	// Promise is how many bytes of the ledger are kept for the outputs of the task.
	Promise int64
	// Wake, if not 0, is when to ask again even if nothing happened.
	Wake Nanos
}

// Policy decides by a snapshot alone. It keeps nothing between two calls.
type Policy func(*Snapshot) Decision

// fits reports whether the free slots are enough for a task of the operator.
func (s *Snapshot) fits(op int) bool {
	for r, need := range s.Operators[op].Needs {
		if need > s.Resources[r].Free {
			return false
		}
	}
	return true
}

// Ready reports whether a task of the operator has its input and its slots.
func (s *Snapshot) Ready(op int) bool { return s.Operators[op].Queued > 0 && s.fits(op) }

// Seconds is the duration in seconds.
func (n Nanos) Seconds() float64 { return float64(n) / float64(Second) }
