package tokenize

import "unicode/utf8"

// wordPiece takes the longest token that a word begins with, then the longest of those
// that continue a word, and so on; a word for which that ends early, or that is
// too long, is unknown as a whole.
type wordPiece struct {
	first, more *vocab // tokens by their text, without the prefix of those that continue a word
	longest     int    // token, in bytes
	unk         int32
	most        int // characters of a word
}

// appendPiece appends the tokens of a word.
func (w *wordPiece) appendPiece(dst []int32, word []byte, _ *pieceScratch) []int32 {
	if utf8.RuneCount(word) > w.most {
		return append(dst, w.unk)
	}
	before := len(dst)
	table := w.first
	for start := 0; start < len(word); table = w.more {
		id, end := w.next(table, word, start)
		if id == none {
			return append(dst[:before], w.unk)
		}
		dst, start = append(dst, id), end
	}
	return dst
}

// next returns the longest token of a table that word[start:] begins with, and its end.
func (w *wordPiece) next(table *vocab, word []byte, start int) (id int32, end int) {
	end = min(len(word), start+w.longest)
	for end < len(word) && end > start && !utf8.RuneStart(word[end]) {
		end--
	}
	for end > start {
		if id := table.merged(word, start, end); id != none {
			return id, end
		}
		_, width := utf8.DecodeLastRune(word[start:end])
		end -= width
	}
	return none, start
}

// wordLevel has a token for whole words only, which the words of the vocabulary are.
type wordLevel struct{ unk int32 }

// appendPiece appends the unknown token.
func (w wordLevel) appendPiece(dst []int32, _ []byte, _ *pieceScratch) []int32 {
	return append(dst, w.unk)
}
