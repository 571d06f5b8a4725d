package tokenize

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// parsePattern compiles a regular expression. It takes literals, sets in
// brackets (with ranges, ^, && and sets in sets), \p{..} of the classes it knows, \s \S \d
// \D \w \W, the usual escapes, ? * + {n,m} on one character or set (lazy, and
// possessive), ? on a group, groups with (?: and (?i:, lookahead, and $. Anything
// else is an error that names it.
func parsePattern(src string) (*pattern, error) {
	sets := namedSets()
	return parsePatternWith(src, sets["word in brackets"], sets["word alone"])
}

// parsePatternWith is parsePattern with another \w, which in Oniguruma is not the same in brackets and alone.
func parsePatternWith(src string, word, wordAlone *runeSet) (p *pattern, err error) {
	defer func() {
		if r := recover(); r != nil {
			bad, ok := r.(badPattern)
			if !ok {
				panic(r)
			}
			p, err = nil, bad
		}
	}()
	c := &patternParser{src: src, word: word, wordAlone: wordAlone, last: noRune, bits: map[runeSet]int{}}
	start := c.alternatives(nil)
	if c.at < len(src) {
		c.fail("an unmatched )")
	}
	p = &pattern{revised: c.revised}
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
	src             string
	at              int
	fold            bool
	word, wordAlone *runeSet // \w in brackets and outside
	last            rune     // the literal before, or noRune
	loops           uint8    // that have a number
	sets            []*runeSet
	bits            map[runeSet]int
	revised         bool // see pattern
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
		c.follow(noRune)
		branches = append(branches, c.sequence())
	}
	if len(branches) == 1 {
		return branches[0]
	}
	c.follow(noRune)
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
	for c.more() && c.src[c.at] != '|' && c.src[c.at] != ')' {
		parts = append(parts, c.item())
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
		c.follow(noRune)
		body := c.group()
		c.close()
		c.follow(noRune)
		ahead := &node{kind: aheadNode, not: not, alts: []*node{body(nil)}}
		return func(next *node) *node {
			n := *ahead
			n.next = next
			return &n
		}
	case c.take("$"):
		c.follow(noRune)
		return func(next *node) *node { return &node{kind: endNode, next: next} }
	case c.take("("):
		return c.grouped()
	}
	set, literal := c.char()
	least, most, take := c.quantifier()
	if least != 1 || most != 1 {
		literal = noRune
	}
	c.follow(literal)
	bit := c.bit(set)
	return func(next *node) *node {
		n := &node{kind: charNode, next: next, set: bit, least: least, most: most, take: take}
		if most < 0 && next != nil && c.loops < maxLoops {
			c.loops++
			n.loop = c.loops
		}
		return n
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
		if c.fold = true; !was { // what is before is of another kind
			c.last = noRune
		}
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
	p.words = ^uint64(0)
	for r, in := range p.ascii {
		if isLetter := 'a' <= r|0x20 && r|0x20 <= 'z'; isLetter {
			p.words &= in
		} else {
			p.words &^= in
		}
	}
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
