package jinja

import "slices"

// arguments are those of a call.
type arguments struct {
	values []expression
	names  []string
	named  []expression
}

// arguments parses what follows an opening bracket.
func (p *parser) arguments() (a arguments) {
	for !p.sign(")") {
		t := p.peek()
		if t.kind == signToken && (t.text == "*" || t.text == "**") {
			p.fail("unpacking of arguments is not supported")
		}
		if t.kind == nameToken && p.tokens[p.at+1].kind == signToken && p.tokens[p.at+1].text == "=" {
			p.at += 2
			a.names, a.named = append(a.names, t.text), append(a.named, p.expression())
		} else {
			if a.names != nil {
				p.fail("an argument without a name after one with a name")
			}
			a.values = append(a.values, p.expression())
		}
		if !p.is(signToken, ")") {
			p.want(signToken, ",")
		}
	}
	return a
}

func (a *arguments) of(s *state) (args []Value, kwargs *Dict) {
	args = all(s, a.values)
	if len(a.names) > 0 {
		kwargs = NewDict()
	}
	for i, name := range a.names {
		kwargs.Set(name, a.named[i](s))
	}
	return args, kwargs
}

func (p *parser) call(of expression) expression {
	line, a := p.line(), p.arguments()
	return func(s *state) (v Value) {
		s.step()
		called := of(s)
		f, ok := called.(function)
		if !ok {
			if u, is := called.(Undefined); is {
				panic(failf("%s", u.what))
			}
			panic(failf("a %s cannot be called", typeName(called)))
		}
		args, kwargs := a.of(s)
		s.deeper(func() { v = f(s, args, kwargs) })
		s.line = line
		return v
	}
}

// filters parses filters and tests, and calls of their results.
func (p *parser) filters(v expression) expression {
	for {
		switch {
		case p.sign("|"):
			v = p.filter(v)
		case p.word("is"):
			v = p.test(v)
		case p.sign("("):
			v = p.call(v)
		default:
			return v
		}
	}
}

func (p *parser) filter(of expression) expression {
	name := p.want(nameToken, "").text
	f := filters[name]
	if f == nil {
		p.fail("there is no filter %q", name)
	}
	var a arguments
	if p.sign("(") {
		a = p.arguments()
	}
	return func(s *state) Value {
		s.step()
		v := of(s)
		args, kwargs := a.of(s)
		return f(s, v, given{name, args, kwargs})
	}
}

func (p *parser) test(of expression) expression {
	not := p.word("not")
	name := p.want(nameToken, "").text
	test := tests[name]
	if test == nil {
		p.fail("there is no test %q", name)
	}
	var a arguments
	switch t := p.peek(); {
	case p.sign("("):
		a = p.arguments()
	case t.kind == nameToken && slices.Contains([]string{"else", "or", "and", "if", "in", "not", "is"}, t.text):
	case t.kind == nameToken, t.kind == textToken, t.kind == intToken, t.kind == floatToken,
		t.kind == signToken && (t.text == "(" || t.text == "[" || t.text == "{"):
		a.values = []expression{p.postfix(p.primary())}
	}
	return func(s *state) Value {
		s.step()
		v := of(s)
		args, kwargs := a.of(s)
		return test(s, v, given{name, args, kwargs}) != not
	}
}
