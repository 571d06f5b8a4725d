package tokenize

import (
	"encoding/binary"
	"math/bits"
)

// splitter returns the end of the piece that begins at t[i], i < len(t). It is
// one of the three published pre-tokenizer patterns, written by hand: leftmost
// alternative first, each greedy. Every function below looks at a run of
// characters at most twice, so that splitting is linear in the text.
type splitter func(t []byte, i int) int

// splitR50K is the pattern of GPT-2, r50k_base and p50k_base:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func splitR50K(t []byte, i int) int {
	c, w := classAt(t, i)
	start := i
	if t[i] == ' ' && i+1 < len(t) {
		if next, nw := classAt(t, i+1); next&space == 0 {
			start, c, w = i+1, next, nw
		}
	}
	switch {
	case c&letter != 0:
		return letters(t, start+w)
	case c&number != 0:
		return run(t, start+w, number)
	case c&space != 0:
		return spaces(t, i, false)
	}
	if t[i] == '\'' {
		if end := contraction(t, i, false); end > i {
			return end
		}
	}
	return run(t, start+w, symbol)
}

// splitCL100K is the pattern of cl100k_base:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}
//	| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// The reference has since added \s++$ before \s*[\r\n]+, which keeps white
// space at the end of a text in one piece. The tokens are the same, because no
// token of the encoding continues after a line end with other white space.
func splitCL100K(t []byte, i int) int {
	if t[i] == ' ' && i+1 < len(t) && ascii[t[i+1]]&letter != 0 { // as most pieces begin
		return letters(t, i+2)
	}
	c, w := classAt(t, i)
	switch {
	case c&letter != 0:
		return letters(t, i+w)
	case c&number != 0:
		return digits(t, i+w)
	}
	if t[i] == '\'' {
		if end := contraction(t, i, true); end > i {
			return end
		}
	}
	if c&newline == 0 && i+w < len(t) {
		if next, nw := classAt(t, i+w); next&letter != 0 {
			return letters(t, i+w+nw)
		}
	}
	if end := symbols(t, i, c, w); end > i {
		return run(t, end, newline)
	}
	return spaces(t, i, true)
}

// splitQwen2 is the pattern of Qwen 2: that of cl100k_base but for \p{N} in the place of \p{N}{1,3}.
func splitQwen2(t []byte, i int) int {
	if c, w := classAt(t, i); c&number != 0 {
		return i + w
	}
	return splitCL100K(t, i)
}

// splitO200K is the pattern of o200k_base, where U is
// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}] and V is [\p{Ll}\p{Lm}\p{Lo}\p{M}]:
//
//	[^\r\n\p{L}\p{N}]?U*V+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|[^\r\n\p{L}\p{N}]?U+V*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitO200K(t []byte, i int) int {
	c, w := classAt(t, i)
	switch {
	case c&letter != 0:
		end, _ := word(t, i)
		return contraction(t, end, true)
	case c&number != 0:
		return digits(t, i+w)
	}
	if c&newline == 0 {
		end, cased := word(t, i+w)
		if c&(upper|lower) != 0 && !cased {
			// A mark may be the prefix or belong to U and V. As a prefix it
			// left the first alternative without a V; without a prefix, the
			// mark itself is that V.
			end = i + w
		}
		if end > i+w || c&(upper|lower) != 0 {
			return contraction(t, end, true)
		}
	}
	if end := symbols(t, i, c, w); end > i {
		for end < len(t) && (t[end] == '\r' || t[end] == '\n' || t[end] == '/') {
			end++
		}
		return end
	}
	return spaces(t, i, true)
}

// word matches U*V+, else U+V*, and returns where the match ends: i for none.
// It reports whether it was the first of the two.
func word(t []byte, i int) (end int, first bool) {
	q, giveBack := i, i
	for q < len(t) {
		c, w := classAt(t, q)
		if c&upper == 0 {
			break
		}
		q += w
		if c&lower != 0 {
			giveBack = q
		}
	}
	if end = lowerCase(t, q); end > q {
		return end, true
	}
	if giveBack > i {
		// U* matched everything; it gives up its last character that is in V.
		return giveBack, true
	}
	return q, false
}

