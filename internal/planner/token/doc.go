// Package token is the codec of positions: the resume token that a trainer saves, the
// key frame of the log, and the record of a step, each written and read here only.
//
// It owns their bytes, and the checks that what it reads is whole, of this job, and a
// position that a job can be at. It is pure: a function of its arguments, without
// clock, disk, network or lock. What only a running service knows is left to the
// caller: the number of a ban, and what a source that joined looks like now
// ([Position.Resolve]).
//
// A token is self-contained, and resumes in a fresh service with an empty log. A key
// frame is a token that leaves out what the log has anyway. docs/bytes.md describes
// all three byte by byte.
package token
