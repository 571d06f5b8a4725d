package tokenize

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// modelName is the name of an encoding from a SentencePiece model.
const modelName = "SentencePiece model"

// isSPModel reports whether a file is a SentencePiece model and not JSON.
func isSPModel(path string, data []byte) bool {
	if filepath.Ext(path) == ".json" {
		return false
	}
	if filepath.Ext(path) == ".model" {
		return true
	}
	return !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{"))
}

// sentencePiece returns the encoding of a SentencePiece model.
func (r *fileReader) sentencePiece(data []byte) (*Encoding, error) {
	m, err := readSPModel(data)
	if err != nil {
		return nil, err
	}
	needClasses()
	unk, err := r.spPieces(m)
	if err != nil {
		return nil, err
	}
	normalize, err := newSPNormalizer(m, r.spSymbols(m))
	if err != nil {
		return nil, err
	}
	r.file.normalize = []normalizer{normalize.normalize}
	r.vocab = blankVocab(r.texts)
	r.vocab.unk.id = unk
	switch m.kind {
	case 1:
		err = r.spUnigram(m, unk)
	case 2:
		err = r.spBPE(m, normalize.symbols)
	default:
		names := map[uint64]string{3: "word", 4: "char"}
		err = fmt.Errorf("trainer_spec.model_type is %d (%s), which is not supported; supported are unigram and bpe", m.kind, names[m.kind])
	}
	if err != nil {
		return nil, err
	}
	r.file.mark, r.file.sentencePiece = metaMark, true
	r.file.fuse = !m.byteFallback
	r.file.spaced = m.dummy
	e := &Encoding{name: modelName, eot: -1, size: len(r.texts), special: map[int32]string{}, vocab: r.vocab, file: &r.file}
	for id, p := range m.pieces {
		if p.kind == spControl || p.kind == spUnknown {
			e.special[int32(id)] = p.text
		}
		if p.kind == spControl {
			r.file.specials = append(r.file.specials, p.text)
		}
	}
	slices.Sort(r.file.specials)
	return e, nil
}

// spPieces checks the pieces as the library does, and lays them out by id.
func (r *fileReader) spPieces(m *spModel) (unk int32, err error) {
	unk = none
	found := 0
	for id, p := range m.pieces {
		at := fmt.Sprintf("pieces[%d] %q", id, p.text)
		if _, ok := r.tokens[p.text]; ok {
			return 0, fmt.Errorf("%s is there twice", at)
		}
		r.tokens[p.text] = int32(id)
		r.texts = append(r.texts, []byte(p.text))
		switch {
		case p.kind == spUnknown && unk != none:
			return 0, fmt.Errorf("%s is a second unknown piece", at)
		case p.kind == spUnknown:
			unk = int32(id)
		case p.kind == spByte && !m.byteFallback:
			return 0, fmt.Errorf("%s is a byte, but trainer_spec.byte_fallback is not set", at)
		case p.kind == spByte:
			found++
		case p.kind != spControl && strings.Contains(p.text, "\x00"):
			return 0, fmt.Errorf("%s has a zero byte, which is not supported", at)
		}
	}
	if unk == none && !m.byteFallback {
		return 0, fmt.Errorf("no piece of %d is the unknown one", len(m.pieces))
	}
	if m.byteFallback {
		bytes, err := byteTokens("trainer_spec", r.tokens)
		if err != nil || found != 256 || slices.ContainsFunc(bytes[:], func(id int32) bool { return m.pieces[id].kind != spByte }) {
			return 0, fmt.Errorf("trainer_spec.byte_fallback is set, but there are %d byte pieces, want <0x00> to <0xFF>", found)
		}
	}
	return unk, nil
}

// spTrie has the pieces that keep holds for, nil if there are none.
func spTrie(m *spModel, keep func(p *spPiece) bool) *trie {
	var texts [][]byte
	var ids []int32
	for id := range m.pieces {
		if p := &m.pieces[id]; keep(p) {
			texts, ids = append(texts, []byte(p.text)), append(ids, int32(id))
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return newTrie(texts, ids)
}

func (r *fileReader) spSymbols(m *spModel) *trie {
	return spTrie(m, func(p *spPiece) bool { return p.kind == spUser })
}

// spUnigram makes a unigram of the whole text: its sums are of 32 bits, so that no part of a text can be
// done without those before.
func (r *fileReader) spUnigram(m *spModel, unk int32) error {
	least := float32(math.MaxFloat32)
	for _, p := range m.pieces {
		if p.kind == spNormal {
			least = min(least, p.score)
		}
	}
	u := &unigram{unk: unk, poor: float64(least - unkPenalty), narrow: true, scores: make([]float64, len(m.pieces))}
	for id, p := range m.pieces {
		u.scores[id] = float64(p.score)
		if p.kind == spUser {
			u.scores[id] = float64(float32(0.1 * float64(len(p.text)-1))) // more than any other, and more for longer ones
		}
	}
	u.trie = spTrie(m, func(p *spPiece) bool { return p.kind == spNormal || p.kind == spUser })
	if u.trie == nil {
		return fmt.Errorf("no piece of %d is of text", len(m.pieces))
	}
	if m.byteFallback {
		u.bytes, _ = byteTokens("", r.tokens)
	}
	r.file.model = u
	return nil
}

// spBPE makes a model of pieces that are cut where no merge goes across.
func (r *fileReader) spBPE(m *spModel, symbols *trie) error {
	b := &spMerges{pieces: blankVocab(r.texts), symbols: symbols, unk: r.vocab.unk.id}
	var ids []int32
	across := new(runeSet)
	for id, p := range m.pieces {
		switch p.kind {
		case spNormal, spUser:
			b.pieces.addWord([]byte(p.text), int32(id))
			ids = append(ids, int32(id))
			addAcross(across, p.text)
		case spUnused: // whose parts would come from a merge elsewhere in the text
			if utf8.RuneCountInString(p.text) > 1 {
				return fmt.Errorf("pieces[%d] %q is unused, which is not supported in a model of kind bpe", id, p.text)
			}
		}
	}
	b.pieces.order = scoreOrder(m, ids)
	if m.byteFallback {
		b.bytes, _ = byteTokens("", r.tokens)
	}
	r.file.model = b
	r.file.stages = []stage{cutBeforeMarks(across)}
	var s pieceScratch
	var got []int32
	for _, id := range ids {
		if got = b.appendPiece(got[:0], r.texts[id], &s); len(got) == 1 && got[0] == id {
			r.vocab.addWord(r.texts[id], id)
		}
	}
	return nil
}

// addAcross adds the characters that stand before a mark inside of a text.
func addAcross(across *runeSet, text string) {
	before := rune(-1)
	for _, c := range text {
		if c == '▁' && before >= 0 {
			across.add(before, before)
		}
		before = c
	}
}

// scoreOrder returns the rank of every piece: 0 for the greatest score, the same for equal ones.
func scoreOrder(m *spModel, ids []int32) []int32 {
	ids = slices.Clone(ids)
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch x, y := m.pieces[a].score, m.pieces[b].score; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	order := make([]int32, len(m.pieces))
	rank := int32(0)
	for i, id := range ids {
		if i > 0 && m.pieces[id].score != m.pieces[ids[i-1]].score {
			rank++
		}
		order[id] = rank
	}
	return order
}

// spMerges is SentencePiece's byte-pair merging: of all neighbours whose text joined is a piece those
// of the greatest score merge, the leftmost of equals. It begins with characters and
// with user-defined symbols, which never merge.
type spMerges struct {
	pieces  *vocab // with the rank of each
	symbols *trie  // nil: none
	unk     int32
	bytes   *[256]int32 // nil: not in use
}

// frozen is the id of a symbol that never merges, during merging.
const frozen = int32(-1)

func (b *spMerges) appendPiece(dst []int32, piece []byte, s *pieceScratch) []int32 {
	c := &s.heap
	b.start(c, piece)
	c.run(b.pieces, piece)
	for i := int32(0); int(i) < len(piece); i = c.links[i].next {
		text := piece[i:c.links[i].next]
		key := wordKey(text, 0, len(text))
		switch id := b.pieces.word(key, wordHash(key, len(text)), text); {
		case id != none:
			dst = append(dst, id)
		case b.bytes == nil:
			dst = append(dst, b.unk)
		default:
			for _, x := range text {
				dst = append(dst, b.bytes[x])
			}
		}
	}
	s.release()
	return dst
}

// start lays out the symbols by their first byte, and the pairs that merge.
func (b *spMerges) start(c *chain, piece []byte) {
	c.links = slices.Grow(c.links[:0], len(piece))[:len(piece)]
	c.heap = c.heap[:0]
	last := int32(-1)
	for i := 0; i < len(piece); {
		id, width := int32(0), 0
		if b.symbols != nil {
			width = b.symbols.longest(piece[i:], false)
			id = frozen
		}
		if width == 0 {
			_, width = utf8.DecodeRune(piece[i:])
			id = 0
		}
		c.links[i] = link{id: id, rank: none, prev: last, next: int32(i + width)}
		last = int32(i)
		i += width
	}
	for i := int32(0); int(i) < len(piece); i = c.links[i].next {
		c.rank(b.pieces, piece, i)
	}
}
