// Package mesh is the ClientPlaceTree: the mesh of trainer ranks as a tree over
// named axes, and the answers that a plan needs from it: which ranks consume the
// same data, which of them fetch it, and whether a batch divides over them.
//
// The package owns rank numbers, buckets, groups and broadcasts. It never sees a
// sample, an address or a message, and it holds no state: every answer is
// computed from a few sizes, in constant time and memory, so a tree of 2^24
// ranks is as small as one of two. Trees and buckets are read-only and safe for
// concurrent use. All errors are of class fault.User.
//
// # Axes
//
// Four axes number the ranks: dp, cp, pp and tp (data, context, pipeline and
// tensor parallel). The order of a mesh names the axis with neighbouring ranks
// first; a rank's number is the sum of coordinate * product of the sizes before
// that axis. This is how Megatron-LM numbers ranks, and the default, tp cp dp pp,
// is its default.
//
// Two more sizes belong to a mesh and add no rank to it:
//
//   - vpp, the virtual pipeline stages on a rank. A rank with two of them still is
//     one rank that gets one batch. It only bounds the count of microbatches
//     (see [Tree.Microbatches]).
//   - ep, expert parallel. Experts are laid over the ranks of dp and cp that hold
//     the same pipeline stage and tensor slice, so ep divides dp * cp. Those ranks
//     still consume their own data: no batch depends on ep. Experts with a
//     tensor parallel size other than tp are not described here.
//
// An order may name vpp and ep, as Megatron's tp-cp-ep-dp-pp does. Their place
// there does not affect rank numbers and is not kept.
//
// # Hierarchy of distribution
//
// The way data is divided is independent of rank numbers. It goes from the top of
// this tree down:
//
//	dp    each index consumes its own samples
//	cp    ranks of one dp index share samples: each takes a slice of the sequence
//	pp    stages share the slice: each takes the tensors it uses
//	tp    ranks share the tensors: all take the same bytes
//
// OVERLORD's distribute(axis, group_size) cuts this tree at the level of an axis
// (arXiv 2504.09844, section 4.2): each node there is a bucket, and the leaves below
// it are the ranks that share the bucket. At dp there are dp buckets; at cp dp * cp
// equal consumers, for hybrid data parallelism; at world each rank is a consumer,
// for an encoder that runs data-parallel on all of them. Buckets are numbered in tree
// order, dp first and tp last; at world by rank. [Tree.Buckets] does this.
//
// With a group size g, each g consecutive buckets form a group, and samples are
// balanced inside a group only. The paper rounds the number of groups up; here g
// divides the number of buckets, so that all groups are equal.
//
// broadcast_at(dim) says that the trainer broadcasts along dim by itself: only the
// rank with index 0 there fetches. With several dims a rank fetches if it is first
// along all of them; with cp, pp and tp, one rank fetches for a whole dp index, which
// is the paper's broadcast at a DP group (section 6.2). A fetcher gets the data of all
// ranks it broadcasts to: all slices of the sequence if cp is among the dims, the tensors of
// all stages if pp is. [Buckets.BroadcastAt] does this.
package mesh
