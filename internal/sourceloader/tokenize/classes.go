package tokenize

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// class is the classes of a character that splitters use, as a set of bits.
type class uint8

const (
	letter  class = 1 << iota // \p{L}
	upper                     // \p{Lu} \p{Lt} \p{Lm} \p{Lo} \p{M}: o200k's first class
	lower                     // \p{Ll} \p{Lm} \p{Lo} \p{M}: o200k's second class
	number                    // \p{N}
	space                     // \s, which is White_Space
	newline                   // \r or \n; set along with space
	symbol                    // none of \p{L}, \p{N}, \s; marks are symbols too
	wide                      // the first byte of a character outside ASCII
)

// classNames are the words of the table and their bits.
var classNames = map[string]class{
	"upper":    letter | upper,
	"lower":    letter | lower,
	"caseless": letter | upper | lower,
	"mark":     upper | lower | symbol,
	"number":   number,
	"space":    space,
}

// unicodeTable pins the general categories to Unicode 16.0, the version of the
// reference implementation (tiktoken 0.14). Package unicode is not used: its
// version changes with the Go toolchain (15.0 in Go 1.26), and with it the
// split of a text that holds newer characters, so that two builds of one
// release could deliver different tokens.
//
//go:embed unicode16.txt
var unicodeTable string

// blockBits is the number of low bits of a rune that select within a block.
// Blocks of 128 runes give 230 distinct ones: 46 KiB with the index.
const blockBits = 7

var (
	ascii      [256]class // class of an ASCII byte; wide for all others
	blockIndex [(utf8.MaxRune + 1) >> blockBits]uint16
	blocks     [][1 << blockBits]class
)

// needClasses fills the two-level table on first use: about 2 ms that a program
// which never splits does not pay.
var needClasses = sync.OnceFunc(func() { buildClasses(unicodeTable) })

// buildClasses reads the table's text. It is part of the program, so that an
// unreadable line is a broken build, which the tests catch.
func buildClasses(table string) {
	flat := make([]class, utf8.MaxRune+1)
	for i := range flat {
		flat[i] = symbol
	}
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		for _, r := range fields[1:] {
			first, last, stride := parseRange(r)
			for c := first; c <= last; c += stride {
				flat[c] = classNames[fields[0]]
			}
		}
	}
	flat['\r'] |= newline
	flat['\n'] |= newline
	packClasses(flat)
}

// parseRange reads first, first-last or first-last/stride, in hexadecimal.
func parseRange(s string) (first, last, stride int64) {
	s, step, found := strings.Cut(s, "/")
	if stride = 1; found {
		stride, _ = strconv.ParseInt(step, 10, 64)
	}
	lo, hi, found := strings.Cut(s, "-")
	if !found {
		hi = lo
	}
	first, _ = strconv.ParseInt(lo, 16, 64)
	last, _ = strconv.ParseInt(hi, 16, 64)
	return first, last, stride
}

// packClasses stores each distinct block of the flat table once.
func packClasses(flat []class) {
	seen := make(map[[1 << blockBits]class]uint16)
	for i := range blockIndex {
		block := [1 << blockBits]class(flat[i<<blockBits:])
		at, ok := seen[block]
		if !ok {
			at = uint16(len(blocks))
			seen[block] = at
			blocks = append(blocks, block)
		}
		blockIndex[i] = at
	}
	for i := range ascii {
		ascii[i] = wide
		if i < utf8.RuneSelf {
			ascii[i] = flat[i]
		}
	}
}

// classAt returns the class and the width in bytes of the character at t[i].
// A byte that is not part of valid UTF-8 is a symbol of width one.
func classAt(t []byte, i int) (c class, w int) {
	if c, w = ascii[t[i]], 1; c == wide {
		c, w = wideClassAt(t, i)
	}
	return
}

func wideClassAt(t []byte, i int) (class, int) {
	r, w := utf8.DecodeRune(t[i:])
	return blocks[blockIndex[r>>blockBits]][r&(1<<blockBits-1)], w
}
