package cost

import (
	"cmp"
	"slices"
	"strings"
)

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

// parser reads tokens by recursive descent.
type parser struct {
	src    string
	tokens []token
	at     int
	depth  int
	nodes  int
}

func (p *parser) errorAt(pos int, format string, args ...any) error {
	return errorAt(p.src, pos, format, args...)
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != tokEnd {
		p.at++
	}
	return t
}

// accept takes the next token if it is one of words, as operator or keyword.
func (p *parser) accept(words ...string) (token, bool) {
	t := p.peek()
	if (t.kind == tokOp || t.kind == tokName) && slices.Contains(words, t.text) {
		return p.take(), true
	}
	return t, false
}

// nested runs parse one level deeper.
func (p *parser) nested(pos int, parse func() (*node, error)) (*node, error) {
	if p.depth++; p.depth > MaxDepth {
		return nil, p.errorAt(pos, "nested deeper than %d: write a Go function for a model of this size", MaxDepth)
	}
	defer func() { p.depth-- }()
	return parse()
}

// make is a node over args, each of which has to be a test or a number.
func (p *parser) make(op string, pos int, isTest, ofTests bool, args ...*node) (*node, error) {
	if p.nodes++; p.nodes > MaxNodes {
		return nil, p.errorAt(pos, "more than %d operators, fields and numbers: write a Go function for a model of this size", MaxNodes)
	}
	for _, arg := range args {
		if err := p.want(arg, ofTests, op); err != nil {
			return nil, err
		}
	}
	return &node{op: op, pos: pos, isTest: isTest, args: args}, nil
}

func (p *parser) want(n *node, test bool, user string) error {
	switch {
	case n.isTest && !test:
		return p.errorAt(n.pos, "%s takes numbers, and this is true or false: if(tokens > 512, 1, 0) makes a number of it", user)
	case !n.isTest && test:
		return p.errorAt(n.pos, "%s takes what is true or false, and this is a number: compare it, as in tokens > 512", user)
	}
	return nil
}

func (p *parser) whole() (*node, error) {
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != tokEnd {
		return nil, p.errorAt(t.pos, "expected the end, or an operator such as +, *, < before this")
	}
	return n, p.want(n, false, "a cost")
}

func (p *parser) or() (*node, error)      { return p.binary(p.and, true, true, "or", "||") }
func (p *parser) and() (*node, error)     { return p.binary(p.not, true, true, "and", "&&") }
func (p *parser) sum() (*node, error)     { return p.binary(p.product, false, false, "+", "-") }
func (p *parser) product() (*node, error) { return p.binary(p.unary, false, false, "*", "/", "%") }

// canonical are the operators that are written in two ways.
var canonical = map[string]string{"||": "or", "&&": "and", "!": "not"}

// binary reads operands with operators between, grouped from the left.
func (p *parser) binary(operand func() (*node, error), isTest, ofTests bool, ops ...string) (*node, error) {
	left, err := operand()
	for err == nil {
		op, ok := p.accept(ops...)
		if !ok {
			return left, nil
		}
		var right *node
		if right, err = operand(); err == nil {
			left, err = p.make(cmp.Or(canonical[op.text], op.text), op.pos, isTest, ofTests, left, right)
		}
	}
	return nil, err
}

func (p *parser) not() (*node, error) {
	t, ok := p.accept("not", "!")
	if !ok {
		return p.comparison()
	}
	n, err := p.nested(t.pos, p.not)
	if err != nil {
		return nil, err
	}
	return p.make("not", t.pos, true, true, n)
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) comparison() (*node, error) {
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	op, ok := p.accept(comparisons...)
	if !ok {
		return left, nil
	}
	right, err := p.sum()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); slices.Contains(comparisons, t.text) {
		return nil, p.errorAt(t.pos, "comparisons do not chain: write 1 < tokens and tokens < 5, or use parentheses")
	}
	return p.make(op.text, op.pos, true, false, left, right)
}

func (p *parser) unary() (*node, error) {
	minus, ok := p.accept("-")
	if !ok {
		return p.primary()
	}
	n, err := p.nested(minus.pos, p.unary)
	if err != nil {
		return nil, err
	}
	return p.make("negative", minus.pos, false, false, n)
}

func (p *parser) primary() (*node, error) {
	t := p.take()
	switch {
	case t.kind == tokNumber:
		value, err := parseDecimal(t.text)
		if err != nil {
			return nil, p.errorAt(t.pos, "%s: %v", shortened(t.text), err)
		}
		n, err := p.make("number", t.pos, false, false)
		if err == nil {
			n.value = value
		}
		return n, err
	case t.kind == tokName:
		return p.name(t)
	case t.text == "(":
		n, err := p.nested(t.pos, p.or)
		if err != nil {
			return nil, err
		}
		return n, p.expect(")", "to close the parenthesis")
	}
	return nil, p.errorAt(t.pos, "expected a value: a number, %s, a function call or a parenthesis", strings.Join(fieldNames, ", "))
}

func (p *parser) expect(word, why string) error {
	if t, ok := p.accept(word); !ok {
		return p.errorAt(t.pos, "expected %s %s", word, why)
	}
	return nil
}

// keywords are the names that are operators.
var keywords = []string{"and", "or", "not"}

// name reads what a word stands for.
func (p *parser) name(t token) (*node, error) {
	_, isCall := p.accept("(")
	f, isField := fieldNamed(t.text)
	isFunction := slices.Contains(functionNames, t.text)
	switch {
	case isCall && isFunction:
		return p.nested(t.pos, func() (*node, error) { return p.call(t) })
	case isField && !isCall:
		n, err := p.make("field", t.pos, false, false)
		if err == nil {
			n.field = f
		}
		return n, err
	case slices.Contains(keywords, t.text):
		return nil, p.errorAt(t.pos, "expected a value before %s", t.text)
	case isField:
		return nil, p.errorAt(t.pos, "%s is a field, not a function: write it without parentheses", t.text)
	case isFunction:
		return nil, p.errorAt(t.pos, "%s is a function: write %s", t.text, functions[slices.Index(functionNames, t.text)].usage)
	case isCall && shapeNamed(t.text) != nil:
		return nil, p.errorAt(t.pos, "%s is a model: it stands alone, not in an expression", t.text)
	case isCall:
		return nil, p.errorAt(t.pos, "there is no function %s%s; valid are %s", shortened(t.text), meant(t.text, functionNames), strings.Join(functionNames, ", "))
	}
	return nil, p.errorAt(t.pos, "there is no field %s%s; valid are %s",
		shortened(t.text), meant(t.text, slices.Concat(fieldNames, functionNames)), strings.Join(fieldNames, ", "))
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

// call reads the arguments after the parenthesis.
func (p *parser) call(name token) (*node, error) {
	var args []*node
	for p.peek().text != ")" {
		arg, err := p.or()
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
		if _, more := p.accept(","); !more {
			break
		}
	}
	if err := p.expect(")", "or , after an argument of "+name.text); err != nil {
		return nil, err
	}
	f := functions[slices.Index(functionNames, name.text)]
	if len(args) < f.least || len(args) > f.most {
		return nil, p.errorAt(name.pos, "write %s: %d arguments are given", f.usage, len(args))
	}
	if name.text == "if" {
		if err := p.want(args[0], true, "the condition of if"); err != nil {
			return nil, err
		}
		n, err := p.make("if", name.pos, false, false, args[1:]...)
		if err == nil {
			n.args = args
		}
		return n, err
	}
	return p.make(name.text, name.pos, false, false, args...)
}
