package tokenize

import (
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// noRune is what a character or set is that is no literal.
const noRune = rune(-1)

// char parses a character or a set; literal is the character, or noRune. Without regard to case
// Oniguruma takes literals and sets in brackets, but not classes outside of them.
func (c *patternParser) char() (s *runeSet, literal rune) {
	s = new(runeSet)
	switch literal = c.rune(); literal {
	case '[':
		not := strings.HasPrefix(c.src[c.at:], "^")
		if s = c.bracket(); c.fold && not {
			c.fail("a set with ^ without regard to case")
		}
		if c.fold {
			c.foldSet(s)
		}
		return s, noRune
	case '.':
		s.add('\n', '\n')
		s.invert()
		return s, noRune
	case '\\':
		letter := c.rune()
		if class := c.class(letter, c.wordAlone); class != nil {
			c.revised = c.revised || c.fold && unicode.ToLower(letter) == 'p'
			return class, noRune
		}
		literal = c.escaped(letter)
	case '^', '*', '+', '?', '{':
		c.fail("%q at this place", literal)
	}
	s.add(literal, literal)
	if c.fold {
		c.foldSet(s)
	}
	return s, literal
}

// foldSet adds the other cases of all members.
func (c *patternParser) foldSet(s *runeSet) {
	was, expanding := *s, namedSets()["expanding"]
	was.each(func(r rune) {
		if expanding.has(r) {
			c.fail("%q without regard to case, which is several characters then", r)
		}
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			s.add(f, f)
		}
	})
}

// foldPairs are two characters with which begins what Oniguruma takes for one without regard to case.
const foldPairs = "ss st ff fi fl i\u0307 j\u030c h\u0331 t\u0308 w\u030a y\u030a a\u02be \u02bcn եւ մե մի մխ մն վն " +
	"α\u0342 η\u0342 ω\u0342 ι\u0308 ι\u0342 ρ\u0313 υ\u0308 υ\u0313 υ\u0342 αι άι ὰι ηι ήι ὴι ωι ώι ὼι " +
	"ἀι ἁι ἂι ἃι ἄι ἅι ἆι ἇι ἠι ἡι ἢι ἣι ἤι ἥι ἦι ἧι ὠι ὡι ὢι ὣι ὤι ὥι ὦι ὧι"

// follow notes a literal, or noRune for what is none, behind the one before.
func (c *patternParser) follow(literal rune) {
	if c.fold && c.last != noRune && literal != noRune {
		text := string([]rune{c.last, literal})
		for pair := range strings.FieldsSeq(foldPairs) {
			if strings.EqualFold(pair, text) {
				c.fail("%q without regard to case", text)
			}
		}
	}
	c.last = literal
}

// escapes are the characters with a name.
var escapes = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b}

// class parses the rest of a class behind its letter, of which word is \w, or returns nil.
func (c *patternParser) class(letter rune, word *runeSet) *runeSet {
	if letter == 'p' || letter == 'P' {
		return c.property(letter == 'P')
	}
	s := new(runeSet)
	switch unicode.ToLower(letter) {
	case 's':
		*s = *namedSets()["space"]
	case 'd':
		*s = *namedSets()["Nd"]
	case 'w':
		*s, c.revised = *word, true
	default:
		return nil
	}
	if unicode.IsUpper(letter) {
		s.invert()
	}
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
		letter := c.rune()
		if class := c.class(letter, c.word); class != nil {
			return noRune, class
		}
		return c.escaped(letter), nil
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
