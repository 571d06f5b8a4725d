package tokenize

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// wordPieceModel reads a WordPiece, all of whose fields the library asks for.
func (r *fileReader) wordPieceModel(path string, raw json.RawMessage) error {
	var m struct {
		Type     string           `json:"type"`
		UnkToken *string          `json:"unk_token"`
		Prefix   *string          `json:"continuing_subword_prefix"`
		Most     *int             `json:"max_input_chars_per_word"`
		Vocab    map[string]int32 `json:"vocab"`
	}
	if err := r.pieceModel(path, raw, &m); err != nil {
		return err
	}
	if m.Prefix == nil || m.Most == nil {
		return fmt.Errorf("%s has no continuing_subword_prefix or no max_input_chars_per_word", path)
	}
	unk, err := r.wordVocab(path, m.Vocab, m.UnkToken)
	if err != nil {
		return err
	}
	w := &wordPiece{first: r.vocab, unk: unk, most: *m.Most}
	more := make([][]byte, len(r.texts))
	for id, text := range r.texts {
		if len(text) > 0 && utf8.RuneCount(text) <= w.most {
			r.vocab.addWord(text, int32(id))
		}
		if rest, ok := strings.CutPrefix(string(text), *m.Prefix); ok {
			more[id] = []byte(rest)
		}
		w.longest = max(w.longest, len(text))
	}
	w.more = blankVocab(more)
	for id, text := range more {
		if len(text) > 0 {
			w.more.addWord(text, int32(id))
		}
	}
	r.file.model, r.file.joint = w, *m.Prefix
	return nil
}

// pieceModel decodes a model that is not byte-pair merging.
func (r *fileReader) pieceModel(path string, raw json.RawMessage, to any) error {
	if r.byteLevel {
		return fmt.Errorf("%s is no BPE, but pre_tokenizer is a ByteLevel, which is supported for BPE only", path)
	}
	return decode(path, raw, to)
}

// wordVocab lays out the tokens of a model in which a word may be unknown.
func (r *fileReader) wordVocab(path string, vocab map[string]int32, unkToken *string) (unk int32, err error) {
	if unkToken == nil {
		return 0, fmt.Errorf("%s has no unk_token", path)
	}
	unk, ok := vocab[*unkToken]
	if !ok {
		return 0, fmt.Errorf("%s.unk_token is %q, which is not in the vocabulary", path, *unkToken)
	}
	return unk, r.vocabulary(path+".vocab", vocab)
}

// wordLevelModel reads a WordLevel.
func (r *fileReader) wordLevelModel(path string, raw json.RawMessage) error {
	var m struct {
		Type     string           `json:"type"`
		UnkToken *string          `json:"unk_token"`
		Vocab    map[string]int32 `json:"vocab"`
	}
	if err := r.pieceModel(path, raw, &m); err != nil {
		return err
	}
	unk, err := r.wordVocab(path, m.Vocab, m.UnkToken)
	if err != nil {
		return err
	}
	for id, text := range r.texts {
		if len(text) > 0 {
			r.vocab.addWord(text, int32(id))
		}
	}
	r.file.model = wordLevel{unk}
	return nil
}

// scoredToken is ["▁the", -3.2].
type scoredToken struct {
	text  string
	score float64
}

// UnmarshalJSON reads the pair.
func (t *scoredToken) UnmarshalJSON(raw []byte) error {
	var score json.RawMessage
	pair := []any{&t.text, &score}
	err := json.Unmarshal(raw, &pair)
	if err == nil && len(pair) == 2 {
		t.score, err = libraryNumber(string(score))
	}
	if err != nil || len(pair) != 2 {
		return fmt.Errorf("want a token and its score, not %.40s", raw)
	}
	return nil
}

// unigramModel reads a Unigram.
func (r *fileReader) unigramModel(path string, raw json.RawMessage) error {
	var m struct {
		Type         string        `json:"type"`
		UnkID        *int          `json:"unk_id"`
		Vocab        []scoredToken `json:"vocab"`
		ByteFallback bool          `json:"byte_fallback"`
	}
	if err := r.pieceModel(path, raw, &m); err != nil {
		return err
	}
	switch {
	case m.UnkID == nil:
		return fmt.Errorf("%s.unk_id is missing, without which the tokenizers library refuses texts with unknown characters", path)
	case *m.UnkID < 0 || *m.UnkID >= len(m.Vocab):
		return fmt.Errorf("%s.unk_id is %d; the vocabulary has ids 0..%d", path, *m.UnkID, len(m.Vocab)-1)
	case len(m.Vocab) >= int(none):
		return fmt.Errorf("%s.vocab has %d tokens, supported are fewer than %d", path, len(m.Vocab), none)
	}
	u := &unigram{unk: int32(*m.UnkID), poor: math.Inf(1), scores: make([]float64, len(m.Vocab))}
	r.texts = make([][]byte, len(m.Vocab))
	r.tokens = make(map[string]int32, len(m.Vocab))
	for id, t := range m.Vocab {
		r.texts[id], u.scores[id] = []byte(t.text), t.score
		r.tokens[t.text] = int32(id) // the last of equal ones
		u.poor = min(u.poor, t.score)
	}
	if len(r.tokens) != len(m.Vocab) {
		return fmt.Errorf("%s.vocab has a token twice, among %d", path, len(m.Vocab))
	}
	u.poor -= unkPenalty
	r.finishUnigram(u)
	r.revise(2)
	u.names = r.unigramNames()
	if m.ByteFallback {
		u.bytes = new([256]int32)
		for b := range u.bytes {
			u.bytes[b] = none
			if id, ok := r.tokens[byteToken(b)]; ok {
				u.bytes[b] = id
			}
		}
	}
	r.unigramWords(u)
	return nil
}

// finishUnigram makes the trie of all texts.
func (r *fileReader) finishUnigram(u *unigram) {
	var texts [][]byte
	var ids []int32
	for id, text := range r.texts {
		if len(text) > 0 {
			texts, ids = append(texts, text), append(ids, int32(id))
		}
	}
	u.trie = newTrie(texts, ids)
	r.vocab = blankVocab(r.texts)
	r.file.model = u
}

// unigramNames has every token, for a run of unknown characters.
func (r *fileReader) unigramNames() *vocab {
	names := blankVocab(r.texts)
	for id, text := range r.texts {
		if len(text) > 0 {
			names.addWord(text, int32(id))
		}
	}
	return names
}

// unigramWords makes words of the tokens that a piece of the same text becomes.
func (r *fileReader) unigramWords(u *unigram) {
	var s pieceScratch
	var ids []int32
	for id, text := range r.texts {
		if len(text) == 0 {
			continue
		}
		if ids = u.appendPiece(ids[:0], text, &s); len(ids) == 1 && ids[0] == int32(id) {
			r.vocab.addWord(text, int32(id))
		}
	}
}

// byteToken is the name of the token of a byte.
func byteToken(b int) string { return fmt.Sprintf("<0x%02X>", b) }
