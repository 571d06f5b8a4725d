package tokenize

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// spModel is what a SentencePiece model file says, a ModelProto of sentencepiece_model.proto.
type spModel struct {
	pieces       []spPiece
	kind         uint64 // of the trainer: 1 Unigram, 2 BPE
	byteFallback bool
	suffix       bool // spaces are at the ends of words

	rules               []byte // the charsmap
	dummy, squeeze, esc bool   // a space is added; others are reduced to one; they become ▁
}

type spPiece struct {
	text  string
	score float32
	kind  uint64
}

// The kinds of pieces.
const (
	spNormal  = 1
	spUnknown = 2
	spControl = 3
	spUser    = 4
	spUnused  = 5
	spByte    = 6
)

// spField takes in a field of a message; known is false for one that is not.
type spField func(number int, value uint64, data []byte) (known bool, err error)

// eachField calls f for the fields of a message in protocol buffers' wire format, whose numbers have value and
// whose other types data.
func eachField(path string, message []byte, f spField) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 || tag>>3 == 0 || tag>>3 > math.MaxInt32 {
			return fmt.Errorf("%s is damaged: it has no field where one begins", path)
		}
		message = message[n:]
		value, data, n := fieldValue(tag&7, message)
		if n <= 0 {
			return fmt.Errorf("%s is damaged: field %d ends behind it", path, tag>>3)
		}
		message = message[n:]
		known, err := f(int(tag>>3), value, data)
		if err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("%s has a field %d, which is not known here: a newer version may give other ids", path, tag>>3)
		}
	}
	return nil
}

// fieldValue reads the value of a field of a wire type, and its length: 0 for none.
func fieldValue(kind uint64, t []byte) (value uint64, data []byte, n int) {
	switch kind {
	case 0:
		value, n = binary.Uvarint(t)
	case 1:
		n = 8
	case 2:
		size, k := binary.Uvarint(t)
		if k <= 0 || size > uint64(len(t)-k) {
			return 0, nil, 0
		}
		n = k + int(size)
		data = t[k:n]
	case 5:
		if n = 4; len(t) >= n {
			value = uint64(binary.LittleEndian.Uint32(t))
		}
	}
	if n > len(t) {
		n = 0
	}
	return value, data, n
}

// readSPModel reads a file.
func readSPModel(file []byte) (*spModel, error) {
	m := &spModel{kind: 1, dummy: true, squeeze: true, esc: true}
	err := eachField("the file", file, func(number int, _ uint64, data []byte) (bool, error) {
		switch number {
		case 1:
			return true, m.piece(data)
		case 2:
			return true, m.trainer(data)
		case 3:
			return true, m.normalizer(data)
		}
		return number == 4 || number == 5, nil // samples, and how to undo normalization
	})
	if err == nil && len(m.pieces) == 0 {
		err = errors.New("has no pieces; is this a SentencePiece model?")
	}
	return m, err
}

func (m *spModel) piece(message []byte) error {
	path := fmt.Sprintf("pieces[%d]", len(m.pieces))
	p := spPiece{kind: spNormal}
	err := eachField(path, message, func(number int, value uint64, data []byte) (bool, error) {
		switch number {
		case 1:
			p.text = string(data)
		case 2:
			p.score = math.Float32frombits(uint32(value))
		case 3:
			p.kind = value
		}
		return number <= 3, nil
	})
	switch {
	case err != nil:
		return err
	case p.text == "" || !utf8.ValidString(p.text):
		return fmt.Errorf("%s is %q, want text in UTF-8", path, p.text)
	case p.kind < spNormal || p.kind > spByte:
		return fmt.Errorf("%s %q is of kind %d, which is not known", path, p.text, p.kind)
	case p.score != p.score || p.score-p.score != 0:
		return fmt.Errorf("%s %q has the score %g", path, p.text, p.score)
	}
	m.pieces = append(m.pieces, p)
	return nil
}

// trainer reads the trainer's settings, of which most say how the model was made.
func (m *spModel) trainer(message []byte) error {
	return eachField("trainer_spec", message, func(number int, value uint64, _ []byte) (bool, error) {
		switch number {
		case 3:
			m.kind = value
		case 24:
			m.suffix = value != 0
		case 35:
			m.byteFallback = value != 0
		}
		return true, nil
	})
}

