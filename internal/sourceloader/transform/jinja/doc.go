// Package jinja renders the chat templates of models: the part of Jinja2 that they use, as
// Transformers sets it up (trim_blocks, lstrip_blocks, loop controls, the generation tag, its
// own tojson), with Python's meaning of every value.
//
// It owns the language. A template reads no file, no clock and no environment, cannot
// change what it is given, and has a limit on steps and output; the output depends on the
// template and its variables only. What it does not know is an error when the template is
// parsed, or when it is called; nothing is left out.
package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// Limits of one rendering: real conversations take a few thousand steps, and a loop
// without end must not hold a loader up for long.
const (
	maxSteps = 4 << 20
	maxDepth = 200 // calls of macros and expressions inside each other
	maxRange = 1 << 20
	maxText  = 64 << 20 // bytes of a value
)

// Template is a parsed template. It is read-only and safe for concurrent use.
type Template struct {
	body       []statement
	generation bool // it has a generation tag
}

// Options of one rendering.
type Options struct {
	// Date is the day of strftime_now; nil refuses it, since a template that asks the clock
	// gives other texts on another day.
	Date *Date
	// MaxOutput bounds the text in bytes; 0 is 64 MiB.
	MaxOutput int
}

// Span is a part of the output, in bytes.
type Span struct{ From, To int }

// Error is what is wrong with a template, or with what it was given.
type Error struct {
	Line   int
	Raised bool // by raise_exception of the template
	err    failure
}

func (e *Error) Error() string {
	if e.Raised {
		return fmt.Sprintf("line %d of the template refuses it: %s", e.Line, e.err)
	}
	return fmt.Sprintf("line %d of the template: %s", e.Line, e.err)
}

// failure is a message that a panic of this package carries up to Parse or Render.
type failure string

func failf(format string, args ...any) failure { return failure(fmt.Sprintf(format, args...)) }

// caught makes an error of a failure; other panics go on.
func caught(p any, line int, err *error) {
	switch x := p.(type) {
	case nil:
	case *Error:
		*err = x
	case failure:
		*err = &Error{Line: line, err: x}
	default:
		panic(p)
	}
}

// Parse parses a template. Errors are of type *Error.
func Parse(src string) (t *Template, err error) {
	p := &parser{}
	defer func() { caught(recover(), p.line(), &err) }()
	p.tokens = lex(src)
	t = &Template{body: p.statements()}
	if p.peek().kind != endToken {
		p.fail("unexpected %s", p.peek().shown())
	}
	t.generation = p.generation
	return t, nil
}

// Generation reports whether the template marks what the model is to generate.
func (t *Template) Generation() bool { return t.generation }

// Render renders the template. It returns the text and the parts of it inside of generation
// tags. vars are not changed. Errors are of type *Error.
func (t *Template) Render(vars map[string]Value, opt Options) (text string, generated []Span, err error) {
	s := &state{opt: opt, filters: filters, tests: tests, out: &strings.Builder{}, vars: &scope{names: map[string]Value{}}}
	if s.opt.MaxOutput <= 0 {
		s.opt.MaxOutput = 64 << 20
	}
	defer func() { caught(recover(), s.line, &err) }()
	for name, v := range vars {
		s.vars.names[name] = v
	}
	s.run(t.body)
	return s.out.String(), slices.Clip(s.generated), nil
}

// state is one rendering.
type state struct {
	opt       Options
	vars      *scope
	out       *strings.Builder
	filters   map[string]filter
	tests     map[string]test
	captured  int // blocks and macros whose output is a value
	generated []Span
	line      int
	steps     int
	depth     int
}

// scope are the variables of a block.
type scope struct {
	names map[string]Value
	outer *scope
}

func (s *state) inScope(f func()) {
	outer := s.vars
	s.vars = &scope{outer: outer}
	f()
	s.vars = outer
}

func (s *state) set(name string, v Value) {
	if s.vars.names == nil {
		s.vars.names = map[string]Value{}
	}
	s.vars.names[name] = v
}

func (s *state) lookUp(name string) Value {
	for c := s.vars; c != nil; c = c.outer {
		if v, has := c.names[name]; has {
			return v
		}
	}
	if f, has := globals[name]; has {
		return f
	}
	return Undefined{"'" + name + "' is undefined"}
}

func (s *state) write(text string) {
	if s.out.Len()+len(text) > s.opt.MaxOutput {
		panic(failf("the text is longer than %d bytes", s.opt.MaxOutput))
	}
	s.out.WriteString(text)
}

// step counts work.
func (s *state) step() {
	if s.steps++; s.steps > maxSteps {
		panic(failf("more than %d steps: it may have no end", maxSteps))
	}
}

// deeper runs f one call deeper.
func (s *state) deeper(f func()) {
	if s.depth++; s.depth > maxDepth {
		panic(failf("calls are more than %d deep", maxDepth))
	}
	f()
	s.depth--
}

// capture returns what body writes.
func (s *state) capture(body func()) string {
	outer := s.out
	s.out = &strings.Builder{}
	s.captured++
	body()
	text := s.out.String()
	s.out = outer
	s.captured--
	return text
}
