package tokenize

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer appends the normal form of src to dst, which is empty. Bytes that are not valid
// UTF-8 stay. It is safe for concurrent use.
type normalizer func(dst, src []byte) []byte

// mapRunes is the normalizer that puts what f appends in the place of every
// character. ASCII characters for which plain holds stay.
func mapRunes(plain func(b byte) bool, f func(dst []byte, r rune) []byte) normalizer {
	return func(dst, src []byte) []byte {
		for i := 0; i < len(src); {
			if b := src[i]; b < utf8.RuneSelf && plain(b) {
				dst = append(dst, b)
				i++
				continue
			}
			r, w := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && w == 1 {
				dst = append(dst, src[i])
			} else {
				dst = f(dst, r)
			}
			i += w
		}
		return dst
	}
}

// without leaves out the characters of a set that has none of ASCII.
func without(set *runeSet) normalizer {
	return mapRunes(func(byte) bool { return true }, func(dst []byte, r rune) []byte {
		if set.has(r) {
			return dst
		}
		return utf8.AppendRune(dst, r)
	})
}

// newerLower are lower cases that Rust 1.9x knows and Unicode 15.0 does not.
var newerLower = map[rune]rune{0x1c89: 0x1c8a, 0xa7cb: 0x264, 0xa7cc: 0xa7cd, 0xa7ce: 0xa7cf,
	0xa7d2: 0xa7d3, 0xa7d4: 0xa7d5, 0xa7da: 0xa7db, 0xa7dc: 0x19b}

// lowercase is Rust's to_lowercase of every character: without the rule for the last sigma.
var lowercase = mapRunes(func(b byte) bool { return b < 'A' || b > 'Z' }, func(dst []byte, r rune) []byte {
	newer, ok := newerLower[r]
	switch {
	case ok:
		r = newer
	case r == 0x130:
		return append(dst, "i̇"...)
	case 0x10d50 <= r && r <= 0x10d65:
		r += 0x20
	case 0x16ea0 <= r && r <= 0x16eb8:
		r += 0x1b
	default:
		r = unicode.ToLower(r)
	}
	return utf8.AppendRune(dst, r)
})

// nmt is the library's Nmt.
var nmt = mapRunes(func(b byte) bool { return b >= ' ' && b < 0x7f || b == 0 }, func(dst []byte, r rune) []byte {
	switch {
	case r < 9, r == 0xb, 0xe <= r && r < 0x20, r == 0x7f, r == 0x8f, r == 0x9f:
		return dst
	case r < 0x20, r == 0x1680, 0x200b <= r && r <= 0x200f, r == 0x2028, r == 0x2029, r == 0x2581, r == 0xfeff, r == 0xfffd:
		r = ' '
	}
	return utf8.AppendRune(dst, r)
})

// cleanText is what BertNormalizer's clean_text does.
func cleanText() normalizer {
	other, space := namedSets()["other"], namedSets()["space"]
	return mapRunes(func(b byte) bool { return b >= ' ' && b < 0x7f }, func(dst []byte, r rune) []byte {
		switch {
		case r != '\t' && r != '\n' && r != '\r' && other.has(r):
			return dst
		case space.has(r):
			r = ' '
		}
		return utf8.AppendRune(dst, r)
	})
}

// spaceChinese puts spaces around ideographs, in BertNormalizer's words "Chinese characters".
var spaceChinese = mapRunes(func(byte) bool { return true }, func(dst []byte, r rune) []byte {
	switch {
	case 0x4e00 <= r && r <= 0x9fff, 0x3400 <= r && r <= 0x4dbf, 0x20000 <= r && r <= 0x2a6df, 0x2a700 <= r && r <= 0x2b73f,
		0x2b740 <= r && r <= 0x2b81f, 0x2b920 <= r && r <= 0x2ceaf, 0xf900 <= r && r <= 0xfaff, 0x2f800 <= r && r <= 0x2fa1f:
		dst = append(dst, ' ')
		return append(utf8.AppendRune(dst, r), ' ')
	}
	return utf8.AppendRune(dst, r)
})

// strip leaves out white space at the ends.
func strip(left, right bool) normalizer {
	space := namedSets()["space"]
	return func(dst, src []byte) []byte {
		if left {
			src = bytes.TrimLeftFunc(src, space.has)
		}
		if right {
			src = bytes.TrimRightFunc(src, space.has)
		}
		return append(dst, src...)
	}
}

func prepend(s string) normalizer {
	return func(dst, src []byte) []byte {
		if len(src) > 0 {
			dst = append(dst, s...)
		}
		return append(dst, src...)
	}
}

