// Package balance decides which samples share a microbatch: pure functions from
// lengths and costs to assignments.
//
// It holds bin packing ([Packer]); cost models and partitioning belong here too.
// Everything is integer arithmetic with ties broken by index, so that a plan is
// the same on every machine: the result is defined by the documented rule, not
// by the data structure that finds it. The package imports the standard library
// only, keeps no state between calls but scratch memory, and never reads a
// clock, a file, a random number or a map's order.
package balance
