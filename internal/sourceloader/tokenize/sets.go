package tokenize

import (
	_ "embed"
	"math/bits"
	"strings"
	"sync"
	"unicode/utf8"
)

// runeSet is a set of code points, a bit each.
type runeSet [(utf8.MaxRune + 1) / 64]uint64

func (s *runeSet) has(r rune) bool { return s[r>>6]>>(r&63)&1 != 0 }

func (s *runeSet) add(lo, hi rune) {
	for r := lo; r <= hi; r++ {
		s[r>>6] |= 1 << (r & 63)
	}
}

func (s *runeSet) union(o *runeSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s *runeSet) intersect(o *runeSet) {
	for i := range s {
		s[i] &= o[i]
	}
}

func (s *runeSet) invert() {
	for i := range s {
		s[i] = ^s[i]
	}
}

// each calls f for every member, in order.
func (s *runeSet) each(f func(rune)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(rune(i*64 + bits.TrailingZeros64(word)))
		}
	}
}

//go:embed sets.txt
var setTable string

// namedSets are the sets of both tables by name. They are made on first use,
// for which only a program pays that has a tokenizer.json.
var namedSets = sync.OnceValue(func() map[string]*runeSet {
	sets := map[string]*runeSet{}
	for line := range strings.Lines(unicodeTable + setTable) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		s := sets[fields[0]]
		if s == nil {
			s = new(runeSet)
			sets[fields[0]] = s
		}
		for _, r := range fields[1:] {
			first, last, stride := parseRange(r)
			for c := first; c <= last; c += stride {
				s.add(rune(c), rune(c))
			}
		}
	}
	join := func(name string, of ...string) {
		s := new(runeSet)
		for _, part := range of {
			s.union(sets[part])
		}
		sets[name] = s
	}
	without := func(name, from, what string) {
		s := *sets[what]
		s.invert()
		s.intersect(sets[from])
		sets[name] = &s
	}
	join("L", "upper", "lower", "caseless")
	join("N", "number")
	join("M", "mark")
	join("Ll", "lower")
	without("Lu", "upper", "Lt")
	without("Lo", "caseless", "Lm")
	join("word", "word", "L", "M", "Nd")
	without("word in brackets", "word", "joiner")
	join("word alone", "word in brackets", "fraction")
	join("numeric", "numeric", "N")
	return sets
})
