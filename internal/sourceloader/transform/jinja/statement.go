package jinja

// flow is how a statement ends.
type flow uint8

const (
	goOn flow = iota
	breakLoop
	nextRound
)

// statement writes to the output and sets variables.
type statement func(s *state) flow

func (s *state) run(body []statement) flow {
	for _, do := range body {
		s.step()
		if end := do(s); end != goOn {
			return end
		}
	}
	return goOn
}

// statements parses up to a tag that closes or divides what is around them, the last of ends closes it.
func (p *parser) statements(ends ...string) (body []statement) {
	for {
		switch t := p.peek(); t.kind {
		case dataToken:
			p.at++
			body = append(body, func(s *state) flow {
				s.write(t.text)
				return goOn
			})
		case beginValue:
			p.at++
			v := p.tuple()
			p.want(endValue, "")
			body = append(body, func(s *state) flow {
				s.line = t.line
				s.write(text(v(s)))
				return goOn
			})
		case beginBlock:
			if p.atTag(ends) {
				return body
			}
			p.at++
			line, do := t.line, nested(p, p.tag)
			body = append(body, func(s *state) flow {
				s.line = line
				return do(s)
			})
		default:
			if len(ends) > 0 {
				p.fail("%s where {%% %s %%} is expected", t.shown(), ends[len(ends)-1])
			}
			return body
		}
	}
}

// atTag reports whether one of the tags begins here.
func (p *parser) atTag(names []string) bool {
	for _, name := range names {
		if t := p.tokens[p.at+1]; t.kind == nameToken && t.text == name {
			return true
		}
	}
	return false
}

// endTag takes a tag without anything in it.
func (p *parser) endTag(name string) {
	p.want(beginBlock, "")
	p.want(nameToken, name)
	p.want(endBlock, "")
}

func (p *parser) tag() statement {
	name := p.want(nameToken, "").text
	switch name {
	case "if":
		return p.condition()
	case "for":
		return p.loop()
	case "set":
		return p.assignment()
	case "macro":
		return p.macro()
	case "generation":
		return p.generated()
	case "filter":
		return p.filtered()
	case "with":
		return p.with()
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%s outside of a loop", name)
		}
		p.want(endBlock, "")
		end := map[string]flow{"break": breakLoop, "continue": nextRound}[name]
		return func(*state) flow { return end }
	}
	p.at--
	p.fail("there is no tag %q here; chat templates have if, for, set, macro, generation, filter, with, break and continue", name)
	return nil
}

func (p *parser) condition() statement {
	test := p.tuple()
	p.want(endBlock, "")
	yes := p.statements("elif", "else", "endif")
	var no []statement
	p.want(beginBlock, "")
	switch {
	case p.word("elif"):
		no = []statement{nested(p, p.condition)}
	case p.word("else"):
		p.want(endBlock, "")
		no = p.statements("endif")
		p.endTag("endif")
	default:
		p.want(nameToken, "endif")
		p.want(endBlock, "")
	}
	return func(s *state) flow {
		if truth(test(s)) {
			return s.run(yes)
		}
		return s.run(no)
	}
}

// targets parses the names that a value is assigned to.
func (p *parser) targets() func(s *state, v Value) {
	bracket := p.sign("(")
	names := []string{p.want(nameToken, "").text}
	tuple := bracket
	for p.sign(",") {
		tuple = true
		names = append(names, p.want(nameToken, "").text)
	}
	if bracket {
		p.want(signToken, ")")
	}
	if !tuple {
		return func(s *state, v Value) { s.set(names[0], v) }
	}
	return func(s *state, v Value) {
		items := elements(v)
		if len(items) != len(names) {
			panic(failf("%d values for %d names", len(items), len(names)))
		}
		for i, name := range names {
			s.set(name, items[i])
		}
	}
}

