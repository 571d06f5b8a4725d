package expr

import "cmp"

// parser reads tokens by recursive descent.
type parser struct {
	*Language
	src    string
	tokens []token
	at     int
	depth  int
}

// Parse returns the tree of an expression. Operators of one precedence group from the
// left. Errors are of class fault.User and say where, what is wrong and what would be
// valid. It takes time in proportion to the length of src; its caller bounds that.
func (l *Language) Parse(src string) (*Node, error) {
	tokens, err := l.lex(src)
	if err != nil {
		return nil, err
	}
	p := &parser{Language: l, src: src, tokens: tokens}
	n, err := p.or()
	if err != nil {
		return nil, err
	}
	if t := p.peek(); t.kind != end {
		return nil, p.fail(t.pos, "expected the end, or an operator such as and, ==, <, + before this")
	}
	return n, nil
}

func (p *parser) fail(pos int, format string, args ...any) error {
	return p.Errorf(p.src, pos, format, args...)
}

func (p *parser) peek() token { return p.tokens[p.at] }

func (p *parser) take() token {
	t := p.tokens[p.at]
	if t.kind != end {
		p.at++
	}
	return t
}

// accept takes the next token if it is one of words.
func (p *parser) accept(words ...string) (token, bool) {
	t := p.peek()
	if t.is(words...) {
		return p.take(), true
	}
	return t, false
}

func (p *parser) expect(word, why string) error {
	if t, ok := p.accept(word); !ok {
		return p.fail(t.pos, "expected %s %s", word, why)
	}
	return nil
}

// nested runs parse one level deeper.
func (p *parser) nested(pos int, parse func() (*Node, error)) (*Node, error) {
	if p.depth++; p.depth > MaxDepth {
		return nil, p.fail(pos, "nested deeper than %d: %s", MaxDepth, p.TooDeep)
	}
	defer func() { p.depth-- }()
	return parse()
}

func (p *parser) or() (*Node, error)      { return p.binary(p.and, "or", "||") }
func (p *parser) and() (*Node, error)     { return p.binary(p.not, "and", "&&") }
func (p *parser) sum() (*Node, error)     { return p.binary(p.product, "+", "-") }
func (p *parser) product() (*Node, error) { return p.binary(p.unary, "*", "/", "%") }

// words are the operators that are written in two ways.
var words = map[string]string{"||": "or", "&&": "and", "!": "not"}

func operator(t token, args ...*Node) *Node {
	return &Node{Kind: Operator, Pos: t.pos, Text: cmp.Or(words[t.text], t.text), Args: args}
}

// binary reads operands with operators between.
func (p *parser) binary(operand func() (*Node, error), ops ...string) (*Node, error) {
	left, err := operand()
	for err == nil {
		op, ok := p.accept(ops...)
		if !ok {
			return left, nil
		}
		var right *Node
		if right, err = operand(); err == nil {
			left = operator(op, left, right)
		}
	}
	return nil, err
}

// unaryOf reads an operator of one operand, or what stands in its place.
func (p *parser) unaryOf(operand, otherwise func() (*Node, error), ops ...string) (*Node, error) {
	t, ok := p.accept(ops...)
	if !ok {
		return otherwise()
	}
	n, err := p.nested(t.pos, operand)
	if err != nil {
		return nil, err
	}
	return operator(t, n), nil
}

func (p *parser) not() (*Node, error)   { return p.unaryOf(p.not, p.comparison, "not", "!") }
func (p *parser) unary() (*Node, error) { return p.unaryOf(p.unary, p.primary, "-") }

// relation takes an operator that compares.
func (p *parser) relation() (token, bool) {
	if t, ok := p.accept("==", "!=", "<", "<=", ">", ">="); ok || !p.Columns {
		return t, ok
	}
	if t := p.peek(); t.kind == Name && t.text == "not" && p.tokens[p.at+1].kind == Name && p.tokens[p.at+1].text == "in" {
		p.at += 2
		return token{Name, t.pos, "not in"}, true
	}
	return p.accept("in")
}

func (p *parser) comparison() (*Node, error) {
	left, err := p.sum()
	if err != nil {
		return nil, err
	}
	op, ok := p.relation()
	if !ok {
		return left, nil
	}
	right := p.sum
	if open := p.peek(); open.is("[") && (op.text == "in" || op.text == "not in") {
		right = p.list
	}
	n, err := right()
	if err != nil {
		return nil, err
	}
	if t, more := p.relation(); more {
		return nil, p.fail(t.pos, "comparisons do not chain: write 1 < %[1]s and %[1]s < 5, or use parentheses", p.Operand)
	}
	return operator(op, left, n), nil
}

func (p *parser) list() (*Node, error) {
	n := &Node{Kind: List, Pos: p.take().pos}
	for {
		item, err := p.unary()
		if err != nil {
			return nil, err
		}
		n.Args = append(n.Args, item)
		if _, more := p.accept(","); !more {
			return n, p.expect("]", "or , after an item of the list")
		}
	}
}

func (p *parser) primary() (*Node, error) {
	t := p.take()
	switch {
	case t.kind == Name && p.isOperator(t.text):
		return nil, p.fail(t.pos, "expected a value before %s", t.text)
	case t.kind == Name && p.peek().is("("):
		return p.nested(t.pos, func() (*Node, error) { return p.call(t) })
	case t.kind < Operator:
		return &Node{Kind: t.kind, Pos: t.pos, Text: t.text}, nil
	case t.text == "(":
		n, err := p.nested(t.pos, p.or)
		if err != nil {
			return nil, err
		}
		return n, p.expect(")", "to close the parenthesis")
	case t.text == "[":
		return nil, p.fail(t.pos, "a list stands only to the right of in: lang in ['en', 'de']")
	}
	return nil, p.fail(t.pos, "expected a value: %s", p.Values)
}

// call reads the arguments of a function; a comma may follow the last.
func (p *parser) call(name token) (*Node, error) {
	n := &Node{Kind: Call, Pos: name.pos, Text: name.text}
	p.take()
	for !p.peek().is(")") {
		arg, err := p.or()
		if err != nil {
			return nil, err
		}
		n.Args = append(n.Args, arg)
		if _, more := p.accept(","); !more {
			break
		}
	}
	return n, p.expect(")", "or , after an argument of "+name.text)
}
