package filter

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// keywords cannot be column names unless they stand in backquotes.
var keywords = map[string]bool{
	"or": true, "and": true, "not": true, "in": true, "true": true, "false": true, "null": true,
}

// parser reads tokens by recursive descent and builds the closures of the
// expression as it goes: there is no tree between, because nothing else would
// read one.
type parser struct {
	src      string
	scope    Scope
	tokens   []token
	at       int
	depth    int
	usesText bool
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

func (p *parser) expect(word, why string) error {
	if t, ok := p.accept(word); !ok {
		return p.errorAt(t.pos, "expected %s %s", word, why)
	}
	return nil
}

// nested runs parse one level deeper.
func (p *parser) nested(pos int, parse func() (node, error)) (node, error) {
	if p.depth++; p.depth > MaxDepth {
		return node{}, p.tooDeep(pos)
	}
	defer func() { p.depth-- }()
	return parse()
}

func (p *parser) tooDeep(pos int) error {
	return p.errorAt(pos, "nested deeper than %d: split the expression into several filter steps", MaxDepth)
}

func (p *parser) whole() (node, error) {
	n, err := p.or()
	if err != nil {
		return node{}, err
	}
	if t := p.peek(); t.kind != tokEnd {
		return node{}, p.errorAt(t.pos, "expected the end, or an operator such as and, or, ==, <, in, + before this")
	}
	if n.kinds&(condition|null) == 0 {
		return node{}, p.errorAt(n.pos, "a filter is true or false, and this is %s: compare it, as in len(text) > 20", n.kinds)
	}
	return n, nil
}

func (p *parser) or() (node, error) {
	return p.chain(p.and, "or", "||", func(terms []func(*Input) bool) func(*Input) bool {
		return func(in *Input) bool {
			for _, term := range terms {
				if term(in) {
					return true
				}
			}
			return false
		}
	})
}

func (p *parser) and() (node, error) {
	return p.chain(p.not, "and", "&&", func(terms []func(*Input) bool) func(*Input) bool {
		return func(in *Input) bool {
			for _, term := range terms {
				if !term(in) {
					return false
				}
			}
			return true
		}
	})
}

// chain reads operands joined by one operator into one node, so that a long
// chain is wide and not deep.
func (p *parser) chain(operand func() (node, error), word, sign string, join func([]func(*Input) bool) func(*Input) bool) (node, error) {
	first, err := operand()
	if err != nil {
		return node{}, err
	}
	nodes := []node{first}
	for {
		if _, ok := p.accept(word, sign); !ok {
			break
		}
		n, err := operand()
		if err != nil {
			return node{}, err
		}
		nodes = append(nodes, n)
	}
	if len(nodes) == 1 {
		return first, nil
	}
	terms := make([]func(*Input) bool, len(nodes))
	for i, n := range nodes {
		if err := p.want(n, condition, word); err != nil {
			return node{}, err
		}
		terms[i] = n.condition()
	}
	return p.boolean(first.pos, join(terms), nodes...)
}

func (p *parser) not() (node, error) {
	t, ok := p.accept("not", "!")
	if !ok {
		return p.comparison()
	}
	n, err := p.nested(t.pos, p.not)
	if err != nil {
		return node{}, err
	}
	if err := p.want(n, condition, t.text); err != nil {
		return node{}, err
	}
	holds := n.condition()
	return p.boolean(t.pos, func(in *Input) bool { return !holds(in) }, n)
}

func (p *parser) comparison() (node, error) {
	left, err := p.sum()
	if err != nil {
		return node{}, err
	}
	var n node
	if t := p.peek(); t.text == "in" && t.kind == tokName || p.atNotIn() {
		n, err = p.membership(left)
	} else if op, ok := p.accept("==", "!=", "<", "<=", ">", ">="); ok {
		n, err = p.compared(left, op)
	} else {
		return left, nil
	}
	if err != nil {
		return node{}, err
	}
	if t := p.peek(); slices.Contains([]string{"==", "!=", "<", "<=", ">", ">=", "in"}, t.text) && t.kind != tokString || p.atNotIn() {
		return node{}, p.errorAt(t.pos, "comparisons do not chain: write 1 < x and x < 5, or use parentheses")
	}
	return n, nil
}

func (p *parser) atNotIn() bool {
	isName := func(t token, word string) bool { return t.kind == tokName && t.text == word }
	return isName(p.peek(), "not") && isName(p.tokens[p.at+1], "in")
}

// membership reads in or not in and what stands to the right of it.
func (p *parser) membership(left node) (node, error) {
	op := p.take()
	negate := op.text == "not"
	if negate {
		p.take()
	}
	if t, ok := p.accept("["); ok {
		return p.inList(left, op, negate, t)
	}
	right, err := p.sum()
	if err != nil {
		return node{}, err
	}
	if err := p.want(right, text|collection, "the right side of in"); err != nil {
		return node{}, err
	}
	if right.kinds&(collection|null) == 0 {
		if err := p.want(left, text, "the left side of in before a string"); err != nil {
			return node{}, err
		}
	}
	test := func(in *Input) bool {
		l, r := left.eval(in), right.eval(in)
		return contains(in, op.pos, &l, &r) != negate
	}
	return p.boolean(op.pos, test, left, right)
}

// inList reads the literals after in [.
func (p *parser) inList(left node, op token, negate bool, open token) (node, error) {
	var list []format.Value
	var kinds kindSet
	for {
		item, err := p.unary()
		if err != nil {
			return node{}, err
		}
		if item.literal == nil {
			return node{}, p.errorAt(item.pos, "a list holds literals only, such as ['en', 'de'] or [1, 2]")
		}
		list, kinds = append(list, *item.literal), kinds|item.kinds
		if _, more := p.accept(","); !more {
			break
		}
	}
	if err := p.expect("]", "or , after an item of the list"); err != nil {
		return node{}, err
	}
	if types := kinds.group(); types.count() > 1 {
		return node{}, p.errorAt(open.pos, "the list mixes %s: items are all strings, all numbers or all bools (and null)", kinds)
	}
	if err := p.comparable(left, node{kinds: kinds}, op.pos); err != nil {
		return node{}, err
	}
	literals := newLiteralList(list)
	return p.boolean(op.pos, func(in *Input) bool {
		l := left.eval(in)
		return literals.contains(in, op.pos, &l) != negate
	}, left)
}

// compared reads the right side of a comparison.
func (p *parser) compared(left node, op token) (node, error) {
	right, err := p.sum()
	if err != nil {
		return node{}, err
	}
	if err := p.comparable(left, right, op.pos); err != nil {
		return node{}, err
	}
	if op.text != "==" && op.text != "!=" {
		for _, side := range []node{left, right} {
			if err := p.want(side, text|number, op.text); err != nil {
				return node{}, err
			}
		}
	}
	return p.boolean(op.pos, comparison(op, left, right), left, right)
}

// comparable checks what is known before run time of two operands.
func (p *parser) comparable(left, right node, pos int) error {
	l, r := left.kinds.group(), right.kinds.group()
	if l&r == 0 && l != 0 && r != 0 {
		return p.errorAt(pos, "cannot compare %s with %s", left.kinds&^null, right.kinds&^null)
	}
	for _, side := range []kindSet{left.kinds, right.kinds} {
		if side&^collection == 0 {
			return p.errorAt(pos, "%s cannot be compared: use len(x), or in for its elements", side)
		}
	}
	return nil
}

func (p *parser) sum() (node, error)     { return p.arithmetic(p.product, "+", "-") }
func (p *parser) product() (node, error) { return p.arithmetic(p.unary, "*", "/", "%") }

func (p *parser) arithmetic(operand func() (node, error), ops ...string) (node, error) {
	left, err := operand()
	for err == nil {
		op, ok := p.accept(ops...)
		if !ok {
			return left, nil
		}
		var right node
		if right, err = operand(); err == nil {
			left, err = p.calculated(op, left, right)
		}
	}
	return node{}, err
}

func (p *parser) calculated(op token, left, right node) (node, error) {
	takes, result := number, (left.kinds|right.kinds)&number
	switch op.text {
	case "/":
		result = float
	case "%":
		takes, result = integer, integer
	}
	for _, side := range []node{left, right} {
		if err := p.want(side, takes, op.text); err != nil {
			return node{}, err
		}
		result |= side.kinds & null
	}
	eval := func(in *Input) format.Value {
		l, r := left.eval(in), right.eval(in)
		return calculate(in, op, &l, &r)
	}
	return p.computed(op.pos, result, eval, left, right)
}

func (p *parser) unary() (node, error) {
	minus, ok := p.accept("-")
	if !ok {
		return p.primary()
	}
	if t := p.peek(); t.kind == tokNumber {
		p.take()
		return p.number(minus.pos, "-"+t.text)
	}
	n, err := p.nested(minus.pos, p.unary)
	if err != nil {
		return node{}, err
	}
	if err := p.want(n, number, "-"); err != nil {
		return node{}, err
	}
	eval := func(in *Input) format.Value {
		v := n.eval(in)
		return negative(in, minus.pos, &v)
	}
	return p.computed(minus.pos, n.kinds&(number|null), eval, n)
}

func (p *parser) primary() (node, error) {
	t := p.take()
	switch t.kind {
	case tokNumber:
		return p.number(t.pos, t.text)
	case tokString:
		return constant(t.pos, format.Value{Kind: format.String, Bytes: []byte(t.text)}), nil
	case tokColumn:
		return p.column(t)
	case tokName:
		return p.name(t)
	}
	switch t.text {
	case "(":
		n, err := p.nested(t.pos, p.or)
		if err != nil {
			return node{}, err
		}
		return n, p.expect(")", "to close the parenthesis")
	case "[":
		return node{}, p.errorAt(t.pos, "a list stands only to the right of in: lang in ['en', 'de']")
	}
	return node{}, p.errorAt(t.pos, "expected a value: a literal, text, tokens, a column, a function call or a parenthesis")
}

func (p *parser) number(pos int, literal string) (node, error) {
	if strings.ContainsAny(literal, ".eE") {
		f, err := strconv.ParseFloat(literal, 64)
		if err != nil {
			return node{}, p.errorAt(pos, "%s is too large for a float: at most %g", literal, math.MaxFloat64)
		}
		return constant(pos, format.Value{Kind: format.Float, Float: f}), nil
	}
	i, err := strconv.ParseInt(literal, 10, 64)
	if err != nil {
		return node{}, p.errorAt(pos, "%s does not fit in 64 bits: an int is between %d and %d", literal, math.MinInt64, math.MaxInt64)
	}
	return constant(pos, format.Value{Kind: format.Int, Int: i}), nil
}

// name reads what a plain word stands for.
func (p *parser) name(t token) (node, error) {
	if _, ok := p.accept("("); ok {
		return p.nested(t.pos, func() (node, error) { return p.call(t) })
	}
	switch t.text {
	case "true", "false":
		return constant(t.pos, truth(t.text == "true")), nil
	case "null":
		return constant(t.pos, format.Value{}), nil
	case "text":
		p.usesText = true
		return leaf(t.pos, str, func(in *Input) format.Value {
			return format.Value{Kind: format.String, Bytes: in.Text}
		}), nil
	case "tokens":
		if err := p.wantTokens(t.pos); err != nil {
			return node{}, err
		}
		return leaf(t.pos, tokens, func(in *Input) format.Value {
			return format.Value{Kind: format.Tokens, Tokens: in.Tokens}
		}), nil
	}
	if keywords[t.text] {
		return node{}, p.errorAt(t.pos, "expected a value before %s", t.text)
	}
	if lower := strings.ToLower(t.text); keywords[lower] {
		return node{}, p.errorAt(t.pos, "write %s in lower case (or `%s` for a column of that name)", lower, t.text)
	}
	if t.text == "None" {
		return node{}, p.errorAt(t.pos, "write null (or `None` for a column of that name)")
	}
	return p.column(t)
}

func (p *parser) wantTokens(pos int) error {
	if p.scope.Tokens {
		return nil
	}
	return p.errorAt(pos, "there are no tokens yet: put the filter after the tokenize or tokens step (`tokens` in backquotes is the column)")
}

func (p *parser) column(t token) (node, error) {
	place, err := p.scope.Column(t.text)
	if err != nil {
		return node{}, p.errorAt(t.pos, "%v", err)
	}
	return leaf(t.pos, anything, func(in *Input) format.Value { return in.Values[place] }), nil
}