func (p *parser) loop() statement {
	assign := p.targets()
	p.want(nameToken, "in")
	items := p.or()
	var only expression
	if p.word("if") {
		only = p.expression()
	}
	if p.is(nameToken, "recursive") {
		p.fail("recursive loops are not supported")
	}
	p.want(endBlock, "")
	p.loops++
	body := p.statements("else", "endfor")
	p.loops--
	var none []statement
	p.want(beginBlock, "")
	if p.word("else") {
		p.want(endBlock, "")
		none = p.statements("endfor")
		p.want(beginBlock, "")
	}
	p.want(nameToken, "endfor")
	p.want(endBlock, "")
	return func(s *state) flow {
		list := elements(items(s))
		if only != nil {
			list = s.chosen(list, assign, only)
		}
		if !s.rounds(list, assign, body) {
			return s.run(none)
		}
		return goOn
	}
}

// chosen returns the items for which a loop's condition is true.
func (s *state) chosen(list []Value, assign func(*state, Value), only expression) (kept []Value) {
	for _, v := range list {
		s.step()
		s.inScope(func() {
			if assign(s, v); truth(only(s)) {
				kept = append(kept, v)
			}
		})
	}
	return kept
}

// rounds runs the body for each item. ended is whether a round came to the end of the body: where none did, by break or
// continue, Jinja2 runs the else as it does where there was no item.
func (s *state) rounds(list []Value, assign func(*state, Value), body []statement) (ended bool) {
	l := &loop{list: list}
	for l.at = range list {
		end := goOn
		s.inScope(func() {
			s.set("loop", l)
			assign(s, list[l.at])
			end = s.run(body)
		})
		if end == breakLoop {
			break
		}
		ended = ended || end == goOn
	}
	return ended
}

// loop is the variable of that name.
type loop struct {
	list    []Value
	at      int
	changed Value
}

func (l *loop) attribute(name string) (Value, bool) {
	n := len(l.list)
	at := func(i int) Value {
		if i < 0 || i >= n {
			return Undefined{"there is no such item of the loop"}
		}
		return l.list[i]
	}
	switch name {
	case "index":
		return int64(l.at + 1), true
	case "index0":
		return int64(l.at), true
	case "revindex":
		return int64(n - l.at), true
	case "revindex0":
		return int64(n - l.at - 1), true
	case "first":
		return l.at == 0, true
	case "last":
		return l.at == n-1, true
	case "length":
		return int64(n), true
	case "previtem":
		return at(l.at - 1), true
	case "nextitem":
		return at(l.at + 1), true
	case "cycle":
		return function(func(_ *state, args []Value, _ *Dict) Value {
			if len(args) == 0 {
				panic(failf("loop.cycle needs items"))
			}
			return args[l.at%len(args)]
		}), true
	case "changed":
		return function(func(_ *state, args []Value, _ *Dict) Value {
			v := &List{Items: args, Tuple: true}
			same := l.changed != nil && equal(l.changed, v)
			l.changed = v
			return !same
		}), true
	}
	return nil, false
}

func (p *parser) assignment() statement {
	if p.peek().kind == nameToken && p.tokens[p.at+1].kind == signToken && p.tokens[p.at+1].text == "." {
		return p.attributeAssignment()
	}
	assign := p.targets()
	if p.sign("=") {
		v := p.tuple()
		p.want(endBlock, "")
		return func(s *state) flow {
			assign(s, v(s))
			return goOn
		}
	}
	body, after := p.block("endset")
	return func(s *state) flow {
		assign(s, after(s, s.captureBlock(body)))
		return goOn
	}
}

// captured is the name, which no template can write, of the text that filters of a block get.
const captured = "a block"

// block parses filters, the end of the tag, and what is up to the end tag.
func (p *parser) block(end string) ([]statement, func(*state, Value) Value) {
	v := p.filters(func(s *state) Value { return s.lookUp(captured) })
	p.want(endBlock, "")
	body := p.statements(end)
	p.endTag(end)
	return body, func(s *state, text Value) (result Value) {
		s.inScope(func() {
			s.set(captured, text)
			result = v(s)
		})
		return result
	}
}

