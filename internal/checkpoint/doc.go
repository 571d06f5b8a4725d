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
// never talks to the network. It logs nothing but warnings of Pebble and of the
// folder's mode, and its only clock tells it when to look at its folder.
//
// The log stands in a Pebble database of its own; docs/bytes.md, "The log",
// has the keys. Beside it stands a high-water mark, synced before a write is
// acknowledged: whoever opens the log proves with it that nothing which was
// acknowledged is missing or other than it was. A disk that fails once, or a
// folder that is not there any more, is not trusted again: the Log reports the
// cause from then on and touches no file ([Log.Stopped]), and the process should
// end. All that was appended before stays readable by the next process, if the
// folder does.
package checkpoint
