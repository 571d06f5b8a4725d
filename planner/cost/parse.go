package cost

import (
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/expr"
)

// language is what expressions over numbers add to the common syntax.
var language = expr.Language{
	Name: "cost", Operand: "tokens", Number: "a product needs its *",
	Values:  "a number, " + strings.Join(fieldNames, ", ") + ", a function call or a parenthesis",
	TooDeep: "write a Go function for a model of this size",
	Hints: map[string]string{
		"^": "tokens * tokens for a square", "?": "if(condition, then, else)", ":": "if(condition, then, else)",
	},
}

// node is a part of an expression: what it says, checked for types.
type node struct {
	op     string // an operator, a function, "number" or "field"
	pos    int    // where errors of it point: the operator, or the beginning
	isTest bool   // true or false, else a number
	value  decimal
	field  field
	args   []*node

	decimals int // of its value; set by the resolver
}

// checker turns a tree into nodes.
type checker struct {
	src   string
	nodes int
}

func errorAt(src string, pos int, format string, args ...any) error {
	return language.Errorf(src, pos, format, args...)
}

func (c *checker) errorAt(pos int, format string, args ...any) error {
	return errorAt(c.src, pos, format, args...)
}

// parse reads an expression whose value is a number.
func parse(src string) (*node, error) {
	tree, err := language.Parse(src)
	if err != nil {
		return nil, err
	}
	c := &checker{src: src}
	n, err := c.node(tree)
	if err != nil {
		return nil, err
	}
	return n, c.want(n, false, "a cost")
}

// make is a node over args, each of which has to be a test or a number.
func (c *checker) make(op string, pos int, isTest, ofTests bool, args ...*node) (*node, error) {
	if c.nodes++; c.nodes > MaxNodes {
		return nil, c.errorAt(pos, "more than %d operators, fields and numbers: write a Go function for a model of this size", MaxNodes)
	}
	for _, arg := range args {
		if err := c.want(arg, ofTests, op); err != nil {
			return nil, err
		}
	}
	return &node{op: op, pos: pos, isTest: isTest, args: args}, nil
}

func (c *checker) want(n *node, test bool, user string) error {
	switch {
	case n.isTest && !test:
		return c.errorAt(n.pos, "%s takes numbers, and this is true or false: if(tokens > 512, 1, 0) makes a number of it", user)
	case !n.isTest && test:
		return c.errorAt(n.pos, "%s takes what is true or false, and this is a number: compare it, as in tokens > 512", user)
	}
	return nil
}

// node checks a part of the tree.
func (c *checker) node(t *expr.Node) (*node, error) {
	args := make([]*node, len(t.Args))
	for i, arg := range t.Args {
		var err error
		if args[i], err = c.node(arg); err != nil {
			return nil, err
		}
	}
	switch {
	case t.Kind == expr.Number:
		return c.number(t)
	case t.Kind == expr.Name:
		return c.name(t)
	case t.Kind == expr.Call:
		return c.call(t, args)
	case t.Text == "-" && len(args) == 1:
		return c.make("negative", t.Pos, false, false, args...)
	}
	connects := t.Text == "and" || t.Text == "or" || t.Text == "not"
	return c.make(t.Text, t.Pos, connects || looseness[t.Text] == looseness["=="], connects, args...)
}

func (c *checker) number(t *expr.Node) (*node, error) {
	value, err := parseDecimal(t.Text)
	if err != nil {
		return nil, c.errorAt(t.Pos, "%s: %v", shortened(t.Text), err)
	}
	n, err := c.make("number", t.Pos, false, false)
	if err == nil {
		n.value = value
	}
	return n, err
}

// name reads what a word stands for.
func (c *checker) name(t *expr.Node) (*node, error) {
	f, ok := fieldNamed(t.Text)
	if ok {
		n, err := c.make("field", t.Pos, false, false)
		if err == nil {
			n.field = f
		}
		return n, err
	}
	if i := slices.Index(functionNames, t.Text); i >= 0 {
		return nil, c.errorAt(t.Pos, "%s is a function: write %s", t.Text, functions[i].usage)
	}
	return nil, c.errorAt(t.Pos, "there is no field %s%s; valid are %s",
		shortened(t.Text), meant(t.Text, slices.Concat(fieldNames, functionNames)), strings.Join(fieldNames, ", "))
}

// functions by name, with how many arguments they take.
var functions = []struct {
	name, usage string
	least, most int
}{
	{"min", "min(x, y, ...)", 2, MaxNodes},
	{"max", "max(x, y, ...)", 2, MaxNodes},
	{"abs", "abs(x)", 1, 1},
	{"sqrt", "sqrt(x)", 1, 1},
	{"if", "if(condition, then, else)", 3, 3},
}

var functionNames = func() (names []string) {
	for _, f := range functions {
		names = append(names, f.name)
	}
	return names
}()

func (c *checker) call(t *expr.Node, args []*node) (*node, error) {
	i := slices.Index(functionNames, t.Text)
	if i < 0 {
		return nil, c.noFunction(t)
	}
	if f := functions[i]; len(args) < f.least || len(args) > f.most {
		return nil, c.errorAt(t.Pos, "write %s: %d arguments are given", f.usage, len(args))
	}
	if t.Text != "if" {
		return c.make(t.Text, t.Pos, false, false, args...)
	}
	if err := c.want(args[0], true, "the condition of if"); err != nil {
		return nil, err
	}
	n, err := c.make("if", t.Pos, false, false, args[1:]...)
	if err == nil {
		n.args = args
	}
	return n, err
}

func (c *checker) noFunction(t *expr.Node) error {
	if _, isField := fieldNamed(t.Text); isField {
		return c.errorAt(t.Pos, "%s is a field, not a function: write it without parentheses", t.Text)
	}
	if shapeNamed(t.Text) != nil {
		return c.errorAt(t.Pos, "%s is a model: it stands alone, not in an expression", t.Text)
	}
	return c.errorAt(t.Pos, "there is no function %s%s; valid are %s", shortened(t.Text), meant(t.Text, functionNames), strings.Join(functionNames, ", "))
}
