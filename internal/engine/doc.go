// Package engine runs chains of stages in the streaming batch model: each task takes
// partitions and gives some, one by one, and the next stage starts on them while the task
// runs. What lies between the stages never takes more memory than a limit.
//
// It owns the executor: queues, slots, one ledger of bytes, the tree of what came from
// what, and the goroutines of tasks. Which task starts next is decided by package
// schedule. Outputs are handed over strictly in the order of source tasks and, within one,
// of the partitions on the way: slots, limits, timing and losses change how long a run takes and
// nothing of what it gives.
//
// It never looks into a partition, and never reads a file. What it has no room for goes to a disk only if it is given one
// (Spill).
//
// docs/engine.md has the rules, the figures, and what is missing.
package engine
