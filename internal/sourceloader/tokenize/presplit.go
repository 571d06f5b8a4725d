package tokenize

import "bytes"

// A pre-tokenizer of a tokenizer.json is a list of stages. Each takes the pieces of the one before
// and divides or rewrites them.

// span is a piece of a text.
type span struct{ from, to int32 }

// finderFunc returns the first match in t[from:], which is not empty, or -1.
type finderFunc func(t []byte, from int) (start, end int)

// behaviour is what becomes of matches.
type behaviour uint8

const (
	isolated   behaviour = iota // a piece of its own
	removed                     // left out
	previous                    // at the end of what stands before
	following                   // at the beginning of what follows
	contiguous                  // joined with its neighbours: one piece for a run of matches
)

// stage divides pieces, by find, or rewrites them. It is read-only.
type stage struct {
	find      finderFunc
	behaviour behaviour
	invert    bool // what is between matches counts as a match, and the other way round

	rewrite func(dst, piece []byte, first bool) []byte // in place of find
}

// cutter divides one piece after another.
type cutter struct {
	out      []span
	base     int32 // of the piece
	how      behaviour
	any      bool  // a span of this piece is in out
	matched  bool  // the part before this one was a match
	pending  int32 // with following: where a match begins that waits for what follows
	waiting  bool
	reversed bool
}

// divide appends the pieces of t, which begins at base.
func (s *stage) divide(out []span, t []byte, base int32) []span {
	if len(t) == 0 {
		return out
	}
	start, end := s.find(t, 0)
	if missed := start < 0; missed || end-start == len(t) { // most pieces of all stages but one
		if s.behaviour == removed && missed == s.invert {
			return out
		}
		return append(out, span{base, base + int32(len(t))})
	}
	c := cutter{out: out, base: base, how: s.behaviour, reversed: s.invert}
	at := 0
	for ; start >= 0; start, end = s.find(t, at) {
		if start > at {
			c.part(at, start, false)
		}
		c.part(start, end, true)
		if at = end; at == len(t) {
			break
		}
	}
	if at < len(t) {
		c.part(at, len(t), false)
	}
	if c.waiting {
		c.out = append(c.out, span{c.pending, base + int32(len(t))})
	}
	return c.out
}

// part takes in the next part of the piece: a match, or what is between two.
func (c *cutter) part(from, to int, match bool) {
	match = match != c.reversed
	at := span{c.base + int32(from), c.base + int32(to)}
	switch c.how {
	case isolated:
		c.out = append(c.out, at)
	case removed:
		if !match {
			c.out = append(c.out, at)
		}
	case following:
		switch {
		case match && c.waiting:
			c.out = append(c.out, span{c.pending, at.from})
			c.pending = at.from
		case match:
			c.pending, c.waiting = at.from, true
		case c.waiting:
			c.out, c.waiting = append(c.out, span{c.pending, at.to}), false
		default:
			c.out = append(c.out, at)
		}
	default:
		join := match == c.matched
		if c.how == previous {
			join = match && !c.matched
		}
		if join && c.any {
			c.out[len(c.out)-1].to = at.to
		} else {
			c.out = append(c.out, at)
		}
	}
	c.any, c.matched = true, match
}

// findSplitter makes matches of the pieces of a splitter, which leaves nothing out.
func findSplitter(split splitter) finderFunc {
	return func(t []byte, from int) (int, int) { return from, split(t, from) }
}

func findText(s string) finderFunc {
	return func(t []byte, from int) (int, int) {
		at := bytes.Index(t[from:], []byte(s))
		if at < 0 {
			return -1, -1
		}
		return from + at, from + at + len(s)
	}
}

// findSet makes a match of each character of a set.
func findSet(set *runeSet) finderFunc {
	p := &pattern{}
	p.pack([]*runeSet{set})
	p.start, p.first = &node{kind: charNode, set: 1, least: 1, most: 1}, 1
	return p.find
}

// prefixSpace puts a space before a piece that has none.
func prefixSpace(dst, piece []byte, _ bool) []byte {
	if piece[0] != ' ' {
		dst = append(dst, ' ')
	}
	return append(dst, piece...)
}

// metaspace puts mark in the place of spaces and, before the first or all pieces, one more.
func metaspace(mark string, always, never bool) func(dst, piece []byte, first bool) []byte {
	spaces := replace(findText(" "), mark)
	return func(dst, piece []byte, first bool) []byte {
		if !never && (always || first) && piece[0] != ' ' && !bytes.HasPrefix(piece, []byte(mark)) {
			dst = append(dst, mark...)
		}
		return spaces(dst, piece)
	}
}

// apply runs a stage over the pieces of text; the result is in text or, after rewriting, in spare.
// first says that the text's first piece is the first of the document.
func (s *stage) apply(w *divided, first bool) {
	w.next = w.next[:0]
	if s.rewrite == nil {
		for _, p := range w.spans {
			w.next = s.divide(w.next, w.text[p.from:p.to], p.from)
		}
		w.spans, w.next = w.next, w.spans
		return
	}
	out := w.rewritten[0][:0]
	for _, p := range w.spans {
		from := int32(len(out))
		out = s.rewrite(out, w.text[p.from:p.to], first && p.from == 0)
		w.next = append(w.next, span{from, int32(len(out))})
	}
	w.spans, w.next = w.next, w.spans
	w.rewritten[0], w.rewritten[1] = w.rewritten[1], out
	w.text = out
}

// divided is the scratch memory of normalizing and dividing; one goroutine uses it.
type divided struct {
	text        []byte // what spans refer to: the caller's, or in one of the buffers
	spans, next []span

	normal, rewritten [2][]byte // in the second is the last result
}

// normalize puts the normal form of a text in its place.
func (w *divided) normalize(steps []normalizer) {
	for _, step := range steps {
		out := step(w.normal[0][:0], w.text)
		w.normal[0], w.normal[1] = w.normal[1], out
		w.text = out
	}
}

// release gives up what a long text has left.
func (w *divided) release() {
	w.text = nil
	if cap(w.spans)+cap(w.next) > keptPiece || max(cap(w.normal[0]), cap(w.normal[1]), cap(w.rewritten[0]), cap(w.rewritten[1])) > 4*keptPiece {
		*w = divided{}
	}
}
