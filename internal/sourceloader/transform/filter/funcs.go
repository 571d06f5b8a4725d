package filter

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/expr"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// function is one of the functions of the language.
type function struct {
	name  string
	usage string
	arity int
	build func(p *compiler, call *expr.Node, args []node) (node, error)
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

// call compiles the call of a function.
func (p *compiler) call(t *expr.Node, args []node) (node, error) {
	table := functions()
	i := slices.IndexFunc(table, func(f function) bool { return f.name == t.Text })
	if i < 0 {
		return node{}, p.unknown(t, table)
	}
	f := table[i]
	if len(args) != f.arity {
		return node{}, p.errorAt(t.Pos, "%d arguments given: valid is %s", len(args), f.usage)
	}
	return f.build(p, t, args)
}

func (p *compiler) unknown(name *expr.Node, table []function) error {
	usages, names := make([]string, len(table)), make([]string, len(table))
	for i, f := range table {
		usages[i], names[i] = f.usage, f.name
	}
	hint := ""
	if near := slices.Index(names, didyoumean.Nearest(name.Text, names)); near >= 0 {
		hint = "did you mean " + usages[near] + "? "
	}
	return p.errorAt(name.Pos, "no function is called %s: %sFunctions are %s", name.Text, hint, strings.Join(usages, ", "))
}

func buildLen(p *compiler, call *expr.Node, args []node) (node, error) {
	x := args[0]
	if err := p.want(x, text|collection, call.Text); err != nil {
		return node{}, err
	}
	return p.computed(call.Pos, integer|x.kinds&null, func(in *Input) format.Value {
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
			in.fail(call.Pos, "len takes a string, a list or tokens, and this is %s", kindName(v.Kind))
			n.Kind = format.Null
		}
		return n
	}, x)
}

func buildTokens(p *compiler, call *expr.Node, _ []node) (node, error) {
	if err := p.wantTokens(call.Pos); err != nil {
		return node{}, err
	}
	return leaf(call.Pos, integer, func(in *Input) format.Value {
		return format.Value{Kind: format.Int, Int: int64(len(in.Tokens))}
	}), nil
}

func buildRunes(p *compiler, call *expr.Node, args []node) (node, error) {
	return p.ofText(call, args[0], integer, func(_ *Input, s []byte) format.Value {
		return format.Value{Kind: format.Int, Int: int64(utf8.RuneCount(s))}
	})
}

func buildLower(p *compiler, call *expr.Node, args []node) (node, error) {
	return p.ofText(call, args[0], str, func(in *Input, s []byte) format.Value {
		return format.Value{Kind: format.String, Bytes: in.lower(s)}
	})
}

// ofText is a function of one text that is null for null.
func (p *compiler) ofText(call *expr.Node, x node, result kindSet, apply func(*Input, []byte) format.Value) (node, error) {
	if err := p.want(x, text, call.Text); err != nil {
		return node{}, err
	}
	return p.computed(call.Pos, result|x.kinds&null, func(in *Input) format.Value {
		v := x.eval(in)
		if !in.text(call, &v) {
			return format.Value{}
		}
		return apply(in, v.Bytes)
	}, x)
}

// text reports whether v is a text; anything but null is an error.
func (in *Input) text(call *expr.Node, v *format.Value) bool {
	if isText(v) {
		return true
	}
	if v.Kind != format.Null {
		in.fail(call.Pos, "%s takes a string, and this is %s", call.Text, kindName(v.Kind))
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
func buildPredicate(holds func(x, y []byte) bool) func(*compiler, *expr.Node, []node) (node, error) {
	return func(p *compiler, call *expr.Node, args []node) (node, error) {
		for _, arg := range args {
			if err := p.want(arg, text, call.Text); err != nil {
				return node{}, err
			}
		}
		x, y := args[0], args[1]
		return p.boolean(call.Pos, func(in *Input) bool {
			a, b := x.eval(in), y.eval(in)
			return in.text(call, &a) && in.text(call, &b) && holds(a.Bytes, b.Bytes)
		}, x, y)
	}
}

func buildMatches(p *compiler, call *expr.Node, args []node) (node, error) {
	x, pattern := args[0], args[1]
	if pattern.literal == nil || pattern.literal.Kind != format.String {
		return node{}, p.errorAt(pattern.pos, "the regular expression is a string literal: valid is matches(x, r'[0-9]+')")
	}
	if err := p.want(x, text, call.Text); err != nil {
		return node{}, err
	}
	re, err := regexp.Compile(string(pattern.literal.Bytes))
	if err != nil {
		return node{}, p.errorAt(pattern.pos, "%v: the syntax is RE2, without look-around and back-references", err)
	}
	return p.boolean(call.Pos, func(in *Input) bool {
		v := x.eval(in)
		return in.text(call, &v) && re.Match(v.Bytes)
	}, x)
}
