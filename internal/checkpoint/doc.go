// Package checkpoint is the log of a job: one record for each step, a key frame every few
// hundred steps, the digests of the steps that were delivered, and the changes to the job.
//
// The log is written before a plan can reach a trainer, so that no plan a trainer has seen
// is lost with a process. It restores the position of the planner that wrote it: the last
// key frame is the position before its step ([Reader.Frame]), the records from that step
// on lead from position to position ([Reader.Records]), and the changes say what is to
// come ([Reader.Changes]). The package owns order (steps follow each other without a
// hole), durability and the refusal of a log that is another job's or in use. It takes
// bytes and gives the same bytes back: it never looks into a record, which is
// internal/planner/token's, and it never talks to the network. It logs nothing but
// warnings of Pebble and of the folder's mode, and its only clock tells it when to look at
// its folder.
//
// [Log] is what a planner needs, package logtest what every Log must do, and memlog one for
// tests. [Open] gives the one that serves: it stands in a Pebble database of its own;
// docs/bytes.md, "The log", has the keys. Beside it stands a high-water mark, synced before
// a write is acknowledged: whoever opens the log proves with it that nothing which was
// acknowledged is missing or other than it was, in a time that does not depend on the log's
// length. When a job goes back, its log goes on in a branch ([Branch]); what was left stays. A
// disk that fails once, or a folder that is not there any more, is not trusted again: the Log
// reports the cause from then on and touches no file ([Log.Stopped]), and the process should
// end. All that was appended before stays readable by the next process, if the folder does.
package checkpoint
