// Package compile turns the strategy section of a job spec into a Strategy: the
// same calls in the same order.
//
// It stands between planner/strategy, which is pure and knows no spec, and
// planner/jobspec, which reads files and knows no strategy. It owns the words
// of the spec for primitives and nothing else.
package compile
