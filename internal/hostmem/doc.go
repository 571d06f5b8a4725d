// Package hostmem carries batches between a constructor and the ranks of its host: memory that both
// map, and a local socket on which descriptors of it and short messages travel.
//
// It owns descriptors, mappings and the form of the messages (docs/bytes.md). Memory is written by one
// side and mapped read-only by the other, and neither can change its size; the kernel frees it with the
// last process that maps it, however that ends. It never decides what lies in memory, when a place in
// it is used again, or who may have it: a ticket, which a rank gets by an authenticated call, says that.
package hostmem
