package tokenize

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// parsePattern compiles a regular expression. It takes literals, sets in
// brackets (with ranges, ^, && and sets in sets), \p{..} of the classes it knows, \s \S \d
// \D \w \W, the usual escapes, ? * + {n,m} on one character or set (lazy, and
// possessive), ? on a group, groups with (?: and (?i:, lookahead, and $. Anything
// else is an error that names it.
func parsePattern(src string) (p *pattern, err error) {
	defer func() {
		if r := recover(); r != nil {
			bad, ok := r.(badPattern)
			if !ok {
				panic(r)
			}
			p, err = nil, bad
		}
	}()
	c := &patternParser{src: src, bits: map[runeSet]int{}}
	start := c.alternatives(nil)
	if c.at < len(src) {
		c.fail("an unmatched )")
	}
	p = &pattern{}
	p.pack(c.sets)
	first, empty := c.firstOf(start)
	if empty {
		c.fail("it matches nothing, between characters, too")
	}
	p.start, p.first = start, first
	return p, nil
}

// badPattern is what a pattern has that is not supported. The parser panics with
// it, and parsePattern returns it.
type badPattern string

func (b badPattern) Error() string { return string(b) }

// patternParser is the state of parsing.
type patternParser struct {
	src  string
	at   int
	fold bool
	sets []*runeSet
	bits map[runeSet]int
}

func (c *patternParser) fail(format string, args ...any) {
	panic(badPattern(fmt.Sprintf(format, args...)))
}

func (c *patternParser) more() bool { return c.at < len(c.src) }

// take reads s if it comes next.
func (c *patternParser) take(s string) bool {
	if strings.HasPrefix(c.src[c.at:], s) {
		c.at += len(s)
		return true
	}
	return false
}

// rune reads a character.
func (c *patternParser) rune() rune {
	if !c.more() {
		c.fail("its end where a character is to come")
	}
	r, w := utf8.DecodeRuneInString(c.src[c.at:])
	c.at += w
	return r
}

// bit returns the bit of a set in masks.
func (c *patternParser) bit(s *runeSet) uint64 {
	k, ok := c.bits[*s]
	if !ok {
		k = len(c.sets)
		if k == maxSets {
			c.fail("more than %d different characters and sets", maxSets)
		}
		c.bits[*s] = k
		c.sets = append(c.sets, s)
	}
	return 1 << k
}

// part is what has been parsed of a sequence: it is linked from its end, because a
// node knows what follows it.
type part func(next *node) *node

// alternatives parses up to a ) or the end. What matches is followed by next.
func (c *patternParser) alternatives(next *node) *node { return c.group()(next) }

func (c *patternParser) group() part {
	branches := []part{c.sequence()}
	for c.take("|") {
		branches = append(branches, c.sequence())
	}
	if len(branches) == 1 {
		return branches[0]
	}
	return func(next *node) *node {
		n := &node{kind: altNode}
		for _, b := range branches {
			n.alts = append(n.alts, b(next))
		}
		return n
	}
}

func (c *patternParser) sequence() part {
	var parts []part
	last := rune(-1)
	for c.more() && c.src[c.at] != '|' && c.src[c.at] != ')' {
		from := c.at
		parts = append(parts, c.item())
		if c.fold { // characters that fold to several, such as the long s with t
			r, _ := utf8.DecodeRuneInString(c.src[from:])
			if pair := strings.ToLower(string([]rune{last, r})); slices.Contains([]string{"ss", "st", "ff", "fi", "fl"}, pair) {
				c.fail("%q without regard to case", pair)
			}
			last = r
		}
	}
	return func(next *node) *node {
		for _, p := range slices.Backward(parts) {
			next = p(next)
		}
		return next
	}
}

// item parses a character, set, group or assertion, with its quantifier.
func (c *patternParser) item() part {
	switch {
	case c.take("(?="), c.take("(?!"):
		not := c.src[c.at-1] == '!'
		body := c.group()
		c.close()
		ahead := &node{kind: aheadNode, not: not, alts: []*node{body(nil)}}
		return func(next *node) *node {
			n := *ahead
			n.next = next
			return &n
		}
	case c.take("$"):
		return func(next *node) *node { return &node{kind: endNode, next: next} }
	case c.take("("):
		return c.grouped()
	}
	set := c.char()
	least, most, take := c.quantifier()
	bit := c.bit(set)
	return func(next *node) *node {
		return &node{kind: charNode, next: next, set: bit, least: least, most: most, take: take}
	}
}

