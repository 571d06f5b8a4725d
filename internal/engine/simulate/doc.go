// Package simulate runs a pipeline in virtual time under a scheduling policy: the engine's own or a
// baseline from the literature. It is deterministic, and runs the code of package
// schedule as the engine's executor does.
//
// The model is that of section 5.3.1 of Ray Data's paper: a task gives out its partitions one by one at its end; one that does not fit into the store waits, and its task keeps its slots.
// [Config.Pinned] says how long the input of a task counts. Nothing is ever spilled: a run in
// which nothing can happen any more is stuck, and says so.
//
// It holds the baselines too, so that no product code can depend on one.
package simulate
