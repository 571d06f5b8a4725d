// Package balance decides which samples share a microbatch: pure functions from
// lengths and costs to assignments.
//
// Where tokens are capped, [Packer] fills rows with samples of a stream, and [Evener] makes the costs of packed rows even under the cap.
//
// Where they are not, [Balancer] partitions items into a given number of bins so
// that the largest load is small. It has a portfolio of methods, since none wins
// everywhere, and takes the best result: the longest processing time rule
// ([MethodLPT]), the largest differencing method ([MethodKK]), each with pairwise
// refinement, or a custom [Method]. [Options] ask for equal counts and for groups
// of bins as in a tree of ranks; [Balancer.Evaluate] compares a result with the best
// possible. [Balancer.Deal] gives finished bins to ranks and microbatch slots, and
// [Bitonic] orders the microbatches of a pipeline.
//
// Samples that are too long for one rank are cut over several by context parallelism:
// [WidePacker] makes rows of several widths without looking at ranks, and [Tiler] gives
// these to groups and slots.
//
// Costs come from the caller. Everything is integer arithmetic with
// ties broken by index, and effort is limited by size, so that a plan is the same
// on every machine: the result is defined by the documented rule, not by the
// data structure that finds it. The package imports the standard library
// only, keeps no state between calls but scratch memory, and never reads a
// clock, a file, a random number or a map's order.
package balance