func (c *patternParser) close() {
	if !c.take(")") {
		c.fail("an unmatched (")
	}
}

// grouped parses a group behind its parenthesis.
func (c *patternParser) grouped() part {
	was := c.fold
	switch {
	case c.take("?i:"):
		c.fold = true
	case c.take("?:"), c.more() && c.src[c.at] != '?':
	default:
		c.fail("a group (%.3s", c.src[c.at:])
	}
	body := c.group()
	c.close()
	c.fold = was
	switch least, most, take := c.quantifier(); {
	case least == 1 && most == 1:
		return body
	case least == 0 && most == 1 && take == greedy:
		return func(next *node) *node {
			return &node{kind: altNode, alts: []*node{body(next), next}}
		}
	}
	c.fail("a group that is repeated")
	return nil
}

// quantifier parses ?, *, + or {n,m} and what follows it, or nothing.
func (c *patternParser) quantifier() (least, most int, how take) {
	braces := false
	switch {
	case c.take("?"):
		least, most = 0, 1
	case c.take("*"):
		least, most = 0, -1
	case c.take("+"):
		least, most = 1, -1
	case c.take("{"):
		least, most = c.counts()
		braces = true
	default:
		return 1, 1, greedy
	}
	switch {
	case braces && c.more() && strings.ContainsRune("?+", rune(c.src[c.at])):
		c.fail("a quantifier {n,m} with %c behind it", c.src[c.at])
	case c.take("?"):
		how = lazy
	case c.take("+"):
		how = possessive
	}
	if c.more() && strings.ContainsRune("?*+{", rune(c.src[c.at])) {
		c.fail("a quantifier of a quantifier")
	}
	return least, most, how
}

// counts parses n}, n,}, ,m} or n,m}.
func (c *patternParser) counts() (least, most int) {
	text, _, found := strings.Cut(c.src[c.at:], "}")
	lo, hi, ranged := strings.Cut(text, ",")
	number := func(s string, without int) int {
		if s == "" && ranged {
			return without
		}
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || n > 1000 {
			c.fail("a quantifier {%.10s", text)
		}
		return n
	}
	if !found || text == "," {
		c.fail("a { that is not a quantifier")
	}
	c.at += len(text) + 1
	least, most = number(lo, 0), number(hi, -1)
	if !ranged {
		most = least
	}
	if most >= 0 && most < least || most == 0 {
		c.fail("a quantifier {%.10s}", text)
	}
	return least, most
}

// char parses a character or a set.
func (c *patternParser) char() *runeSet {
	s := new(runeSet)
	switch r := c.rune(); r {
	case '[':
		s = c.bracket()
	case '.':
		s.add('\n', '\n')
		s.invert()
	case '\\':
		s = c.escape()
	case '^', '*', '+', '?', '{':
		c.fail("%q at this place", r)
	default:
		s.add(r, r)
	}
	if c.fold {
		c.foldSet(s)
	}
	return s
}

// foldSet adds the other cases of all members.
func (c *patternParser) foldSet(s *runeSet) {
	was := *s
	was.each(func(r rune) {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			s.add(f, f)
		}
	})
}

// escapes are the characters with a name.
var escapes = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b}

// escape parses what follows a backslash.
func (c *patternParser) escape() *runeSet {
	s := new(runeSet)
	r := c.rune()
	switch {
	case r == 'p' || r == 'P':
		return c.property(r == 'P')
	case strings.ContainsRune("sSdDwW", r):
		*s = *namedSets()[map[rune]string{'s': "space", 'd': "Nd", 'w': "word"}[unicode.ToLower(r)]]
		if unicode.IsUpper(r) {
			s.invert()
		}
		return s
	}
	r = c.escaped(r)
	s.add(r, r)
	return s
}

// escaped is the one character that \r stands for.
func (c *patternParser) escaped(r rune) rune {
	if named, ok := escapes[r]; ok {
		return named
	}
	digits := 0
	switch {
	case r == 'u':
		digits = 4
	case r == 'x' && c.take("{"):
		text, _, _ := strings.Cut(c.src[c.at:], "}")
		c.at += len(text) + 1
		return c.hex(text)
	case r == 'x':
		digits = 2
	case r >= utf8.RuneSelf || unicode.IsLetter(r) || unicode.IsDigit(r):
		c.fail("\\%c", r)
	default:
		return r
	}
	if c.at+digits > len(c.src) {
		c.fail("\\%c", r)
	}
	c.at += digits
	return c.hex(c.src[c.at-digits : c.at])
}

