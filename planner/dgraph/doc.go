// Package dgraph is the DGraph: the samples of one step as nodes with a state
// each, and the edges between a sample, its images, its row, its microbatch and
// its bucket (OVERLORD, arXiv 2504.09844, section 4.1).
//
// A [Buffer] holds the metadata of a step's samples as columns. A [Graph] is a
// view of it, whose nodes are samples (Text) or images (Image).
// Several graphs share a buffer. Nodes go through the states
//
//	buffered   known to the planner
//	drawn      chosen by the mix for this step
//	placed     has a row, a microbatch and a bucket; an image has an encoder
//	assembled  its row was built
//	delivered  received by every rank that needs it
//
// Edges are columns of indices, so that a graph costs one byte for each node and
// nothing else: sample to image and sample to row transform, row to microbatch to
// bucket group. [Graph.WriteText] and [Graph.WriteDOT] print it, [Graph.Lineage]
// and [Graph.Microbatch] return the destination of a node and the origin of a microbatch.
//
// The package owns metadata and its printing. It decides nothing (planner/strategy
// does), reads no sample, and knows no file or clock: the place of a sample in its
// files comes from a callback. A Graph is not safe for concurrent use; reading a
// Buffer is.
package dgraph
