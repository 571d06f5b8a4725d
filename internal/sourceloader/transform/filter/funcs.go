package filter

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// function is one of the functions of the language.
type function struct {
	name  string
	usage string
	arity int
	build func(p *parser, call token, args []node) (node, error)
}

// functions returns the table in the order of the documentation.
func functions() []function {
	return []function{
		{"len", "len(x)", 1, buildLen},
		{"runes", "runes(x)", 1, buildRunes},
		{"tokens", "tokens()", 0, buildTokens},
		{"lower", "lower(x)", 1, buildLower},
		{"startswith", "startswith(x, y)", 2, buildPredicate(bytes.HasPrefix)},
		{"endswith", "endswith(x, y)", 2, buildPredicate(bytes.HasSuffix)},
		{"contains", "contains(x, y)", 2, buildPredicate(bytes.Contains)},
		{"matches", "matches(x, 're')", 2, buildMatches},
	}
}

// call reads the arguments of a call, after its parenthesis.
func (p *parser) call(name token) (node, error) {
	if keywords[name.text] {
		return node{}, p.errorAt(name.pos, "expected a value before %s", name.text)
	}
	table := functions()
	i := slices.IndexFunc(table, func(f function) bool { return f.name == name.text })
	if i < 0 {
		return node{}, p.unknown(name, table)
	}
	f := table[i]
	args, err := p.arguments()
	if err != nil {
		return node{}, err
	}
	if len(args) != f.arity {
		return node{}, p.errorAt(name.pos, "%d arguments given: valid is %s", len(args), f.usage)
	}
	return f.build(p, name, args)
}

func (p *parser) arguments() ([]node, error) {
	if _, none := p.accept(")"); none {
		return nil, nil
	}
	var args []node
	for {
		arg, err := p.or()
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
		if _, more := p.accept(","); !more {
			return args, p.expect(")", "or , after an argument")
		}
	}
}

func (p *parser) unknown(name token, table []function) error {
	usages, names := make([]string, len(table)), make([]string, len(table))
	for i, f := range table {
		usages[i], names[i] = f.usage, f.name
	}
	hint := ""
	if near := slices.Index(names, didyoumean.Nearest(name.text, names)); near >= 0 {
		hint = "did you mean " + usages[near] + "? "
	}
	return p.errorAt(name.pos, "no function is called %s: %sFunctions are %s", name.text, hint, strings.Join(usages, ", "))
}

func buildLen(p *parser, call token, args []node) (node, error) {
	x := args[0]
	if err := p.want(x, text|collection, call.text); err != nil {
		return node{}, err
	}
	return p.computed(call.pos, integer|x.kinds&null, func(in *Input) format.Value {
		v := x.eval(in)
		n := format.Value{Kind: format.Int}
		switch v.Kind {
		case format.String, format.Bytes:
			n.Int = int64(len(v.Bytes))
		case format.Tokens:
			n.Int = int64(len(v.Tokens))
		case format.List:
			n.Int = int64(len(v.List))
		case format.Null:
			n.Kind = format.Null
		default:
			in.fail(call.pos, "len takes a string, a list or tokens, and this is %s", kindName(v.Kind))
			n.Kind = format.Null
		}
		return n
	}, x)
}

func buildTokens(p *parser, call token, _ []node) (node, error) {
	if err := p.wantTokens(call.pos); err != nil {
		return node{}, err
	}
	return leaf(call.pos, integer, func(in *Input) format.Value {
		return format.Value{Kind: format.Int, Int: int64(len(in.Tokens))}
	}), nil
}

func buildRunes(p *parser, call token, args []node) (node, error) {
	return p.ofText(call, args[0], integer, func(_ *Input, s []byte) format.Value {
		return format.Value{Kind: format.Int, Int: int64(utf8.RuneCount(s))}
	})
}

func buildLower(p *parser, call token, args []node) (node, error) {
	return p.ofText(call, args[0], str, func(in *Input, s []byte) format.Value {
		return format.Value{Kind: format.String, Bytes: in.lower(s)}
	})
}

// ofText is a function of one text that is null for null.
func (p *parser) ofText(call token, x node, result kindSet, apply func(*Input, []byte) format.Value) (node, error) {
	if err := p.want(x, text, call.text); err != nil {
		return node{}, err
	}
	return p.computed(call.pos, result|x.kinds&null, func(in *Input) format.Value {
		v := x.eval(in)
		if !in.text(call, &v) {
			return format.Value{}
		}
		return apply(in, v.Bytes)
	}, x)
}

// text reports whether v is a text; anything but null is an error.
func (in *Input) text(call token, v *format.Value) bool {
	if isText(v) {
		return true
	}
	if v.Kind != format.Null {
		in.fail(call.pos, "%s takes a string, and this is %s", call.text, kindName(v.Kind))
	}
	return false
}

// lower appends the lower case of s to the scratch memory. Bytes that are not
// UTF-8 stay as they are.
func (in *Input) lower(s []byte) []byte {
	start := len(in.lowered)
	out := in.lowered
	for len(s) > 0 {
		if c := s[0]; c < utf8.RuneSelf {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			out, s = append(out, c), s[1:]
			continue
		}
		r, n := utf8.DecodeRune(s)
		if r == utf8.RuneError && n == 1 {
			out = append(out, s[0])
		} else {
			out = utf8.AppendRune(out, unicode.ToLower(r))
		}
		s = s[n:]
	}
	in.lowered = out
	return out[start:]
}

// buildPredicate builds a yes-or-no function of two texts.
func buildPredicate(holds func(x, y []byte) bool) func(*parser, token, []node) (node, error) {
	return func(p *parser, call token, args []node) (node, error) {
		for _, arg := range args {
			if err := p.want(arg, text, call.text); err != nil {
				return node{}, err
			}
		}
		x, y := args[0], args[1]
		return p.boolean(call.pos, func(in *Input) bool {
			a, b := x.eval(in), y.eval(in)
			return in.text(call, &a) && in.text(call, &b) && holds(a.Bytes, b.Bytes)
		}, x, y)
	}
}

func buildMatches(p *parser, call token, args []node) (node, error) {
	x, pattern := args[0], args[1]
	if pattern.literal == nil || pattern.literal.Kind != format.String {
		return node{}, p.errorAt(pattern.pos, "the regular expression is a string literal: valid is matches(x, r'[0-9]+')")
	}
	if err := p.want(x, text, call.text); err != nil {
		return node{}, err
	}
	re, err := regexp.Compile(string(pattern.literal.Bytes))
	if err != nil {
		return node{}, p.errorAt(pattern.pos, "%v: the syntax is RE2, without look-around and back-references", err)
	}
	return p.boolean(call.pos, func(in *Input) bool {
		v := x.eval(in)
		return in.text(call, &v) && re.Match(v.Bytes)
	}, x)
}