func (c *patternParser) hex(text string) rune {
	n, err := strconv.ParseUint(text, 16, 32)
	if err != nil || !utf8.ValidRune(rune(n)) || c.at > len(c.src) {
		c.fail("the code point %.10q", text)
	}
	return rune(n)
}

// property parses what follows \p or \P.
func (c *patternParser) property(not bool) *runeSet {
	if !c.take("{") {
		c.fail("\\p without braces")
	}
	name, _, found := strings.Cut(c.src[c.at:], "}")
	if !found {
		c.fail("\\p{ without a brace at its end")
	}
	c.at += len(name) + 1
	bare, hat := strings.CutPrefix(name, "^")
	known := []string{"L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "Nd", "P", "S", "Han", "Hiragana", "Katakana", "Hangul"}
	if !slices.Contains(known, bare) {
		c.fail("\\p{%s}; known are %s", bare, strings.Join(known, ", "))
	}
	s := *namedSets()[bare]
	if not != hat {
		s.invert()
	}
	return &s
}

// bracket parses a set behind its bracket.
func (c *patternParser) bracket() *runeSet {
	not := c.take("^")
	all, s := (*runeSet)(nil), new(runeSet)
	for empty := true; ; empty = false {
		switch {
		case !empty && c.take("]"):
			if all != nil {
				s.intersect(all)
			}
			if not {
				s.invert()
			}
			return s
		case c.take("&&"):
			if all != nil {
				s.intersect(all)
			}
			all, s = s, new(runeSet)
		case c.take("[:"), empty && c.take("]"):
			c.fail("%q in a set", c.src[c.at-1:c.at])
		case c.take("["):
			s.union(c.bracket())
		default:
			c.member(s)
		}
	}
}

// member parses a character, range or class of a set.
func (c *patternParser) member(s *runeSet) {
	one := func() (rune, *runeSet) {
		r := c.rune()
		if r != '\\' {
			return r, nil
		}
		if strings.HasPrefix(c.src[c.at:], "b") {
			c.fail("\\b in a set")
		}
		class, count, only := c.escape(), 0, rune(0)
		class.each(func(r rune) { count, only = count+1, r })
		if count == 1 {
			return only, nil
		}
		return 0, class
	}
	lo, class := one()
	if class != nil {
		s.union(class)
		return
	}
	rest := c.src[c.at:]
	if !strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, "-]") {
		s.add(lo, lo)
		return
	}
	c.at++
	hi, class := one()
	if class != nil || hi < lo {
		c.fail("a range that is none in a set")
	}
	s.add(lo, hi)
}

// firstOf returns the sets with which a match of n begins, and whether it may
// be empty; it notes those of alternatives.
func (c *patternParser) firstOf(n *node) (first uint64, empty bool) {
	if n == nil {
		return 0, true
	}
	switch n.kind {
	case charNode:
		if first = n.set; n.least > 0 {
			c.firstOf(n.next)
			return first, false
		}
		rest, empty := c.firstOf(n.next)
		return first | rest, empty
	case altNode:
		n.first = nil
		for _, alt := range n.alts {
			f, e := c.firstOf(alt)
			if first |= f; e {
				f = 0 // an alternative that may be empty is always tried
			}
			n.first, empty = append(n.first, f), empty || e
		}
		return first, empty
	}
	for _, alt := range n.alts {
		c.firstOf(alt)
	}
	return c.firstOf(n.next)
}

// pack lays out the sets of every character.
func (p *pattern) pack(sets []*runeSet) {
	flat := make([]uint64, utf8.MaxRune+1)
	for k, s := range sets {
		s.each(func(r rune) { flat[r] |= 1 << k })
	}
	copy(p.ascii[:], flat)
	ids := map[uint64]uint16{}
	seen := map[[1 << blockBits]uint16]uint16{}
	for i := range p.index {
		var block [1 << blockBits]uint16
		for k, mask := range flat[i<<blockBits : (i+1)<<blockBits] {
			id, ok := ids[mask]
			if !ok {
				id = uint16(len(p.masks))
				ids[mask], p.masks = id, append(p.masks, mask)
			}
			block[k] = id
		}
		at, ok := seen[block]
		if !ok {
			at = uint16(len(p.blocks))
			seen[block], p.blocks = at, append(p.blocks, block)
		}
		p.index[i] = at
	}
}
