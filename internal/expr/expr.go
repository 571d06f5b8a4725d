// Package expr is the front end of the expression languages of job specs, filters and
// costs: from text to a tree whose nodes know their place, with errors that show it.
//
// It owns the syntax: literals, names, operators and their precedence, calls, limits of
// nesting. It never knows what a name or a function is, checks no types and evaluates
// nothing: each language does that by its own rules.
package expr

import (
	"fmt"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/fault"
)

// MaxDepth bounds the nesting of parentheses, calls and signs.
const MaxDepth = 100

// Language says in what a language differs from others. It is immutable.
type Language struct {
	Name     string            // begins errors, such as "filter"
	Columns  bool              // has column paths, strings, the operators in and not in, and lists
	Reserved []string          // names that are literals: no path goes on after them
	Operand  string            // a name for examples
	Values   string            // what can stand where a value is missing
	Number   string            // what may be meant by letters behind a number
	TooDeep  string            // what to do about too much nesting
	Hints    map[string]string // what to write in place of a character that is not an operator
}

// Kind is the kind of a node.
type Kind uint8

// The kinds of nodes.
const (
	Number   Kind = iota // Text is the literal
	String               // Text is the value
	Name                 // Text is a name or a column path
	Column               // Text is a column path in backquotes
	Operator             // Text is the operator: "and" for &&, "or" for ||, "not" for !; "-" with one operand is a sign
	Call                 // Text is the function
	List                 // to the right of in
)

// Node is a part of an expression.
type Node struct {
	Kind Kind
	Pos  int // byte offset of the operator, or of the beginning
	Text string
	Args []*Node
}

// Errorf returns an error of class fault.User about byte offset pos of src.
func (l *Language) Errorf(src string, pos int, format string, args ...any) error {
	return fault.Userf("%s, %s: %s", l.Name, Place(src, pos), fmt.Sprintf(format, args...))
}

// Place shows byte offset pos of src as a 1-based column in characters, and by what stands
// there.
func Place(src string, pos int) string {
	const most = 24 // enough to find it by eye, short enough for one line
	column, near := utf8.RuneCountInString(src[:pos])+1, []rune(src[pos:])
	switch {
	case len(near) > most:
		return fmt.Sprintf("column %d (%q…)", column, string(near[:most]))
	case len(near) > 0:
		return fmt.Sprintf("column %d (%q)", column, string(near))
	}
	return fmt.Sprintf("column %d (the end)", column)
}
