// Package mirror keeps a second copy of a job's log in an object store: a checkpoint.Log
// that wraps a local one.
//
// It owns the objects, their order and the fence. Each group of operations that the local
// log takes becomes one object, a segment, at the next slot, created only if nobody else
// did: who loses a slot has been deposed, and writes no more. A segment names the chain of
// all before it, so that none can be missing, exchanged or another log's. Key frames hold
// what the log holds at a slot, so that a reader needs the newest one and the segments
// after it; older segments are packed together in the background. A write returns when the
// local log and the object store have it. When either fails, the log stops.
//
// Whoever opens a mirror brings the local log to where the mirror stands: the mirror wins,
// since a local write that did not reach it was never acknowledged. docs/bytes.md has the
// bytes. A writer renews a lease, by which one that stands by knows when to try ([AwaitFree]),
// and one that starts whether it may ([CheckFree]); no other decision reads a clock. The
// package never looks into a record.
package mirror
