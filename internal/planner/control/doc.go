// Package control is the pure core of the planner's protocols: events go in,
// effects come out, as plain values.
//
// It owns the planner's core of steps (planner/plan) and all that decides around
// it: members and what each of them reads or serves, sources and those that join,
// the journal of changes, joins of ranks and the generations they begin,
// acknowledgements, bans, what each question waits for, the ledger of what sources
// lost, and what becomes durable before what is sent. It has no clock, disk,
// network, goroutine or lock: time comes in as ticks, and persistence goes out as an
// effect and comes back as an event. Nothing that constructors or trainers get
// leaves it before what it depends on is durable.
//
// Package planner is the shell that serves a job with it; package preview drives the
// same core in process, with no trainers. A Core is not safe for concurrent use.
package control