// replace puts with in the place of each match.
func replace(find finderFunc, with string) normalizer {
	return func(dst, src []byte) []byte {
		for from := 0; ; {
			start, end := find(src, from)
			if start < 0 {
				return append(dst, src[from:]...)
			}
			dst = append(append(dst, src[from:start]...), with...)
			from = end
		}
	}
}

// form is a Unicode normal form, as of the version that the library has, 12.1 or
// so: newer characters are inert. It is written out because package norm follows
// the Go version and puts U+034F into long runs of marks.
type form struct {
	norm    norm.Form
	compose bool
}

// placed is a character with its canonical combining class.
type placed struct {
	r     rune // from rawByte on: a byte that is not valid UTF-8
	class uint8
}

const rawByte = utf8.MaxRune + 1

// normalizer returns the form as a normalizer. Text is done in regions: an ASCII
// character and what follows outside of ASCII.
func (f form) normalizer() normalizer {
	inert := namedSets()["inert"]
	return func(dst, src []byte) []byte {
		if f.norm.IsNormal(src) {
			return append(dst, src...)
		}
		var region []placed
		for i := 0; i < len(src); {
			if src[i] < utf8.RuneSelf && (i+1 == len(src) || src[i+1] < utf8.RuneSelf) {
				dst = append(dst, src[i])
				i++
				continue
			}
			region = region[:0]
			for first := true; i < len(src) && (first || src[i] >= utf8.RuneSelf); first = false {
				r, w := utf8.DecodeRune(src[i:])
				switch {
				case r == utf8.RuneError && w == 1:
					region = append(region, placed{rawByte + rune(src[i]), 0})
				case inert.has(r):
					region = append(region, placed{r, 0})
				default:
					region = f.decompose(region, src[i:i+w], r)
				}
				i += w
			}
			dst = f.appendRegion(dst, region)
		}
		return dst
	}
}

// decompose appends the decomposition of a character.
func (f form) decompose(dst []placed, encoded []byte, r rune) []placed {
	if s := r - 0xac00; 0 <= s && s < 11172 { // a Hangul syllable
		dst = append(dst, placed{0x1100 + s/588, 0}, placed{0x1161 + s%588/28, 0})
		if s%28 != 0 {
			dst = append(dst, placed{0x11a7 + s%28, 0})
		}
		return dst
	}
	form := norm.NFD
	if f.norm == norm.NFKC || f.norm == norm.NFKD {
		form = norm.NFKD
	}
	parts := form.Properties(encoded).Decomposition()
	if parts == nil {
		return append(dst, placed{r, form.Properties(encoded).CCC()})
	}
	for len(parts) > 0 {
		r, w := utf8.DecodeRune(parts)
		dst = append(dst, placed{r, norm.NFD.Properties(parts).CCC()})
		parts = parts[w:]
	}
	return dst
}

// appendRegion orders, composes and appends.
func (f form) appendRegion(dst []byte, region []placed) []byte {
	for i := 0; i < len(region); i++ { // by class, between characters of class 0
		from := i
		for i < len(region) && region[i].class != 0 {
			i++
		}
		if i > from+1 {
			slices.SortStableFunc(region[from:i], func(a, b placed) int { return cmp.Compare(a.class, b.class) })
		}
	}
	if f.compose {
		region = composed(region)
	}
	for _, p := range region {
		if p.r >= rawByte {
			dst = append(dst, byte(p.r-rawByte))
		} else {
			dst = utf8.AppendRune(dst, p.r)
		}
	}
	return dst
}

// composed joins characters as Unicode's canonical composition does, in place.
func composed(region []placed) []placed {
	pairs := compositions()
	out, starter := region[:0], -1
	last := uint8(0)
	for _, p := range region {
		if starter >= 0 && (starter == len(out)-1 || last < p.class) {
			if joined, ok := pairs[[2]rune{out[starter].r, p.r}]; ok {
				out[starter].r = joined
				continue
			}
		}
		out = append(out, p)
		if last = p.class; last == 0 {
			starter = len(out) - 1
		}
	}
	return out
}

// compositions are the pairs of characters that compose. The last composition is at U+30FE, and a
// few above U+11000.
var compositions = sync.OnceValue(func() map[[2]rune]rune {
	pairs := map[[2]rune]rune{}
	inert := namedSets()["inert"]
	for r := rune(0x80); r < 0x12000; r++ {
		if r == 0xd800 {
			r = 0xe000
		}
		whole := norm.NFD.String(string(r))
		if whole == string(r) || norm.NFC.String(whole) != string(r) || inert.has(r) {
			continue
		}
		last, w := utf8.DecodeLastRuneInString(whole)
		first, n := utf8.DecodeRuneInString(norm.NFC.String(whole[:len(whole)-w]))
		if n > 0 {
			pairs[[2]rune{first, last}] = r
		}
	}
	return pairs
})
