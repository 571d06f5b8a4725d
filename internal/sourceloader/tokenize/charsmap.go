package tokenize

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// charsmap is SentencePiece's compiled table of normalization: a double-array trie over the
// UTF-8 of what is replaced, and the replacements one after the other, each with a zero
// byte behind it. A unit of the trie has, from its low bits up: its label (8), whether
// a value hangs below it (1), whether its offset is in units of 256 (1), and the offset (22).
type charsmap struct {
	units []uint32
	text  []byte

	plain [256]bool // an ASCII character that nothing replaces where another one follows it
}

const (
	charsmapHasValue = 1 << 8
	charsmapValue    = 1 << 31 // the unit is a value, not a label

	// charsmapNested is how many keys of which each begins the next SentencePiece
	// keeps, and charsmapDeep the longest key: the published tables have 3 and 18.
	charsmapNested = 32
	charsmapDeep   = 512
)

func charsmapOffset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// newCharsmap reads the table and checks all that a look-up can reach.
func newCharsmap(blob []byte) (*charsmap, error) {
	if len(blob) < 8 {
		return nil, fmt.Errorf("has %d bytes, which is too short for a table", len(blob))
	}
	size := binary.LittleEndian.Uint32(blob)
	if size < 4 || size%4 != 0 || int64(size) > int64(len(blob)-4) {
		return nil, fmt.Errorf("says that its trie has %d bytes; the table has %d", size, len(blob))
	}
	m := &charsmap{units: make([]uint32, size/4), text: blob[4+size:]}
	for i := range m.units {
		m.units[i] = binary.LittleEndian.Uint32(blob[4+4*i:])
	}
	if !utf8.Valid(m.text) {
		return nil, errors.New("has replacements that are not valid UTF-8")
	}
	check := charsmapCheck{m: m, depth: make([]int8, len(m.units))}
	if _, err := check.below(charsmapOffset(m.units[0]), 0); err != nil {
		return nil, err
	}
	for b := range m.plain {
		m.plain[b] = b > 0 && b < utf8.RuneSelf && m.keeps(byte(b))
	}
	return m, nil
}

// keeps reports whether no key begins with this character alone or before one of ASCII.
func (m *charsmap) keeps(b byte) bool {
	pos, ok := m.child(charsmapOffset(m.units[0]), b)
	if !ok {
		return true
	}
	unit := m.units[pos]
	for next := range utf8.RuneSelf {
		if _, ok := m.child(pos^charsmapOffset(unit), byte(next)); ok && next > 0 {
			return false
		}
	}
	return unit&charsmapHasValue == 0
}

// child returns the place of the unit for byte c under a node whose children are around at.
func (m *charsmap) child(at uint32, c byte) (uint32, bool) {
	pos := at ^ uint32(c)
	if c == 0 || int(pos) >= len(m.units) || m.units[pos]&(charsmapValue|0xff) != uint32(c) {
		return 0, false
	}
	return pos, true
}

// charsmapCheck goes through a trie once; parts that several keys share count once.
type charsmapCheck struct {
	m     *charsmap
	depth []int8 // by unit: 0 not seen, -1 being looked at, else 1 above the most values on a way down
}

// below checks the children around at, and returns the most values on a way down.
func (c *charsmapCheck) below(at uint32, length int) (most int8, err error) {
	if length > charsmapDeep {
		return 0, fmt.Errorf("has a key of more than %d bytes", charsmapDeep)
	}
	for label := range 256 {
		pos := at ^ uint32(label)
		if int64(pos) >= int64(len(c.m.units)) {
			return 0, errors.New("has a trie that points behind its end")
		}
		unit := c.m.units[pos]
		if unit&(charsmapValue|0xff) != uint32(label) {
			continue
		}
		if label == 0 {
			return 0, errors.New("has a key with a zero byte")
		}
		values, err := c.unit(pos, unit, length)
		if err != nil {
			return 0, err
		}
		most = max(most, values)
	}
	return most, nil
}

func (c *charsmapCheck) unit(pos, unit uint32, length int) (values int8, err error) {
	switch {
	case c.depth[pos] < 0:
		return 0, errors.New("has a trie with a ring")
	case c.depth[pos] > 0:
		return c.depth[pos] - 1, nil
	}
	c.depth[pos] = -1
	at := pos ^ charsmapOffset(unit)
	if values, err = c.below(at, length+1); err != nil {
		return 0, err
	}
	if unit&charsmapHasValue != 0 {
		if values++; values > charsmapNested {
			return 0, fmt.Errorf("has more than %d keys of which each begins the next", charsmapNested)
		}
		if err := c.value(c.m.units[at]); err != nil {
			return 0, err
		}
	}
	c.depth[pos] = values + 1
	return values, nil
}

// value checks a place in the replacements.
func (c *charsmapCheck) value(unit uint32) error {
	at := int(unit &^ charsmapValue)
	switch {
	case unit&charsmapValue == 0 || at >= len(c.m.text):
		return errors.New("has a key whose replacement is not in the table")
	case !utf8.RuneStart(c.m.text[at]):
		return errors.New("has a key whose replacement begins inside of a character")
	case bytes.IndexByte(c.m.text[at:], 0) < 0:
		return errors.New("has a replacement without an end")
	}
	return nil
}

// longest returns the replacement of the longest key that t begins with, and its length: 0 for none.
func (m *charsmap) longest(t []byte) (with []byte, n int) { return m.find(t, false) }

// shortest returns the replacement of the shortest key that t begins with.
func (m *charsmap) shortest(t []byte) (with []byte, ok bool) {
	with, n := m.find(t, true)
	return with, n > 0
}

func (m *charsmap) find(t []byte, first bool) (with []byte, n int) {
	at, value := charsmapOffset(m.units[0]), uint32(0)
	for i, c := range t {
		pos, ok := m.child(at, c)
		if !ok {
			break
		}
		unit := m.units[pos]
		at = pos ^ charsmapOffset(unit)
		if unit&charsmapHasValue != 0 {
			if value, n = m.units[at]&^charsmapValue, i+1; first {
				break
			}
		}
	}
	if n == 0 {
		return nil, 0
	}
	with = m.text[value:]
	return with[:bytes.IndexByte(with, 0)], n
}

// precompiled is the library's Precompiled normalizer, which differs from SentencePiece's:
// a grapheme cluster of less than 6 bytes is replaced as a whole by the replacement of the shortest
// key that it begins with, and of others every character.
func precompiled(m *charsmap) normalizer {
	classes := clusterClasses()
	return func(dst, src []byte) []byte {
		for i := 0; i < len(src); {
			if m.plain[src[i]] && (i+1 == len(src) || src[i+1] < utf8.RuneSelf) {
				dst = append(dst, src[i])
				i++
				continue
			}
			end := clusterEnd(classes, src, i)
			if end-i < 6 {
				if with, ok := m.shortest(src[i:end]); ok {
					dst, i = append(dst, with...), end
					continue
				}
			}
			for i < end {
				_, w := utf8.DecodeRune(src[i:])
				if with, ok := m.shortest(src[i : i+w]); ok {
					dst = append(dst, with...)
				} else {
					dst = append(dst, src[i:i+w]...)
				}
				i += w
			}
		}
		return dst
	}
}