// letters returns the end of the longest run of letters from t[i].
func letters(t []byte, i int) int {
	if i = asciiRun(t, i, 0x20*everyByte); i < len(t) && ascii[t[i]]&(letter|wide) == 0 {
		return i
	}
	return run(t, i, letter)
}

// lowerCase returns the end of the longest run of characters of class lower from t[i].
func lowerCase(t []byte, i int) int { return run(t, asciiRun(t, i, 0), lower) }

// asciiRun is the end of the run from t[i] of bytes that are a..z with the bits of fold set in each. It looks at eight at a time,
// and ends the run early where fewer are left.
func asciiRun(t []byte, i int, fold uint64) int {
	for i+8 <= len(t) {
		n := asciiLetters(binary.LittleEndian.Uint64(t[i:]), fold)
		if i += n; n < 8 {
			break
		}
	}
	return i
}

const everyByte = 0x0101010101010101

// asciiLetters is how many of the 8 bytes of w, lowest first, are in a..z with the bits of fold set, before one that is not.
func asciiLetters(w, fold uint64) int {
	low := w&(0x7f*everyByte) | fold
	// The top bit of each byte says whether it is at least 'a', not above 'z', and not beyond ASCII.
	in := (low + (0x80-'a')*everyByte) &^ (low + (0x80-'z'-1)*everyByte) &^ w
	return bits.TrailingZeros64(^in&(0x80*everyByte)) / 8
}

// run returns the end of the longest run of characters of class c from t[i].
func run(t []byte, i int, c class) int {
	for i < len(t) {
		k := ascii[t[i]]
		if k&c != 0 {
			i++
			continue
		}
		if k != wide {
			return i
		}
		k, w := wideClassAt(t, i)
		if k&c == 0 {
			return i
		}
		i += w
	}
	return i
}

// digits matches the rest of \p{N}{1,3} after its first number.
func digits(t []byte, i int) int {
	for range 2 {
		if i == len(t) {
			break
		}
		c, w := classAt(t, i)
		if c&number == 0 {
			break
		}
		i += w
	}
	return i
}

// symbols matches " ?[^\s\p{L}\p{N}]+" at t[i], whose first character has class
// c and width w. It returns i when there is no match.
func symbols(t []byte, i int, c class, w int) int {
	if c&symbol != 0 {
		return run(t, i+w, symbol)
	}
	if t[i] == ' ' {
		if end := run(t, i+1, symbol); end > i+1 {
			return end
		}
	}
	return i
}

// spaces matches "\s+(?!\S)|\s+" at t[i], a space, with "\s*[\r\n]+" before
// it where lines is set: up to the last line end of the run of spaces, else all
// of a run that ends the text, else all but its last character, which goes to
// the piece behind it, unless there is only that one.
func spaces(t []byte, i int, lines bool) int {
	end, last, line := i, i, i
	for end < len(t) {
		c, w := classAt(t, end)
		if c&space == 0 {
			break
		}
		last = end
		end += w
		if c&newline != 0 {
			line = end
		}
	}
	switch {
	case lines && line > i:
		return line
	case end == len(t) || last == i:
		return end
	default:
		return last
	}
}

// contraction matches 's, 't, 're, 've, 'm, 'll or 'd at t[i] and returns its
// end, or i for none. With fold, case does not matter; the long s,
// U+017F, folds to s like in the regular expression.
func contraction(t []byte, i int, fold bool) int {
	if i+1 >= len(t) || t[i] != '\'' {
		return i
	}
	a, b := t[i+1], byte(0)
	if i+2 < len(t) {
		b = t[i+2]
	}
	if fold {
		if a == 0xC5 && b == 0xBF {
			return i + 3
		}
		a, b = a|0x20, b|0x20
	}
	switch {
	case a == 's' || a == 't' || a == 'm' || a == 'd':
		return i + 2
	case (a == 'r' || a == 'v') && b == 'e', a == 'l' && b == 'l':
		return i + 3
	}
	return i
}
