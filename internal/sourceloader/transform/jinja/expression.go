package jinja

import (
	"fmt"
	"slices"
	"strconv"
)

// expression computes a value.
type expression func(s *state) Value

// parser makes statements and expressions of tokens.
type parser struct {
	tokens     []token
	at         int
	loops      int // around what is parsed
	generation bool
	depth      int
}

func (p *parser) peek() token { return p.tokens[min(p.at, len(p.tokens)-1)] }

func (p *parser) line() int {
	if len(p.tokens) == 0 {
		return 1
	}
	return p.peek().line
}

func (p *parser) next() token {
	t := p.peek()
	p.at++
	return t
}

func (p *parser) fail(format string, args ...any) {
	panic(&Error{Line: p.line(), err: failf(format, args...)})
}

// shown is a token in a message.
func (t token) shown() string {
	switch t.kind {
	case dataToken:
		return "text"
	case beginBlock, endBlock, beginValue, endValue:
		return map[kind]string{beginBlock: "{%", endBlock: "%}", beginValue: "{{", endValue: "}}"}[t.kind]
	case endToken:
		return "the end of the template"
	}
	return fmt.Sprintf("%q", t.text)
}

// is reports whether the next token is a sign or a name.
func (p *parser) is(k kind, text string) bool {
	t := p.peek()
	return t.kind == k && t.text == text
}

