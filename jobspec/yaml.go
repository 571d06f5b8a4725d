package jobspec

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Limits on the text. They are far above any real spec (300 sources take about
// 100 KB) and keep hostile text from taking the process's stack or memory.
const (
	maxSpecBytes = 1 << 20
	maxDepth     = 50
	maxValues    = 500_000 // after aliases are followed
	maxKeyBytes  = 1000
	maxKeys      = 20_000 // outside of braces, documents and anchors: the parser's time grows with the square of them
	maxInBraces  = 50_000 // keys in braces, which take the parser some 20 µs each
)

type nodeKind uint8

const (
	scalarNode nodeKind = iota
	nullNode            // null, ~ or nothing at all
	listNode
	mapNode
	brokenNode // a finding is made already
)

// node is a YAML value with its place, free of anchors, aliases and merge keys.
// Aliased nodes are shared, so a tree of nodes is read-only.
type node struct {
	kind    nodeKind
	at      position
	text    string // of a scalar, as written less quotes and escapes
	items   []*node
	entries []entry
	values  int // nodes in it, counted as often as they are reached
}

type entry struct {
	key   string
	at    position
	value *node
}

func (n *node) describe() string {
	switch n.kind {
	case nullNode:
		return "is empty"
	case listNode:
		return "is a list"
	case mapNode:
		return "is a group of fields"
	}
	return quote(n.text)
}

// template is a group of one name without a value as it was meant where a text is needed: {name}.
func (n *node) template() (text string, ok bool) {
	if n.kind != mapNode || len(n.entries) != 1 || n.entries[0].value.kind != nullNode {
		return "", false
	}
	return "{" + n.entries[0].key + "}", true
}

// readYAML turns text into nodes. It reports what is wrong and returns nil if
// there is nothing to go on with.
func readYAML(src []byte, r *report) *node {
	if len(src) > maxSpecBytes {
		r.errorAt(position{1, 1}, "", fmt.Sprintf("the spec has %d bytes", len(src)), fmt.Sprintf("valid are at most %d: %s", maxSpecBytes, fewerStages))
		return nil
	}
	if !utf8.Valid(src) {
		r.errorAt(invalidUTF8(src), "", "the text is not UTF-8", cmp.Or(r.noSpec(), "save the file in UTF-8"))
		return nil
	}
	file, err := parseYAML(strings.TrimPrefix(string(src), "\ufeff")) // a byte order mark, as Windows editors write it
	if err != nil {
		at := placeOf(err)
		r.errorAt(at, "", "syntax: "+messageOf(err), cmp.Or(unquoted(string(src), at.line), r.noSpec()))
		return nil
	}
	body := r.onlyDocument(file)
	if body == nil {
		return nil
	}
	c := converter{report: r, anchors: map[string]*node{}}
	root := c.node(body, "")
	if root.values > maxValues {
		r.errorAt(position{1, 1}, "", fmt.Sprintf("the spec holds more than %d values, aliases followed", maxValues), "write less, or fewer aliases")
		return nil
	}
	return root
}

// noSpec doubts that a file of another name than a job spec's is one.
func (r *report) noSpec() string {
	switch filepath.Ext(r.file) {
	case "", ".yaml", ".yml", ".json": // which is YAML, too
		return ""
	}
	return "a job spec is a YAML file, such as job.yaml: name that one"
}

// toQuote is a value that YAML takes for an alias or a group of fields: a glob or a template.
var toQuote = regexp.MustCompile(`[:-]\s+(\*\S*[*?./]\S*|\{[\w.]+\}.*?)\s*$`)

// unquoted says what to quote on a line that is not YAML, "" if nothing is known.
func unquoted(src string, line int) string {
	lines := strings.Split(src, "\n")
	if line > len(lines) {
		return ""
	}
	if m := toQuote.FindStringSubmatch(lines[line-1]); m != nil {
		return "quote it: " + quote(m[1])
	}
	return ""
}

// onlyDocument returns the one document of a file.
func (r *report) onlyDocument(file *ast.File) ast.Node {
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType || doc.Body.Type() == ast.CommentType {
			continue
		}
		bodies = append(bodies, doc.Body)
	}
	switch len(bodies) {
	case 0:
		r.errorAt(position{1, 1}, "", "the spec is empty", "a spec has at least name, sources and batch")
		return nil
	case 1:
		return bodies[0]
	}
	r.errorAt(placeOfNode(bodies[1]), "", "a second YAML document starts here", "a file holds one job spec")
	return nil
}

