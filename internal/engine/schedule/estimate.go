package schedule

// Estimate is what was learned of an operator's tasks. Before the first task has
// ended, its fields are what the operator declares: zero, or a guess.
type Estimate struct {
	Tasks    int   // that ended
	Duration Nanos // of a task's work, without waiting for room
	In, Out  int64 // bytes that a task takes and gives
	// Parts is how many partitions a task gives, in thousandths.
	Parts int64
}

// Observation is what one task did.
type Observation struct {
	Duration Nanos
	In, Out  int64
	Parts    int
}

// memory is how many tasks an estimate looks back on. Eight follow a workload that
// changes within a second or two of full load, and halve the noise of single tasks.
const memory = 8

// Learn returns the estimate after one more task. The first tasks count alike, later
// ones an eighth.
func (e Estimate) Learn(o Observation) Estimate {
	if e.Tasks == 0 {
		e = Estimate{} // what was declared counts no more
	}
	e.Tasks++
	n := int64(min(e.Tasks, memory))
	e.Duration += Nanos((int64(o.Duration) - int64(e.Duration)) / n)
	e.In += (o.In - e.In) / n
	e.Out += (o.Out - e.Out) / n
	e.Parts += (int64(o.Parts)*1000 - e.Parts) / n
	return e
}
