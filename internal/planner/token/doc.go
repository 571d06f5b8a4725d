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
//
// # Columns of bits
//
// Cursors travel as columns whose values have as many bits as the largest needs, not as
// plain varints under zstd, since only so does a token stay within 4 KiB, which is the
// promise for a token that may be saved at every step. Bytes of a token with a full carry,
// and in parentheses the bits of the counters of tokens that were left for it (all, down
// to the 7 of the last resort), late in a long job (10^10 tokens and 10^6 blocks each):
//
//	sources                        columns      varints      varints, zstd
//	3                              317 (all)    404 (all)    399 (all)
//	306, early                    2835 (all)   3491 (all)   3501 (all)
//	306                           3830 (all)   4036 (14)    3856 (14)
//	306, limits                   3948 (16)    4646 (7)     4470 (7)
//	306, weights by hand          3926 (24)    4561 (7)     4061 (7)
//	306, weights of feedback      4071 (14)    4963 (7)     4761 (7)
//	306, limits, weights by hand  4079 (7)     5477 (7)     5003 (7)
//
// The bits of a cursor are nearly random, so that zstd finds little in them; cut into
// bytes of equal weight first they take 4733 bytes in the last case. Encoding 306 sources
// takes 0.5 ms, decoding 0.3 ms; zstd's best level takes 2.4 ms beside 50 MB of tables, the
// default level 0.04 ms and up to 4 % more bytes. The plain form would save about 50
// lines.
package token
