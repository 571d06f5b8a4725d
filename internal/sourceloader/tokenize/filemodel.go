package tokenize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// metaMark is what stands for a space in SentencePiece's vocabularies.
const metaMark = "▁"

// model reads the model.
func (r *fileReader) model(path string, raw json.RawMessage) error {
	if isNull(raw) {
		return fmt.Errorf("%s is missing; is this another file of the model?", path)
	}
	kind, err := kindOf(path, raw)
	if err != nil {
		return err
	}
	switch kind {
	case "BPE":
		return r.bpe(path, raw)
	case "WordPiece":
		return r.wordPieceModel(path, raw)
	case "Unigram":
		return r.unigramModel(path, raw)
	case "WordLevel":
		return r.wordLevelModel(path, raw)
	}
	return unsupported(path, kind, "BPE", "WordPiece", "Unigram", "WordLevel")
}

// bpeJSON is a byte-pair encoding.
type bpeJSON struct {
	Type         string           `json:"type"`
	Dropout      *float64         `json:"dropout"`
	UnkToken     *string          `json:"unk_token"`
	Prefix       *string          `json:"continuing_subword_prefix"`
	Suffix       *string          `json:"end_of_word_suffix"`
	FuseUnk      bool             `json:"fuse_unk"`
	ByteFallback bool             `json:"byte_fallback"`
	IgnoreMerges bool             `json:"ignore_merges"`
	Vocab        map[string]int32 `json:"vocab"`
	Merges       []mergeJSON      `json:"merges"`
}

// mergeJSON is "a b" or ["a", "b"].
type mergeJSON [2]string

// UnmarshalJSON reads both forms.
func (m *mergeJSON) UnmarshalJSON(raw []byte) error {
	if raw[0] == '[' {
		var pair []string
		if err := json.Unmarshal(raw, &pair); err != nil {
			return err
		}
		if len(pair) != 2 {
			return fmt.Errorf("a merge has %d tokens: %.60s", len(pair), raw)
		}
		*m = mergeJSON(pair)
		return nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	left, right, found := strings.Cut(s, " ")
	if !found || strings.Contains(right, " ") {
		return fmt.Errorf("the merge %q is not two tokens", s)
	}
	*m = mergeJSON{left, right}
	return nil
}

func (r *fileReader) bpe(path string, raw json.RawMessage) error {
	var m bpeJSON
	if err := decode(path, raw, &m); err != nil {
		return err
	}
	given := func(s *string) bool { return s != nil && *s != "" }
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return fmt.Errorf("%s.dropout is %g: the ids of a text would be random", path, *m.Dropout)
	case given(m.Prefix):
		return fmt.Errorf("%s.continuing_subword_prefix is %q, which is not supported for BPE", path, *m.Prefix)
	case given(m.Suffix):
		return fmt.Errorf("%s.end_of_word_suffix is %q, which is not supported", path, *m.Suffix)
	}
	if err := r.vocabulary(path+".vocab", m.Vocab); err != nil {
		return err
	}
	unk := unknown{id: none, fuse: m.FuseUnk, single: r.byteLevel}
	if m.UnkToken != nil {
		id, ok := m.Vocab[*m.UnkToken]
		if !ok {
			return fmt.Errorf("%s.unk_token is %q, which is not in the vocabulary", path, *m.UnkToken)
		}
		unk.id = id
	}
	if m.ByteFallback && !r.byteLevel {
		var err error
		if unk.bytes, err = byteTokens(path, m.Vocab); err != nil {
			return err
		}
	}
	r.vocab.unk = unk
	if err := r.merges(path+".merges", &m); err != nil {
		return err
	}
	r.firstTokens()
	r.words(m.IgnoreMerges)
	if !m.IgnoreMerges {
		r.cutAtMarks(&m)
	}
	return nil
}

// vocabulary lays out the tokens by id.
func (r *fileReader) vocabulary(path string, vocab map[string]int32) error {
	tokens, err := sortedTokens(path, vocab)
	if err != nil {
		return err
	}
	r.tokens = make(map[string]int32, len(vocab))
	for token, id := range vocab {
		r.tokens[token] = id
	}
	r.texts = make([][]byte, len(tokens))
	for id, token := range tokens {
		if !r.byteLevel {
			r.texts[id] = []byte(token)
		} else if text, ok := bytesOfAlphabet(token); ok {
			r.texts[id] = text
		}
	}
	r.vocab = blankVocab(r.texts)
	return nil
}

// byteTokens returns the tokens <0x00> to <0xFF>.
func byteTokens(path string, vocab map[string]int32) (*[256]int32, error) {
	ids := new([256]int32)
	for b := range ids {
		name := byteToken(b)
		id, ok := vocab[name]
		if !ok {
			return nil, fmt.Errorf("%s.byte_fallback is set, but the vocabulary has no token %s; supported are all 256 or none", path, name)
		}
		ids[b] = id
	}
	return ids, nil
}

