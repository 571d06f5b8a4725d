package tokenize

import (
	"slices"
	"unicode/utf8"
)

// unigram takes, of all ways to divide a text into tokens, the one whose scores have
// the greatest sum; of equal ones that whose last token is the longest, and so
// on to the left. Sums go from the beginning of the text to its end, as those of the
// libraries do, so that they round alike.
type unigram struct {
	trie   *trie
	scores []float64 // by id
	unk    int32
	poor   float64 // score of a character that is no token
	narrow bool    // sums are rounded to 32 bits and kept small: SentencePiece's

	bytes *[256]int32 // tokens of bytes, none for those without; nil: not in use
	names *vocab      // a run of unknown characters that is one of these tokens becomes that one; nil: never
}

// unkPenalty is how much less than the least token an unknown character scores.
const unkPenalty = 10

// pathNode is the best way to a place in a text.
type pathNode struct {
	score float64
	from  int32 // where its last token begins, -1 for a place that no token ends at
	id    int32
}

// pieceScratch is the memory of a pieceModel; one goroutine uses it.
type pieceScratch struct {
	path   []pathNode
	tokens []pathNode // of a part, from its end
	heap   chain
}

// release gives up what a long piece has left.
func (s *pieceScratch) release() {
	if cap(s.path) > keptPiece || cap(s.heap.links) > keptPiece {
		*s = pieceScratch{}
	}
}

// appendPiece appends the tokens of a piece. It goes on from part to part between places that every way
// passes, such as the beginnings of words, so that its memory is that of the longest part.
func (u *unigram) appendPiece(dst []int32, piece []byte, s *pieceScratch) []int32 {
	run, score := -1, 0.0 // run is where unknown characters begin that are not written yet
	for begin := 0; begin < len(piece); {
		n := u.forward(piece[begin:], score, s)
		score = s.path[n].score
		s.tokens = s.tokens[:0]
		for end := int32(n); end > 0; end = s.path[end].from {
			s.tokens = append(s.tokens, pathNode{from: s.path[end].from, id: s.path[end].id})
		}
		for _, token := range slices.Backward(s.tokens) {
			at := begin + int(token.from)
			switch {
			case token.id == u.unk && run < 0:
				run = at
			case token.id != u.unk:
				if run >= 0 {
					dst, run = u.appendUnknown(dst, piece[run:at]), -1
				}
				dst = append(dst, token.id)
			}
		}
		begin += n
	}
	if run >= 0 {
		dst = u.appendUnknown(dst, piece[run:])
	}
	s.release()
	return dst
}

// forward finds the best way from the beginning of t, with a sum so far, to the next place that all
// ways pass, and returns that place.
func (u *unigram) forward(t []byte, score float64, s *pieceScratch) int {
	s.path = append(s.path[:0], pathNode{score: score})
	for i := 0; ; {
		u.reset(s, i)
		_, w := utf8.DecodeRune(t[i:])
		single := u.tokens(t, i, w, s)
		if !single {
			u.reach(s, i, i+w, u.unk, u.rounded(u.poor+s.path[i].score))
		}
		if i += w; i+1 == len(s.path) {
			return i
		}
	}
}

// resetScore is the sum from which SentencePiece begins again at zero, so that sums stay exact enough.
const resetScore = 100000

// reset makes the sums relative to that of place i, where SentencePiece does.
func (u *unigram) reset(s *pieceScratch, i int) {
	offset := s.path[i].score
	if !u.narrow || -resetScore <= offset && offset <= resetScore {
		return
	}
	for k := i; k < len(s.path); k++ {
		s.path[k].score = u.rounded(s.path[k].score - offset)
	}
}

// tokens goes along every token that begins at t[i], and reports whether one is the
// character there, of w bytes.
func (u *unigram) tokens(t []byte, i, w int, s *pieceScratch) (single bool) {
	here, nodes := s.path[i].score, u.trie.nodes
	node := int32(0)
	for k := i; k < len(t); k++ {
		child := nodes[node].base ^ int32(t[k])
		if nodes[child].parent != node {
			break
		}
		node = child
		if id := nodes[node].id; id != none {
			single = single || k+1 == i+w
			u.reach(s, i, k+1, id, u.rounded(u.scores[id]+here))
		}
	}
	return single
}

// reach takes the token from i to k as the last of the best way to k, if it is better than another.
func (u *unigram) reach(s *pieceScratch, i, k int, id int32, score float64) {
	for len(s.path) <= k {
		s.path = append(s.path, pathNode{from: -1})
	}
	if to := &s.path[k]; to.from < 0 || score > to.score {
		*to = pathNode{score, int32(i), id}
	}
}

func (u *unigram) rounded(score float64) float64 {
	if u.narrow {
		return float64(float32(score))
	}
	return score
}

// appendUnknown appends the tokens of a run of characters that are none.
func (u *unigram) appendUnknown(dst []int32, run []byte) []int32 {
	if u.names != nil {
		key := wordKey(run, 0, len(run))
		if id := u.names.word(key, wordHash(key, len(run)), run); id != none {
			return append(dst, id)
		}
	}
	if u.bytes == nil || slices.ContainsFunc(run, func(b byte) bool { return u.bytes[b] == none }) {
		return append(dst, u.unk)
	}
	for _, b := range run {
		dst = append(dst, u.bytes[b])
	}
	return dst
}
