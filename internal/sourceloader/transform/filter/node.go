package filter

import (
	"math/bits"
	"strings"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// kindSet is the set of kinds that a value may have at run time: all of them for
// a column, mostly one for anything else.
type kindSet uint16

const (
	null    kindSet = 1 << format.Null
	str     kindSet = 1 << format.String
	integer kindSet = 1 << format.Int
	float   kindSet = 1 << format.Float
	boolean kindSet = 1 << format.Bool
	tokens  kindSet = 1 << format.Tokens

	text       = str | 1<<format.Bytes
	number     = integer | float
	collection = tokens | 1<<format.List
	condition  = boolean
	anything   = null | text | number | boolean | collection
)

// kindNames are the words of the documentation, by format.Kind.
var kindNames = [...]string{
	format.Null: "null", format.String: "string", format.Bytes: "bytes", format.Int: "int",
	format.Float: "float", format.Bool: "bool", format.Tokens: "tokens", format.List: "list",
}

func kindName(k format.Kind) string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown kind"
}

// String lists the kinds: "int or float".
func (s kindSet) String() string {
	var names []string
	for k, name := range kindNames {
		if s&(1<<k) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// group maps kinds that compare with each other onto one; null compares with all.
func (s kindSet) group() kindSet {
	g := s & (boolean | collection)
	if s&text != 0 {
		g |= str
	}
	if s&number != 0 {
		g |= integer
	}
	return g
}

func (s kindSet) count() int { return bits.OnesCount16(uint16(s)) }

// node is a compiled part of an expression.
type node struct {
	pos     int                       // where errors of it point
	kinds   kindSet                   // what it may be
	eval    func(*Input) format.Value // its value
	test    func(*Input) bool         // its value if it is always a bool, else nil
	literal *format.Value             // its value if it is a literal, else nil
	depth   int
}

func leaf(pos int, kinds kindSet, eval func(*Input) format.Value) node {
	return node{pos: pos, kinds: kinds, eval: eval, depth: 1}
}

func constant(pos int, v format.Value) node {
	n := leaf(pos, 1<<v.Kind, func(*Input) format.Value { return v })
	n.literal = &v
	return n
}

// computed is a node over other nodes.
func (p *compiler) computed(pos int, kinds kindSet, eval func(*Input) format.Value, parts ...node) (node, error) {
	n := leaf(pos, kinds, eval)
	for _, part := range parts {
		n.depth = max(n.depth, part.depth+1)
	}
	if n.depth > MaxDepth {
		return node{}, p.errorAt(pos, "nested deeper than %d: %s", MaxDepth, language.TooDeep)
	}
	return n, nil
}

// boolean is a computed node that is true or false, never null.
func (p *compiler) boolean(pos int, test func(*Input) bool, parts ...node) (node, error) {
	n, err := p.computed(pos, boolean, func(in *Input) format.Value { return truth(test(in)) }, parts...)
	n.test = test
	return n, err
}

// condition is n where a yes or no is needed: null counts as no.
func (n node) condition() func(*Input) bool {
	if n.test != nil {
		return n.test
	}
	return func(in *Input) bool {
		v := n.eval(in)
		if v.Kind != format.Bool && v.Kind != format.Null {
			in.fail(n.pos, "a condition is needed here, which is true or false, and this is %s", kindName(v.Kind))
		}
		return v.Kind == format.Bool && v.Int != 0
	}
}

// want checks that n may be one of kinds, or null.
func (p *compiler) want(n node, kinds kindSet, user string) error {
	if n.kinds&(kinds|null) != 0 {
		return nil
	}
	return p.errorAt(n.pos, "%s takes %s, and this is %s", user, kinds, n.kinds)
}

func truth(b bool) format.Value {
	v := format.Value{Kind: format.Bool}
	if b {
		v.Int = 1
	}
	return v
}