// parseYAML guards the parser: it recurses on nested values, and no parser is
// trusted not to panic on text that anybody may hand in.
func parseYAML(src string) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, errors.New("this is not YAML that can be read")
		}
	}()
	tokens := lexer.Tokenize(src)
	switch keys, inBraces := countKeys(tokens); {
	case keys > maxKeys:
		return nil, fmt.Errorf("the spec has %d keys outside of braces, documents and anchors, valid are at most %d: write long lists in braces, such as weights: {a: 1, b: 2}, or %s", keys, maxKeys, fewerStages)
	case inBraces > maxInBraces:
		return nil, fmt.Errorf("the spec has %d keys in braces, valid are at most %d: %s", inBraces, maxInBraces, fewerStages)
	}
	if deep := tooDeep(tokens); deep != nil {
		return nil, &yaml.SyntaxError{Message: fmt.Sprintf("values nest more than %d deep", maxDepth), Token: deep}
	}
	// Doubled keys are found here, with both of their lines.
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

// fewerStages is what to do about a spec that is too large: schedules of many stages are what takes the room.
const fewerStages = "have fewer stages, with a ramp between them, or change the mix while the job runs (millrace mix set)"

// countKeys counts the keys outside of braces, with documents and anchors, and the keys in braces. Brackets that are not
// closed take the parser as long as none.
func countKeys(tokens token.Tokens) (outside, inside int) {
	var open []bool // brackets: whether they are braces
	for _, t := range tokens {
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, t.Type == token.MappingStartType)
		case token.MappingEndType, token.SequenceEndType:
			open = open[:max(len(open)-1, 0)]
		case token.DocumentHeaderType, token.AnchorType, token.TagType:
			outside++
		case token.MappingValueType:
			if len(open) > 0 && open[len(open)-1] {
				inside++
			} else {
				outside++
			}
		}
	}
	return outside, inside
}

// tooDeep returns the token at which values nest deeper than maxDepth, or nil.
// Open brackets count, and so do block indicators that follow each other
// ("- - - x"). Nesting by indentation needs no count: its text grows with the
// square of the depth, so that maxSpecBytes bounds it.
func tooDeep(tokens token.Tokens) *token.Token {
	brackets, indicators, line := 0, 0, 0
	for _, t := range tokens {
		property := t.Type == token.TagType || t.Type == token.AnchorType
		if t.Position.Line != line && !property {
			indicators = 0
		}
		line = t.Position.Line
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType, token.TagType, token.AnchorType:
			indicators++
		default:
			indicators = 0
		}
		if brackets+indicators > maxDepth {
			return t
		}
	}
	return nil
}

func placeOf(err error) position {
	if e, ok := errors.AsType[*yaml.SyntaxError](err); ok && e.Token != nil && e.Token.Position != nil {
		return position{e.Token.Position.Line, e.Token.Position.Column}
	}
	return position{1, 1}
}

func messageOf(err error) string {
	if e, ok := errors.AsType[*yaml.SyntaxError](err); ok {
		return e.Message
	}
	return strings.TrimSpace(err.Error())
}

func placeOfNode(n ast.Node) position {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return position{t.Position.Line, t.Position.Column}
	}
	return position{1, 1}
}

func invalidUTF8(src []byte) position {
	at := position{1, 1}
	for len(src) > 0 {
		c, size := utf8.DecodeRune(src)
		if c == utf8.RuneError && size == 1 {
			break
		}
		at.column++
		if c == '\n' {
			at = position{at.line + 1, 1}
		}
		src = src[size:]
	}
	return at
}

// converter turns the parser's tree into nodes.
type converter struct {
	report  *report
	anchors map[string]*node // complete ones only, so that none can hold itself
}