func (s *state) captureBlock(body []statement) (text string) {
	s.inScope(func() { text = s.capture(func() { s.run(body) }) })
	return text
}

func (p *parser) attributeAssignment() statement {
	name := p.next().text
	p.at++
	key := p.want(nameToken, "").text
	p.want(signToken, "=")
	v := p.tuple()
	p.want(endBlock, "")
	return func(s *state) flow {
		ns, ok := s.lookUp(name).(*namespace)
		if !ok {
			panic(failf("%s is not a namespace: only attributes of one can be set", name))
		}
		ns.Set(key, v(s))
		return goOn
	}
}

func (p *parser) macro() statement {
	name := p.want(nameToken, "").text
	p.want(signToken, "(")
	var names []string
	var defaults []expression
	for !p.sign(")") {
		names = append(names, p.want(nameToken, "").text)
		var v expression
		if p.sign("=") {
			v = p.expression()
		}
		defaults = append(defaults, v)
		if !p.is(signToken, ")") {
			p.want(signToken, ",")
		}
	}
	p.want(endBlock, "")
	loops := p.loops
	p.loops = 0
	body := p.statements("endmacro")
	p.loops = loops
	p.endTag("endmacro")
	return func(s *state) flow {
		s.set(name, s.macro(name, names, defaults, body))
		return goOn
	}
}

// macro makes the function of a macro, which sees the variables that are where it is written.
func (s *state) macro(name string, names []string, defaults []expression, body []statement) function {
	around := s.vars
	return func(s *state, args []Value, kwargs *Dict) Value {
		if len(args) > len(names) {
			panic(failf("macro %s takes %d arguments, not %d", name, len(names), len(args)))
		}
		outer := s.vars
		s.vars = &scope{names: map[string]Value{}, outer: around}
		used := 0
		for i, parameter := range names {
			v, given := kwargs.Get(parameter)
			switch {
			case i < len(args) && given:
				panic(failf("macro %s gets %s twice", name, parameter))
			case i < len(args):
				v = args[i]
			case given:
				used++
			case defaults[i] != nil:
				v = defaults[i](s)
			default:
				v = Undefined{"parameter '" + parameter + "' was not provided"}
			}
			s.set(parameter, v)
		}
		if used < kwargs.Len() {
			panic(failf("macro %s has no argument of one of the names given", name))
		}
		result := s.capture(func() { s.run(body) })
		s.vars = outer
		return result
	}
}

// generated parses a generation tag, whose output the model is to make.
func (p *parser) generated() statement {
	p.want(endBlock, "")
	p.generation = true
	loops := p.loops
	p.loops = 0
	body := p.statements("endgeneration")
	p.loops = loops
	p.endTag("endgeneration")
	return func(s *state) flow {
		if s.captured > 0 {
			panic(failf("generation inside of a macro or a set has no place in the text"))
		}
		from := s.out.Len()
		s.inScope(func() { s.run(body) })
		s.generated = append(s.generated, Span{from, s.out.Len()})
		return goOn
	}
}

func (p *parser) filtered() statement {
	p.at-- // as if the tag's name was the sign of a filter
	p.tokens[p.at] = token{signToken, "|", p.line()}
	body, after := p.block("endfilter")
	return func(s *state) flow {
		s.write(text(after(s, s.captureBlock(body))))
		return goOn
	}
}

func (p *parser) with() statement {
	var names []string
	var values []expression
	for p.peek().kind != endBlock {
		names = append(names, p.want(nameToken, "").text)
		p.want(signToken, "=")
		values = append(values, p.expression())
		if p.peek().kind != endBlock {
			p.want(signToken, ",")
		}
	}
	p.want(endBlock, "")
	body := p.statements("endwith")
	p.endTag("endwith")
	return func(s *state) (end flow) {
		given := all(s, values)
		s.inScope(func() {
			for i, name := range names {
				s.set(name, given[i])
			}
			end = s.run(body)
		})
		return end
	}
}
