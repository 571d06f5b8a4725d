package filter

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace-data/millrace/internal/expr"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// language is what filters add to the common syntax.
var language = expr.Language{
	Name: "filter", Columns: true, Reserved: literals, Operand: "x",
	Values:  "a literal, text, tokens, a column, a function call or a parenthesis",
	Number:  "a column name that begins with a digit needs backquotes",
	TooDeep: "split the expression into several filter steps",
}

// literals cannot be column names unless they stand in backquotes; the operators that are
// words cannot either.
var literals = []string{"true", "false", "null"}

// compiler turns a tree into closures.
type compiler struct {
	src      string
	scope    Scope
	usesText bool
}

func (p *compiler) errorAt(pos int, format string, args ...any) error {
	return language.Errorf(p.src, pos, format, args...)
}

func (p *compiler) whole(t *expr.Node) (node, error) {
	n, err := p.node(t)
	if err == nil && n.kinds&(condition|null) == 0 {
		err = p.errorAt(n.pos, "a filter is true or false, and this is %s: compare it, as in len(text) > 20", n.kinds)
	}
	return n, err
}

// node compiles a part of the tree.
func (p *compiler) node(t *expr.Node) (node, error) {
	switch t.Kind {
	case expr.Number:
		return p.number(t.Pos, t.Text)
	case expr.String:
		return constant(t.Pos, format.Value{Kind: format.String, Bytes: []byte(t.Text)}), nil
	case expr.Column:
		return p.column(t)
	case expr.Name:
		return p.name(t)
	}
	switch t.Text {
	case "or", "and":
		return p.chain(t)
	case "in", "not in":
		return p.membership(t)
	case "-":
		if len(t.Args) == 1 && t.Args[0].Kind == expr.Number {
			return p.number(t.Pos, "-"+t.Args[0].Text)
		}
	}
	args, err := p.nodes(t.Args)
	switch {
	case err != nil:
		return node{}, err
	case t.Kind == expr.Call:
		return p.call(t, args)
	case t.Text == "not":
		return p.not(t, args[0])
	case len(args) == 1:
		return p.negated(t, args[0])
	case strings.Contains("+-*/%", t.Text):
		return p.calculated(t, args[0], args[1])
	}
	return p.compared(t, args[0], args[1])
}