func (c *converter) node(n ast.Node, field string) *node {
	at := placeOfNode(n)
	switch n := n.(type) {
	case *ast.MappingNode:
		return c.mapping(n.Values, at, field)
	case *ast.MappingValueNode:
		return c.mapping([]*ast.MappingValueNode{n}, at, field)
	case *ast.SequenceNode:
		return c.sequence(n, at, field)
	case *ast.AnchorNode:
		v := c.node(n.Value, field)
		c.anchors[n.Name.GetToken().Value] = v
		return v
	case *ast.AliasNode:
		return c.alias(n, at, field)
	case *ast.NullNode:
		return &node{kind: nullNode, at: at, values: 1}
	case *ast.StringNode:
		return &node{at: at, text: n.Value, values: 1}
	case *ast.LiteralNode:
		return &node{at: at, text: n.Value.Value, values: 1}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return &node{at: at, text: n.GetToken().Value, values: 1}
	}
	c.report.errorAt(at, field, fmt.Sprintf("%s is YAML that a spec does not use", quote(n.GetToken().Value)), "valid are plain values, lists, groups of fields, anchors, aliases and merge keys")
	return &node{kind: brokenNode, at: at, values: 1}
}

func (c *converter) alias(n *ast.AliasNode, at position, field string) *node {
	name := n.Value.GetToken().Value
	if v, ok := c.anchors[name]; ok {
		return v
	}
	if strings.ContainsAny(name, "*?./[{") {
		c.report.errorAt(at, field, fmt.Sprintf("*%s is an alias to YAML, as it begins with *", shorten(name)), "quote it: "+quote("*"+name))
		return &node{kind: brokenNode, at: at, values: 1}
	}
	c.report.errorAt(at, field, fmt.Sprintf("the alias *%s has no anchor before it", shorten(name)), fmt.Sprintf("write &%s at the value that is meant", shorten(name)))
	return &node{kind: brokenNode, at: at, values: 1}
}

func (c *converter) sequence(n *ast.SequenceNode, at position, field string) *node {
	list := &node{kind: listNode, at: at, values: 1}
	for i, v := range n.Values {
		item := c.node(v, itemField(field, i))
		list.items = append(list.items, item)
		list.values = min(list.values+item.values, maxValues+1)
	}
	return list
}

// mapping reads the keys of one group. A key that is written wins over a merged
// one, an earlier merge over a later one.
func (c *converter) mapping(values []*ast.MappingValueNode, at position, field string) *node {
	m := &node{kind: mapNode, at: at, values: 1}
	seen := map[string]position{}
	var merged []*node
	for _, v := range values {
		keyAt := placeOfNode(v.Key)
		if v.Key.IsMergeKey() {
			merged = append(merged, c.merge(v.Value, field)...)
			continue
		}
		key, ok := c.key(v.Key, field)
		if !ok {
			continue
		}
		child := childField(field, key)
		first, twice := seen[key]
		if !twice {
			seen[key] = keyAt
		}
		value := c.node(v.Value, child)
		if twice {
			c.report.add(keyAt, child, fmt.Sprintf("is given twice, first on line %d", first.line), "keep one of the two", false)
			continue
		}
		m.add(entry{key, keyAt, value})
	}
	for _, from := range merged {
		for _, e := range from.entries {
			if _, ok := seen[e.key]; !ok {
				seen[e.key] = e.at
				m.add(e)
			}
		}
	}
	return m
}

func (m *node) add(e entry) {
	m.entries = append(m.entries, e)
	m.values = min(m.values+e.value.values, maxValues+1)
}

func (c *converter) key(n ast.MapKeyNode, field string) (string, bool) {
	var key string
	switch n := n.(type) {
	case *ast.StringNode:
		key = n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		key = n.GetToken().Value
	default:
		c.report.add(placeOfNode(n), field, "a key here is not a plain word", "valid keys are words, with quotes where needed", false)
		return "", false
	}
	if len(key) > maxKeyBytes {
		c.report.add(placeOfNode(n), field, fmt.Sprintf("a key here has %d bytes", len(key)), fmt.Sprintf("valid are at most %d", maxKeyBytes), false)
		return "", false
	}
	return key, true
}

// merge returns the groups that a merge key (<<) names.
func (c *converter) merge(n ast.Node, field string) []*node {
	at := placeOfNode(n)
	v := c.node(n, childField(field, "<<"))
	groups := []*node{v}
	if v.kind == listNode {
		groups = v.items
	}
	for _, g := range groups {
		if g.kind != mapNode && g.kind != brokenNode {
			c.report.add(at, field, "a merge key takes groups of fields, this is not one", "valid is an alias such as *base, or a list of them", false)
			return nil
		}
	}
	return groups
}
