package cost

import (
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/expr"
	"github.com/millrace-data/millrace/internal/fault"
)

// Limits of an expression: its text is part of the identity of a job, and its
// evaluation is paid for each sample.
const (
	MaxLength = 4096          // bytes
	MaxNodes  = 1000          // operators, calls, fields and numbers
	MaxDepth  = expr.MaxDepth // parentheses, calls and signs within each other
)

// expression is a compiled expression.
type expression struct {
	src      string // as it was written; positions are in it
	text     string // canonical
	program  program
	decimals int // of the program's result
}

// Compile compiles an expression over the fields of a sample, in the language of
// the package comment. Errors are of class fault.User and say where in the
// expression, what is wrong and what would be valid.
func Compile(text string) (Model, error) {
	switch {
	case len(text) > MaxLength:
		return nil, fault.Userf("cost of %d bytes: at most %d are allowed; write a Go function for a model of this size", len(text), MaxLength)
	case strings.TrimSpace(text) == "":
		return nil, fault.Userf("cost: the expression is empty; an example is: tokens * tokens + 24576 * tokens")
	}
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	canonical := root.String() // before it is resolved
	if root, err = (&resolver{text}).resolve(root); err != nil {
		return nil, err
	}
	program, err := compile(text, root)
	if err != nil {
		return nil, err
	}
	return &expression{text, canonical, program, root.decimals}, nil
}

// String returns the canonical text.
func (e *expression) String() string { return e.text }

// Cost evaluates the expression.
func (e *expression) Cost(s Sample) (int64, error) {
	units, failed := e.program.run(s)
	if failed != 0 || units < 0 || s.negative() {
		return 0, e.refuse(s, units, failed)
	}
	if e.decimals > 0 && units > 0 { // round up
		units = (units-1)/powersOfTen[e.decimals] + 1
	}
	return units, nil
}

func (e *expression) refuse(s Sample, units int64, failed failure) error {
	name := fmt.Sprintf("%q", shortened(e.src))
	switch {
	case s.negative():
		return negativeField(name, s)
	case failed == 0:
		return fault.Userf("cost %s: %v for a sample of %v; a cost is 0 or more, as max(0, ...) makes it", name, decimal{units, e.decimals}, s)
	}
	return fault.Userf("cost %s, %s: %v, for a sample of %v", name, expr.Place(e.src, failed.pos()), failed.reason(), s)
}