func (m *spModel) normalizer(message []byte) error {
	return eachField("normalizer_spec", message, func(number int, value uint64, data []byte) (bool, error) {
		switch number {
		case 2:
			m.rules = data
		case 3:
			m.dummy = value != 0
		case 4:
			m.squeeze = value != 0
		case 5:
			m.esc = value != 0
		}
		return number <= 6, nil // 1 is the name, 6 the source of the rules
	})
}

// spNormalizer is SentencePiece's normalizer.
type spNormalizer struct {
	rules   *charsmap // nil: none
	symbols *trie     // user-defined symbols, which stay as they are; nil: none
	model   *spModel
	space   string
	plain   [256]bool // an ASCII character that stays as it is where another one follows it
}

func newSPNormalizer(m *spModel, symbols *trie) (*spNormalizer, error) {
	n := &spNormalizer{symbols: symbols, model: m, space: " "}
	if m.esc {
		n.space = metaMark
	}
	if len(m.rules) > 0 {
		var err error
		if n.rules, err = newCharsmap(m.rules); err != nil {
			return nil, fmt.Errorf("normalizer_spec.precompiled_charsmap %w", err)
		}
	}
	for b := range utf8.RuneSelf {
		n.plain[b] = (n.rules == nil || n.rules.plain[b]) && (symbols == nil || symbols.longest([]byte{byte(b)}, true) == 0)
	}
	return n, nil
}

// prefix returns the normal form of what t begins with, and the length of that.
func (n *spNormalizer) prefix(t []byte) (with []byte, length int) {
	if n.symbols != nil {
		if length = n.symbols.longest(t, false); length > 0 {
			return t[:length], length
		}
	}
	if n.rules != nil {
		if with, length = n.rules.longest(t); length > 0 {
			return with, length
		}
	}
	r, width := utf8.DecodeRune(t)
	if r == utf8.RuneError && width == 1 {
		return []byte("\uFFFD"), 1
	}
	return t[:width], width
}

// normalize is a normalizer.
func (n *spNormalizer) normalize(dst, src []byte) []byte {
	m := n.model
	for m.squeeze && len(src) > 0 {
		with, length := n.prefix(src)
		if string(with) != " " {
			break
		}
		src = src[length:]
	}
	if len(src) == 0 {
		return dst
	}
	if m.dummy && !m.suffix {
		dst = append(dst, n.space...)
	}
	spaced := m.squeeze
	for i := 0; i < len(src); {
		if run := n.run(src, i); run > i {
			dst, i, spaced = append(dst, src[i:run]...), run, false
			continue
		}
		with, length := n.prefix(src[i:])
		dst, spaced = n.add(dst, with, spaced)
		i += length
	}
	for m.squeeze && len(dst) >= len(n.space) && string(dst[len(dst)-len(n.space):]) == n.space {
		dst = dst[:len(dst)-len(n.space)]
	}
	if m.dummy && m.suffix {
		dst = append(dst, n.space...)
	}
	return dst
}

// run returns the end of the characters from src[i] that stay as they are and are no spaces.
func (n *spNormalizer) run(src []byte, i int) int {
	begin := i
	for i < len(src) && n.plain[src[i]] && src[i] != ' ' {
		i++
	}
	if i > begin && i < len(src) && src[i] >= utf8.RuneSelf {
		i-- // which may belong to a rule with what follows
	}
	return i
}

// add appends the normal form of a part; spaced says whether spaces at its beginning are too many.
func (n *spNormalizer) add(dst, with []byte, spaced bool) ([]byte, bool) {
	for spaced && len(with) > 0 && with[0] == ' ' {
		with = with[1:]
	}
	if len(with) == 0 {
		return dst, spaced && n.model.squeeze
	}
	for _, b := range with {
		if b == ' ' {
			dst = append(dst, n.space...)
		} else {
			dst = append(dst, b)
		}
	}
	return dst, n.model.squeeze && with[len(with)-1] == ' '
}
