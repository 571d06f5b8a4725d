// Package sim runs a whole service in one process, from one seed: a planner, loaders,
// constructors and the ranks of a job, each the real role or the real client, on a network
// in memory that delays, stalls, loses and resets connections.
//
// It owns the network, the faults and the checks: every batch of every rank is compared
// with the reference reader, and a run has to end once faults do. It never reaches into a
// role, and never reads a clock of its own: in a bubble of testing/synctest the time is
// virtual, and a run takes milliseconds.
package sim
