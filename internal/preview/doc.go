// Package preview plans a job without its service: it drives the pure core of the
// planner over sources that it reads itself, with no network, trainer or buffer of
// tokens in between.
//
// It owns the driving (blocks that the core wants are read by a few goroutines,
// steps are acknowledged at once), the places that samples were read at, and two
// uses of them: Report, what a job would do, before it runs; and Explain, where
// the samples of a step come from and where those of a file go. The plans are
// those of the service: the core is the same code, and neither the order in which
// blocks arrive nor their number in flight changes one. It never assembles a
// batch, so it knows plans and not digests of tokens.
package preview
