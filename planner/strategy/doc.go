// Package strategy decides where the samples of a step go: which row of the global
// batch each is in, which microbatch slot of which DP rank gets each row, and which
// rank encodes each image. It is pure: a decision is a function of the step.
//
// # Primitives
//
// A strategy is a function of a few lines over OVERLORD's primitives (arXiv
// 2504.09844, section 4.2):
//
//	func Text(s *strategy.Step) error {
//		g := s.Graph(dgraph.Text)
//		g.Mix(s.Schedule())
//		g.Distribute("dp", 1)
//		g.Cost(model)
//		g.Balance(strategy.Balance{Method: "auto", Level: strategy.Interleaved})
//		g.BroadcastAt("tp")
//		return g.Plan()
//	}
//
// Graphs of one step share its samples; what one of them decides for images stands
// beside what another decides for rows. They are planned at the same time, and a
// cost model is asked by both. A primitive that is given something
// wrong makes the step fail: those after it do nothing, and Plan returns the error.
//
// The same lines can be written in a job spec; millrace compiles them.
//
// # What may depend on what
//
// The samples of a step are packed into rows before a strategy sees them, by the
// core. A strategy then works on three levels:
//
//   - Intra moves samples between rows so that rows cost alike, under the token cap.
//     It looks at samples and rows only.
//   - Inter gives rows to microbatch slots of DP ranks: equal counts, ranks and
//     slots that cost alike. It changes no row.
//   - Images go to the buckets of their own axis.
//
// At the axis cp (Shape.Pool) the DP x CP ranks are one pool, and each has rows of its own. Where
// rows have several widths (Shape.Widest), as many of them share a row as it is wide: Inter
// then gives rows to aligned groups of ranks, and there is no Intra.
//
// A graph may have the samples of some sources only. Its images are balanced by themselves, as
// an encoder of their own works on them; its samples in rows may only have a cost of their own,
// since rows have samples of all sources.
//
// So the global batch, rows with their numbers and contents, never depends on the
// mesh. Only PlanRaw could break that: a RowMethod sees no mesh.
//
// # Purity
//
// The core calls a strategy again when samples that a step needs are not known yet
// (ErrBlocked), when a change comes after a step was placed ahead, after a restart and on every standby. It must do the same each
// time: no clock, no randomness, no state of its own but constants.
//
// The package owns the primitives, the levels and the parts of a plan that
// constructors get. Of OVERLORD's low-level hooks it has plan_raw (PlanRaw). summary_buffer is what
// Step.Buffer has already; loader_do_plan and constructor_do_plan have no counterpart:
// loaders are asked for blocks ahead of any plan, and what a constructor delivers follows from
// the plan alone, or a batch would depend on more than its step. It never draws a sample (the core does), never
// computes a cost (planner/cost) or a partition (balance), and does no I/O.
package strategy
