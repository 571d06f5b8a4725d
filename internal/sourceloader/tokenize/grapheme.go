package tokenize

import (
	_ "embed"
	"strings"
	"sync"
	"unicode/utf8"
)

// clusterClass is what a character is in the rules for grapheme clusters.
type clusterClass uint8

const (
	clusterOther clusterClass = iota
	clusterControl
	clusterReturn
	clusterLine
	clusterExtend
	clusterLinker // which extends, too
	clusterZWNJ   // which extends, but ends a conjunct
	clusterZWJ
	clusterSpacing
	clusterPrepend
	clusterRegional
	clusterPictographic
	clusterConsonant
	clusterL
	clusterV
	clusterT
	clusterLV
	clusterLVT
)

//go:embed grapheme.txt
var clusterTable string

var clusterNames = map[string]clusterClass{
	"Control": clusterControl, "Extend": clusterExtend, "Linker": clusterLinker, "SpacingMark": clusterSpacing,
	"Prepend": clusterPrepend, "Pictographic": clusterPictographic, "Consonant": clusterConsonant,
	"HangulL": clusterL, "HangulV": clusterV, "HangulT": clusterT,
}

// clusterClasses has the class of every character. It is made on first use, for which only
// a program pays that has a Precompiled normalizer.
var clusterClasses = sync.OnceValue(func() *[utf8.MaxRune + 1]clusterClass {
	all := new([utf8.MaxRune + 1]clusterClass)
	for line := range strings.Lines(clusterTable) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		for _, r := range fields[1:] {
			first, last, _ := parseRange(r)
			for c := first; c <= last; c++ {
				all[c] = clusterNames[fields[0]]
			}
		}
	}
	for c := 0xac00; c <= 0xd7a3; c++ {
		all[c] = clusterLVT
		if (c-0xac00)%28 == 0 {
			all[c] = clusterLV
		}
	}
	for c := 0x1f1e6; c <= 0x1f1ff; c++ {
		all[c] = clusterRegional
	}
	all['\r'], all['\n'], all[0x200c], all[0x200d] = clusterReturn, clusterLine, clusterZWNJ, clusterZWJ
	return all
})

// cluster is what the rules remember of a cluster whose end is looked for.
type cluster struct {
	last     clusterClass
	regional bool // an odd number of regional indicators at the end
	emoji    bool // a pictograph and characters that extend it, at the end
	joined   bool // the same, then a zero-width joiner
	conjunct bool // a consonant and what extends it, at the end
	linked   bool // the same, with a linker in it
}

// joins reports whether the next character belongs to the cluster.
func (c *cluster) joins(next clusterClass) bool {
	last := c.last
	switch {
	case last == clusterReturn && next == clusterLine:
		return true
	case isControl(last) || isControl(next):
		return false
	case isExtend(next), next == clusterSpacing, last == clusterPrepend:
		return true
	}
	switch next {
	case clusterL, clusterLV, clusterLVT:
		return last == clusterL
	case clusterV:
		return last == clusterL || last == clusterLV || last == clusterV
	case clusterT:
		return last == clusterLV || last == clusterV || last == clusterLVT || last == clusterT
	case clusterConsonant:
		return c.linked
	case clusterPictographic:
		return c.joined
	case clusterRegional:
		return c.regional
	}
	return false
}

func isControl(c clusterClass) bool { return c >= clusterControl && c <= clusterLine }
func isExtend(c clusterClass) bool  { return c >= clusterExtend && c <= clusterZWJ }

// add takes in a character.
func (c *cluster) add(next clusterClass) {
	c.regional = next == clusterRegional && !c.regional
	c.joined = next == clusterZWJ && c.emoji
	c.emoji = next == clusterPictographic || c.emoji && isExtend(next) && next != clusterZWJ
	if next == clusterConsonant {
		c.conjunct, c.linked = true, false
	} else {
		c.conjunct = c.conjunct && isExtend(next) && next != clusterZWNJ
		c.linked = c.conjunct && (c.linked || next == clusterLinker)
	}
	c.last = next
}

// clusterEnd returns the end of the grapheme cluster that begins at t[i]. A byte that
// is not valid UTF-8 is one of its own.
func clusterEnd(classes *[utf8.MaxRune + 1]clusterClass, t []byte, i int) int {
	var c cluster
	for begin := i; i < len(t); {
		r, w := utf8.DecodeRune(t[i:])
		class := classes[r]
		if r == utf8.RuneError && w == 1 {
			class = clusterControl
		}
		if i > begin && !c.joins(class) {
			break
		}
		c.add(class)
		i += w
	}
	return i
}
