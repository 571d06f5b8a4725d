// Package lint is the tests that keep the tree as docs/architecture.md describes it:
// which package may import which and why, how long files and functions may
// grow, what every package says about itself, and that links of documents lead somewhere.
//
// It owns the rules and the lists of exceptions, each with its reason, and no
// code that anything else uses. It reads the source only, and never runs it.
package lint
