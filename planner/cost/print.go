package cost

import "strings"

// looseness orders operators as the grammar does, from loose to tight.
var looseness = map[string]int{
	"or": 1, "and": 2, "not": 3,
	"==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4,
	"+": 5, "-": 5, "*": 6, "/": 6, "%": 6, "negative": 7,
}

// tight is the precedence of what never needs parentheses.
const tight = 8

func (n *node) precedence() int {
	if p, ok := looseness[n.op]; ok {
		return p
	}
	return tight
}

// String prints the expression with as few parentheses as its grouping needs.
func (n *node) String() string {
	var b strings.Builder
	n.print(&b, 0)
	return b.String()
}

// print writes n where only operators of at least a precedence may stand bare.
func (n *node) print(b *strings.Builder, least int) {
	own := n.precedence()
	if own < least {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	switch {
	case n.op == "number":
		b.WriteString(n.value.String())
	case n.op == "field":
		b.WriteString(n.field.String())
	case n.op == "not":
		b.WriteString("not ")
		n.args[0].print(b, own)
	case n.op == "negative":
		b.WriteByte('-')
		n.args[0].print(b, own)
	case own == tight:
		n.printCall(b)
	default:
		left := own
		if n.isTest && !n.args[0].isTest { // comparisons do not chain
			left++
		}
		n.args[0].print(b, left)
		b.WriteString(" " + n.op + " ")
		n.args[1].print(b, own+1)
	}
}

func (n *node) printCall(b *strings.Builder) {
	b.WriteString(n.op)
	separator := "("
	for _, arg := range n.args {
		b.WriteString(separator)
		arg.print(b, 0)
		separator = ", "
	}
	b.WriteByte(')')
}