func (p *compiler) nodes(parts []*expr.Node) (nodes []node, err error) {
	for _, part := range parts {
		n, err := p.node(part)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// chain compiles operands joined by and, or by or, into one node, so that a long chain is
// wide and not deep.
func (p *compiler) chain(t *expr.Node) (node, error) {
	var parts []*expr.Node
	left := t
	for ; left.Kind == expr.Operator && left.Text == t.Text; left = left.Args[0] {
		parts = append(parts, left.Args[1])
	}
	slices.Reverse(parts)
	nodes, err := p.nodes(append([]*expr.Node{left}, parts...))
	if err != nil {
		return node{}, err
	}
	terms := make([]func(*Input) bool, len(nodes))
	for i, n := range nodes {
		if err := p.want(n, condition, t.Text); err != nil {
			return node{}, err
		}
		terms[i] = n.condition()
	}
	decides := t.Text == "or" // the value of a term that ends the evaluation
	return p.boolean(nodes[0].pos, func(in *Input) bool {
		for _, term := range terms {
			if term(in) == decides {
				return decides
			}
		}
		return !decides
	}, nodes...)
}

func (p *compiler) not(t *expr.Node, n node) (node, error) {
	if err := p.want(n, condition, t.Text); err != nil {
		return node{}, err
	}
	holds := n.condition()
	return p.boolean(t.Pos, func(in *Input) bool { return !holds(in) }, n)
}

// membership compiles in and not in.
func (p *compiler) membership(t *expr.Node) (node, error) {
	negate := t.Text == "not in"
	left, err := p.node(t.Args[0])
	if err != nil {
		return node{}, err
	}
	if t.Args[1].Kind == expr.List {
		return p.inList(t, left, negate)
	}
	right, err := p.node(t.Args[1])
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
		return contains(in, t.Pos, &l, &r) != negate
	}
	return p.boolean(t.Pos, test, left, right)
}

// inList compiles the literals to the right of in.
func (p *compiler) inList(t *expr.Node, left node, negate bool) (node, error) {
	items, err := p.nodes(t.Args[1].Args)
	if err != nil {
		return node{}, err
	}
	var list []format.Value
	var kinds kindSet
	for _, item := range items {
		if item.literal == nil {
			return node{}, p.errorAt(item.pos, "a list holds literals only, such as ['en', 'de'] or [1, 2]")
		}
		list, kinds = append(list, *item.literal), kinds|item.kinds
	}
	if types := kinds.group(); types.count() > 1 {
		return node{}, p.errorAt(t.Args[1].Pos, "the list mixes %s: items are all strings, all numbers or all bools (and null)", kinds)
	}
	if err := p.comparable(left, node{kinds: kinds}, t.Pos); err != nil {
		return node{}, err
	}
	literals := newLiteralList(list)
	return p.boolean(t.Pos, func(in *Input) bool {
		l := left.eval(in)
		return literals.contains(in, t.Pos, &l) != negate
	}, left)
}

func (p *compiler) compared(t *expr.Node, left, right node) (node, error) {
	if err := p.comparable(left, right, t.Pos); err != nil {
		return node{}, err
	}
	if t.Text != "==" && t.Text != "!=" {
		for _, side := range []node{left, right} {
			if err := p.want(side, text|number, t.Text); err != nil {
				return node{}, err
			}
		}
	}
	return p.boolean(t.Pos, comparison(t, left, right), left, right)
}

// comparable checks what is known before run time of two operands.
func (p *compiler) comparable(left, right node, pos int) error {
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

func (p *compiler) calculated(t *expr.Node, left, right node) (node, error) {
	takes, result := number, (left.kinds|right.kinds)&number
	switch t.Text {
	case "/":
		result = float
	case "%":
		takes, result = integer, integer
	}
	for _, side := range []node{left, right} {
		if err := p.want(side, takes, t.Text); err != nil {
			return node{}, err
		}
		result |= side.kinds & null
	}
	eval := func(in *Input) format.Value {
		l, r := left.eval(in), right.eval(in)
		return calculate(in, t, &l, &r)
	}
	return p.computed(t.Pos, result, eval, left, right)
}

func (p *compiler) negated(t *expr.Node, n node) (node, error) {
	if err := p.want(n, number, "-"); err != nil {
		return node{}, err
	}
	eval := func(in *Input) format.Value {
		v := n.eval(in)
		return negative(in, t.Pos, &v)
	}
	return p.computed(t.Pos, n.kinds&(number|null), eval, n)
}

func (p *compiler) number(pos int, literal string) (node, error) {
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

// name compiles what a plain word stands for.
func (p *compiler) name(t *expr.Node) (node, error) {
	switch t.Text {
	case "true", "false":
		return constant(t.Pos, truth(t.Text == "true")), nil
	case "null":
		return constant(t.Pos, format.Value{}), nil
	case "text":
		p.usesText = true
		return leaf(t.Pos, str, func(in *Input) format.Value {
			return format.Value{Kind: format.String, Bytes: in.Text}
		}), nil
	case "tokens":
		if err := p.wantTokens(t.Pos); err != nil {
			return node{}, err
		}
		return leaf(t.Pos, tokens, func(in *Input) format.Value {
			return format.Value{Kind: format.Tokens, Tokens: in.Tokens}
		}), nil
	case "None":
		return node{}, p.errorAt(t.Pos, "write null (or `None` for a column of that name)")
	}
	if lower := strings.ToLower(t.Text); slices.Contains(append(literals, "and", "or", "not", "in"), lower) {
		return node{}, p.errorAt(t.Pos, "write %s in lower case (or `%s` for a column of that name)", lower, t.Text)
	}
	return p.column(t)
}

func (p *compiler) wantTokens(pos int) error {
	if p.scope.Tokens {
		return nil
	}
	return p.errorAt(pos, "there are no tokens yet: put the filter after the tokenize or tokens step (`tokens` in backquotes is the column)")
}

func (p *compiler) column(t *expr.Node) (node, error) {
	place, err := p.scope.Column(t.Text)
	if err != nil {
		return node{}, p.errorAt(t.Pos, "%v", err)
	}
	return leaf(t.Pos, anything, func(in *Input) format.Value { return in.Values[place] }), nil
}
