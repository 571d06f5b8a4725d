// Package schedule decides which task of a chain of operators starts next, so that
// executors stay busy and partitions between the operators never take more memory
// than a limit.
//
// It is given a [Snapshot] (queues, running tasks, free slots, bytes) and returns
// one [Decision]; it keeps nothing between calls. Up front it knows what operators
// declare: the slots that a task needs, bounds of the partitions that it gives ([Declared]), the limit,
// and how much a source task is expected to give, as a reader knows from its files. Durations,
// sizes and ratios it learns from tasks that ended ([Estimate.Learn]).
//
// It never reads a clock, starts a goroutine or touches a partition: whoever runs the
// tasks does. The engine's executor and the simulator call the same code.
//
// docs/engine.md has the algorithm, its figures and where it differs from Ray Data's paper.
package schedule
