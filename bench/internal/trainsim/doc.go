// Package trainsim simulates how long a training iteration of a vision-language
// model takes under a given placement of its samples: the gain of balancing,
// in virtual time and without a GPU.
//
// It owns the cost of a sample, generators of sample lengths, the 1F1B pipeline
// and the scenes that are compared. It never balances by itself: package balance
// and the planner's core do. It never reads a clock or a file; equal
// scene, models and seed give equal figures.
//
// # Model
//
// The scheme is that of the end-to-end evaluation of MegaScale-Data (arXiv
// 2504.09844, section 7, figure 13): one encoder and one backbone share all GPUs.
//
// A [Transformer] with L layers, hidden size h and a·h² active parameters a layer
// costs L(2ah²s + chs²) FLOPs forward for a sub-sequence of s tokens. The causal
// backbone has c = 2, the encoder, which sees patches both ways, c = 4 and a = 12.
// Attention never crosses samples, so the cost of a microbatch is the sum of its
// samples'. Backward costs twice forward.
//
// One GPU computes one FLOP in one unit of time, in both models. Collectives,
// transfers between stages and the optimizer take none.
//
//   - Encoder: all GPUs are one data-parallel group. The phase lasts as long as
//     its slowest GPU, once an iteration or, with [PerMicrobatch], once for each
//     microbatch.
//   - Backbone: a data-parallel rank of TP·CP·PP GPUs runs its microbatches
//     through PP equal stages in 1F1B order ([OneFOneB]), each at its own cost.
//   - Iteration: the encoder phase and then the slowest rank's pipeline.
//
// # Strategies
//
// [Vanilla] takes samples in arrival order, the same number for each microbatch
// (or, with [NextFit], full rows), and each sample's images stay in the rank that
// owns it. [Backbone] deals all samples by backbone cost. [Hybrid] also deals
// the images over all GPUs by encoder cost.
//
// These deal samples to microbatches without a token cap, so that a microbatch may hold several
// contexts: no job gets that. [Serve] has the core of the service's planner plan steps of the same data, in rows of at
// most the context, and simulates those: [Vanilla] is rows in the order of packing there,
// [Backbone] the balance at level interleaved, [Hybrid] that and images over all ranks.
//
// The yardstick is the ideal iteration: total work over all GPUs, with the bubble
// of a pipeline of equal microbatches. Efficiency is ideal over actual time.
//
// What the paper leaves open (how it packs, how large its images are, where its
// barriers stand) decides the size of a speedup. Scenes make these choices
// explicit; the shape of the result is claimed, not the paper's figures.
package trainsim