// merges lays out the merges by rank.
func (r *fileReader) merges(path string, m *bpeJSON) error {
	if len(m.Merges) >= int(none) {
		return fmt.Errorf("%s has %d entries, supported are fewer than %d", path, len(m.Merges), none)
	}
	r.vocab.pairs = newPairTable(len(m.Merges))
	for i, pair := range m.Merges {
		ids := [3]int32{}
		for k, token := range []string{pair[0], pair[1], pair[0] + pair[1]} {
			id, ok := m.Vocab[token]
			if !ok {
				return fmt.Errorf("%s[%d]: %q is not in the vocabulary", path, i, token)
			}
			ids[k] = id
		}
		r.vocab.pairs.add(ids[0], ids[1], ids[2])
	}
	return nil
}

// firstTokens lays out the tokens with which merging begins: of bytes if all have one, else of
// characters.
func (r *fileReader) firstTokens() {
	v := r.vocab
	all := true
	for b := range v.bytes {
		text := string(rune(b))
		if r.byteLevel {
			text = string(byteAlphabet[b])
		} else if b >= utf8.RuneSelf {
			break
		}
		if id, ok := r.tokens[text]; ok {
			v.bytes[b] = id
		} else {
			all = false
		}
	}
	v.runes = !all || !r.byteLevel
	for i := range v.bytePairs {
		if left, right := v.bytes[i>>8], v.bytes[i&255]; left != none && right != none {
			v.bytePairs[i] = v.pairs.rank(left, right)
		}
	}
}

// words makes words of the tokens that a piece of the same text becomes: all with ignore_merges,
// else those that merging makes of it. Others, such as tokens that were added to the
// vocabulary later, are never made.
func (r *fileReader) words(all bool) {
	v := r.vocab
	single := func(text []byte) bool {
		if r.byteLevel {
			return len(text) == 1
		}
		return utf8.RuneCount(text) == 1
	}
	for id, text := range r.texts {
		if len(text) > 0 && (all || single(text)) {
			v.addWord(text, int32(id))
		}
	}
	if all {
		return
	}
	m := merger{v: v}
	var ids []int32
	for id, text := range r.texts {
		if len(text) > 0 && !single(text) {
			if ids = m.appendMerged(ids[:0], text, len(text)); len(ids) == 1 && ids[0] == int32(id) {
				v.addWord(text, int32(id))
			}
		}
	}
}

// cutAtMarks divides pieces before the mark of a space where no merge goes across, so that
// a text without a pre-tokenizer is not one piece: the ids are the same.
func (r *fileReader) cutAtMarks(m *bpeJSON) {
	if _, ok := m.Vocab[metaMark]; !ok || r.byteLevel || r.file.mark != "" {
		return
	}
	if r.vocab.unk.id == none && r.vocab.unk.bytes == nil {
		r.revise(2)
		return // a character that is no token is left out, and what it was between may merge
	}
	r.file.mark = metaMark
	across := new(runeSet) // what stands before a mark inside of a merge
	special := map[int32]bool{r.vocab.unk.id: true}
	if r.vocab.unk.bytes != nil {
		for _, id := range r.vocab.unk.bytes {
			special[id] = true
		}
	}
	for _, pair := range m.Merges {
		if special[m.Vocab[pair[0]]] || special[m.Vocab[pair[1]]] {
			return // its characters are not those of the text
		}
		addAcross(across, pair[0]+pair[1])
	}
	r.file.stages = append(r.file.stages, cutBeforeMarks(across))
}

// cutBeforeMarks cuts before every mark, but behind another or one of the characters across.
func cutBeforeMarks(across *runeSet) stage {
	across.add('▁', '▁')
	return stage{find: findSplitter(func(t []byte, i int) int {
		for at := i; ; {
			next := findMark(t, at+1)
			if next < 0 {
				return len(t)
			}
			if before, w := utf8.DecodeLastRune(t[:next]); w > 0 && !across.has(before) {
				return next
			}
			at = next
		}
	})}
}

// findMark returns the place of the next mark in t[from:], or -1.
func findMark(t []byte, from int) int {
	if from >= len(t) {
		return -1
	}
	at := bytes.Index(t[from:], []byte(metaMark))
	if at < 0 {
		return -1
	}
	return from + at
}

// byteAlphabet are the characters that stand for bytes in a byte-level vocabulary.
var byteAlphabet = func() (chars [256]rune) {
	next := rune(256)
	for b := range chars {
		if b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae {
			chars[b] = rune(b)
		} else {
			chars[b], next = next, next+1
		}
	}
	return chars
}()

// bytesOfAlphabet is the inverse; false if a character stands for no byte.
func bytesOfAlphabet(token string) ([]byte, bool) {
	text := make([]byte, 0, len(token))
	for _, c := range token {
		b, ok := alphabetByte[c]
		if !ok {
			return nil, false
		}
		text = append(text, b)
	}
	return text, true
}

var alphabetByte = func() map[rune]byte {
	inverse := map[rune]byte{}
	for b, c := range byteAlphabet {
		inverse[c] = byte(b)
	}
	return inverse
}()
