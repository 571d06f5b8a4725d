// Package jobspec is the job spec: what a user writes in YAML to say what is
// trained on, in which mix, in what batches, for which mesh of ranks.
//
// It owns the declaration of every field (type, default, check, doc line): the
// strict decoder, the linter, the printer, the identity, the JSON Schema and
// the reference page (docs/jobspec.md) all walk that one table. It never opens
// a data file (CheckFiles looks whether files are there, no more) and knows
// nothing of the network, of how weights move over steps (planner/plan) or of
// what a filter means (sourceloader/transform).
//
// The way of a spec: text → nodes with positions (yaml.go; anchors, aliases
// and merge keys end here) → Job with the defaults of the table (decode.go) →
// defaults that follow from other fields (derive.go) → rules between fields
// (check.go). Every stage adds findings and goes on, so that one run reports
// all of them.
package jobspec

//go:generate go test . -run ^TestReferencePage$ -rewrite
