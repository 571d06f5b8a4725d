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
// Where rows have several widths (Shape.Widest), the DP x CP ranks are one pool, and as
// many of them share a row as it is wide: Inter then gives rows to aligned groups of
// ranks, and there is no Intra.
//
// So the global batch, rows with their numbers and contents, never depends on the
// mesh. Only PlanRaw and methods of a user's own could break that.
//
// # Purity
//
// The core calls a strategy again when samples that a step needs are not known yet
// (ErrBlocked), after a restart and on every standby. It must do the same each
// time: no clock, no randomness, no state of its own but constants.
//
// The package owns the primitives, the levels and the parts of a plan that
// constructors get. OVERLORD's hooks summary_buffer and loader_do_plan have no
// counterpart: a strategy reads the buffer itself, and loaders are asked for blocks
// ahead of any plan. It never draws a sample (the core does), never
// computes a cost (planner/cost) or a partition (balance), and does no I/O.
package strategy
