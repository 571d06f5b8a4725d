// Package assemble turns the rows of a microbatch into the tensors that one
// rank receives, in the key names, types, shapes and slices of its trainer.
//
// It owns what a batch looks like: labels, loss masks, position ids, sequence
// bounds, padding, the cut along the sequence for context parallelism (CP) and
// the choice of tensors for each pipeline stage (PP). Tensor-parallel ranks get
// equal bytes, so TP does not appear. It never decides what goes into a row (the
// plan did), reads no file or network, and starts no goroutine.
//
// Everything is a pure function of the Layout, the rows and the coordinates,
// safe for concurrent use. Verify is the inverse: it rebuilds the rows from what
// all ranks received and compares every byte.
package assemble
