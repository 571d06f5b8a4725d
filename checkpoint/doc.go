// Package checkpoint is the planner's log on its own disk: one record for each
// step, a key frame every few hundred steps, and the digests of the steps that
// were delivered.
//
// The log is written before a plan can reach a trainer, so that no plan a
// trainer has seen is lost with a process. A restarted planner takes the last
// key frame and applies the records after it ([Log.Frame], [Log.Records]). The
// package owns order (steps follow each other without a hole), durability and
// the refusal of a folder that is another job's or another process's. It takes
// bytes and gives the same bytes back: it never looks into a record, and it
// never reads a clock, talks to the network or logs on its own account.
//
// The log stands in a Pebble database of its own; docs/format.md, "The log",
// has the keys. A disk that fails once is not trusted again: the Log reports
// the cause from then on and touches no file, and the process should end. All
// that was appended before stays readable by the next process.
package checkpoint
