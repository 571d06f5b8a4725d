// Package compile turns the strategy section of a job spec into a Strategy: the
// same calls in the same order.
//
// Registry says what the names of strategies and policies stand for in this program.
//
// It stands between planner/strategy, which is pure and knows no spec, and
// jobspec, which reads files and knows no strategy. It owns the words
// of the spec for primitives and nothing else.
package compile
