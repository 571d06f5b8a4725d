package tokenize

import (
	"unicode/utf8"
)

// pattern is a regular expression of a tokenizer.json, of the subset of
// Oniguruma's language that pre-tokenizers use; see parsePattern. It matches as
// Oniguruma does: leftmost, alternatives in order, greedy with backtracking. The
// sets of characters are of Unicode 16.0, as Oniguruma's are.
//
// There are no repeated groups, which would make backtracking exponential:
// with n loops in a row a match takes at most n+1 nested passes over a run.
//
// It is read-only and safe for concurrent use.
type pattern struct {
	start   *node
	first   uint64 // the sets a match begins with
	revised bool   // earlier builds made other matches of it

	// The sets that a character is in, a bit each: by byte, and by rune through
	// blocks of 128, each of which is there once.
	ascii  [utf8.RuneSelf]uint64
	words  uint64 // the sets that have all ASCII letters and nothing else of ASCII
	index  [(utf8.MaxRune + 1) >> blockBits]uint16
	blocks [][1 << blockBits]uint16
	masks  []uint64
}

// maxSets is the number of different sets of a pattern, the bits of a mask.
const maxSets = 64

// node is a step of a match; next follows it, and nil is the end.
type node struct {
	kind  nodeKind
	next  *node
	set   uint64  // of charNode: the bit of its set
	least int     // of charNode: repetitions
	most  int     // of charNode; -1: any number
	loop  uint8   // of charNode: its number among those without a limit; 0: none
	take  take    // of charNode: how it repeats
	alts  []*node // of altNode, each of which leads to next; of aheadNode, which do not
	first []uint64
	not   bool // of aheadNode
}

type nodeKind uint8

const (
	charNode  nodeKind = iota // characters of a set
	altNode                   // the first alternative that matches
	aheadNode                 // whether an alternative follows, or none
	endNode                   // the end of a line or of the text
)

// take says which number of repetitions comes first.
type take uint8

const (
	greedy     take = iota // the most, then fewer
	lazy                   // the least, then more
	possessive             // the most only
)

// at returns the sets of the character at t[i], and its width. A byte that is
// not part of valid UTF-8 is a character like U+FFFD, of width one.
func (p *pattern) at(t []byte, i int) (uint64, int) {
	if b := t[i]; b < utf8.RuneSelf {
		return p.ascii[b], 1
	}
	r, w := utf8.DecodeRune(t[i:])
	return p.masks[p.blocks[p.index[r>>blockBits]][r&(1<<blockBits-1)]], w
}

// find returns the first match in t[from:], or -1.
func (p *pattern) find(t []byte, from int) (start, end int) {
	var noted misses
	var missed *misses // at the first place there is nothing to know
	for i := from; ; {
		for i < len(t) && t[i] < utf8.RuneSelf && p.ascii[t[i]]&p.first == 0 {
			i++
		}
		if i == len(t) {
			return -1, -1
		}
		sets, w := p.at(t, i)
		if sets&p.first != 0 {
			if end := p.match(p.start, t, i, missed); end > i {
				return i, end
			}
			missed = &noted
		}
		i += w
	}
}

// misses says where loops without a limit failed, by their number: a loop that fails at a place, whatever part of a run
// it takes, fails at all places behind it in the run. So a pattern such as \s*X does not look at a run once for
// each of its characters.
type misses [maxLoops + 1]span

// maxLoops is the number of loops of which misses are noted.
const maxLoops = 7

// match returns the end of a match of n at t[i:], or -1. Without missed all loops are tried.
func (p *pattern) match(n *node, t []byte, i int, missed *misses) int {
	for ; n != nil; n = n.next {
		switch n.kind {
		case charNode:
			if n.least != 1 || n.most != 1 {
				if missed != nil && n.loop > 0 {
					return p.loop(n, t, i, missed)
				}
				return p.repeat(n, t, i, missed)
			}
			if i == len(t) {
				return -1
			}
			sets, w := p.at(t, i)
			if sets&n.set == 0 {
				return -1
			}
			i += w
		case altNode:
			return p.choose(n, t, i, missed)
		case aheadNode:
			found := false
			for _, alt := range n.alts {
				found = found || p.match(alt, t, i, missed) >= 0
			}
			if found == n.not {
				return -1
			}
		case endNode:
			if i < len(t) && t[i] != '\n' {
				return -1
			}
		}
	}
	return i
}

// choose tries the alternatives in order, of which the next character leaves few.
func (p *pattern) choose(n *node, t []byte, i int, missed *misses) int {
	sets := uint64(0)
	if i < len(t) {
		sets, _ = p.at(t, i)
	}
	for k, alt := range n.alts {
		if first := n.first[k]; first != 0 && sets&first == 0 {
			continue
		}
		if end := p.match(alt, t, i, missed); end >= 0 {
			return end
		}
	}
	return -1
}

// loop is repeat where it may have missed before.
func (p *pattern) loop(n *node, t []byte, i int, missed *misses) int {
	known := &missed[n.loop]
	if int(known.from) <= i && i < int(known.to) {
		return -1
	}
	all := p.repeat(n, t, i, missed)
	if all < 0 {
		end, _ := p.run(n.set, -1, t, i)
		*known = span{int32(i), int32(end) + 1}
	}
	return all
}

// repeat matches a repeated set and what follows it.
func (p *pattern) repeat(n *node, t []byte, i int, missed *misses) int {
	most := n.most
	if n.take == lazy {
		most = n.least
	}
	end, count := p.run(n.set, most, t, i)
	if count < n.least {
		return -1
	}
	if n.take == possessive || n.next == nil && n.take == greedy {
		return p.match(n.next, t, end, missed)
	}
	for {
		if all := p.match(n.next, t, end, missed); all >= 0 {
			return all
		}
		switch {
		case n.take == greedy:
			if count == n.least {
				return -1
			}
			_, w := utf8.DecodeLastRune(t[i:end])
			end, count = end-w, count-1
		default:
			if count == n.most {
				return -1
			}
			next, one := p.run(n.set, 1, t, end)
			if one == 0 {
				return -1
			}
			end, count = next, count+1
		}
	}
}

// run takes up to most characters of a set, all if it is -1.
func (p *pattern) run(set uint64, most int, t []byte, i int) (end, count int) {
	if most < 0 && set&p.words != 0 {
		end = asciiRun(t, i, 0x20*everyByte)
		i, count = end, end-i
	}
	for ; i < len(t) && count != most; count++ {
		if b := t[i]; b < utf8.RuneSelf {
			if p.ascii[b]&set == 0 {
				break
			}
			i++
			continue
		}
		sets, w := p.at(t, i)
		if sets&set == 0 {
			break
		}
		i += w
	}
	return i, count
}