func (p *parser) skip(k kind, text string) bool {
	if p.is(k, text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) sign(text string) bool { return p.skip(signToken, text) }
func (p *parser) word(text string) bool { return p.skip(nameToken, text) }

func (p *parser) want(k kind, text string) token {
	t := p.peek()
	if t.kind != k || text != "" && t.text != text {
		wanted := text
		if wanted == "" {
			wanted = map[kind]string{nameToken: "a name", endBlock: "%}", endValue: "}}"}[k]
		}
		p.fail("%s where %s is expected", t.shown(), wanted)
	}
	p.at++
	return t
}

// nested parses what may hold itself.
func nested[T any](p *parser, f func() T) T {
	if p.depth++; p.depth > maxDepth {
		p.fail("expressions nest more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	return f()
}

// expression parses a conditional expression.
func (p *parser) expression() expression { return nested(p, p.conditional) }

func (p *parser) conditional() expression {
	yes := p.or()
	for p.word("if") {
		then, test := yes, p.or()
		no := expression(func(*state) Value { return Undefined{"an if without else gives nothing"} })
		if p.word("else") {
			no = p.expression()
		}
		yes = func(s *state) Value {
			if truth(test(s)) {
				return then(s)
			}
			return no(s)
		}
	}
	return yes
}

func (p *parser) or() expression {
	left := p.and()
	for p.word("or") {
		a, b := left, p.and()
		left = func(s *state) Value {
			if v := a(s); truth(v) {
				return v
			}
			return b(s)
		}
	}
	return left
}

func (p *parser) and() expression {
	left := p.not()
	for p.word("and") {
		a, b := left, p.not()
		left = func(s *state) Value {
			if v := a(s); !truth(v) {
				return v
			}
			return b(s)
		}
	}
	return left
}

func (p *parser) not() expression {
	if !p.word("not") {
		return p.comparison()
	}
	v := nested(p, p.not)
	return func(s *state) Value { return !truth(v(s)) }
}

// comparison parses a chain of them: a < b < c is a < b and b < c.
func (p *parser) comparison() expression {
	left := p.sum()
	var ops []string
	var rest []expression
	for {
		op := ""
		switch t := p.peek(); {
		case t.kind == signToken && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text), t.kind == nameToken && t.text == "in":
			op = t.text
			p.at++
		case t.kind == nameToken && t.text == "not" && p.tokens[p.at+1].kind == nameToken && p.tokens[p.at+1].text == "in":
			op = "not in"
			p.at += 2
		}
		if op == "" {
			break
		}
		ops, rest = append(ops, op), append(rest, p.sum())
	}
	if ops == nil {
		return left
	}
	return func(s *state) Value {
		a := left(s)
		for i, op := range ops {
			b := rest[i](s)
			if !compared(op, a, b) {
				return false
			}
			a = b
		}
		return true
	}
}

func compared(op string, a, b Value) bool {
	switch op {
	case "==":
		return equal(a, b)
	case "!=":
		return !equal(a, b)
	case "in":
		return contains(b, a)
	case "not in":
		return !contains(b, a)
	}
	refuseUndefined(a, b)
	order := compare(a, b)
	switch op {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	}
	return order >= 0
}

// binary parses operators of one rank.
func (p *parser) binary(operand func() expression, ops ...string) expression {
	left := operand()
	for {
		t := p.peek()
		if t.kind != signToken || !slices.Contains(ops, t.text) {
			return left
		}
		p.at++
		a, b := left, operand()
		left = func(s *state) Value {
			x := a(s)
			return arithmetic(t.text, x, b(s))
		}
	}
}

func (p *parser) sum() expression     { return p.binary(p.joined, "+", "-") }
func (p *parser) joined() expression  { return p.binary(p.product, "~") }
func (p *parser) product() expression { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() expression {
	return p.binary(func() expression { return p.unary(true) }, "**")
}

func (p *parser) unary(filters bool) expression {
	var v expression
	switch {
	case p.sign("-"):
		x := nested(p, func() expression { return p.unary(false) })
		v = func(s *state) Value { return arithmetic("-", int64(0), x(s)) }
	case p.sign("+"):
		v = nested(p, func() expression { return p.unary(false) })
	default:
		v = p.primary()
	}
	v = p.postfix(v)
	if filters {
		v = p.filters(v)
	}
	return v
}

func constant(v Value) expression { return func(*state) Value { return v } }

func (p *parser) primary() expression {
	switch t := p.next(); {
	case t.kind == nameToken:
		return p.name(t)
	case t.kind == textToken:
		text := t.text
		for p.peek().kind == textToken {
			text += p.next().text
		}
		return constant(text)
	case t.kind == intToken:
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			p.fail("the number %s is too large", t.text)
		}
		return constant(n)
	case t.kind == floatToken:
		f, _ := strconv.ParseFloat(t.text, 64)
		return constant(f)
	case t.kind == signToken && t.text == "(":
		return p.parenthesis()
	case t.kind == signToken && t.text == "[":
		items, _ := p.items("]")
		return func(s *state) Value { return &List{Items: all(s, items)} }
	case t.kind == signToken && t.text == "{":
		return p.dict()
	default:
		p.at--
		p.fail("unexpected %s", t.shown())
	}
	return nil
}

func (p *parser) name(t token) expression {
	switch t.text {
	case "true", "True":
		return constant(true)
	case "false", "False":
		return constant(false)
	case "none", "None":
		return constant(nil)
	}
	return func(s *state) Value {
		s.step()
		return s.lookUp(t.text)
	}
}

// items parses expressions up to a closing bracket.
func (p *parser) items(end string) (items []expression, comma bool) {
	for !p.sign(end) {
		items = append(items, p.expression())
		if !p.is(signToken, end) {
			p.want(signToken, ",")
			comma = true
		}
	}
	return items, comma
}

func all(s *state, items []expression) []Value {
	values := make([]Value, len(items))
	for i := range items {
		values[i] = items[i](s)
	}
	return values
}

func (p *parser) parenthesis() expression {
	items, comma := p.items(")")
	if len(items) == 1 && !comma {
		return items[0]
	}
	return func(s *state) Value { return &List{Items: all(s, items), Tuple: true} }
}

// tuple parses one expression, or several with commas between.
func (p *parser) tuple() expression {
	first := p.expression()
	if !p.is(signToken, ",") {
		return first
	}
	items := []expression{first}
	for p.sign(",") {
		if k := p.peek().kind; k == endBlock || k == endValue {
			break
		}
		items = append(items, p.expression())
	}
	return func(s *state) Value { return &List{Items: all(s, items), Tuple: true} }
}

func (p *parser) dict() expression {
	var keys, values []expression
	for !p.sign("}") {
		keys = append(keys, p.expression())
		p.want(signToken, ":")
		values = append(values, p.expression())
		if !p.is(signToken, "}") {
			p.want(signToken, ",")
		}
	}
	return func(s *state) Value {
		d := NewDict()
		for i := range keys {
			key := keys[i](s)
			if !hashable(key) {
				panic(failf("a %s cannot be a key of a dict", typeName(key)))
			}
			d.Set(key, values[i](s))
		}
		return d
	}
}

// postfix parses attributes, subscripts and calls.
func (p *parser) postfix(v expression) expression {
	for {
		switch {
		case p.sign("."):
			v = p.attribute(v)
		case p.sign("["):
			v = p.subscript(v)
		case p.sign("("):
			v = p.call(v)
		default:
			return v
		}
	}
}

func (p *parser) attribute(of expression) expression {
	t := p.next()
	switch t.kind {
	case nameToken:
		return func(s *state) Value { return attributeOf(of(s), t.text) }
	case intToken:
		n, _ := strconv.ParseInt(t.text, 10, 64)
		return func(s *state) Value { return itemOf(of(s), n) }
	}
	p.at--
	p.fail("%s where a name is expected", t.shown())
	return nil
}

func (p *parser) subscript(of expression) expression {
	var parts [3]expression
	slice := false
	for i := 0; ; {
		switch {
		case p.sign(":"):
			slice = true
			if i++; i > 2 {
				p.fail("a slice has three parts at most")
			}
			continue
		case p.sign("]"):
			if !slice && parts[0] == nil {
				p.fail("an empty subscript")
			}
		default:
			if parts[i] != nil {
				p.want(signToken, "]")
			}
			parts[i] = p.expression()
			continue
		}
		break
	}
	if !slice {
		return func(s *state) Value {
			v := of(s)
			return itemOf(v, parts[0](s))
		}
	}
	return func(s *state) Value {
		v := of(s)
		var bounds [3]Value
		for i, part := range parts {
			if part != nil {
				bounds[i] = part(s)
			}
		}
		return sliceOf(v, bounds)
	}
}
