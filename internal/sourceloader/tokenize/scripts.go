package tokenize

import (
	_ "embed"
	"strings"
	"sync"
	"unicode/utf8"
)

//go:embed scripts.txt
var scriptTable string

// scripts has a number for the script of every character, 0 for any. It is made on first use, for which only a
// program pays that has a UnicodeScripts pre-tokenizer.
var scripts = sync.OnceValue(func() *[utf8.MaxRune + 1]uint8 {
	all := new([utf8.MaxRune + 1]uint8)
	numbers := map[string]uint8{}
	for line := range strings.Lines(scriptTable) {
		fields := strings.Fields(line)
		if fields[0] == "#" {
			continue
		}
		if numbers[fields[0]] == 0 {
			numbers[fields[0]] = uint8(len(numbers) + 1)
		}
		for _, r := range fields[1:] {
			first, last, _ := parseRange(r)
			for c := first; c <= last; c++ {
				all[c] = numbers[fields[0]]
			}
		}
	}
	return all
})

// findScript makes a match of a run of one script, with characters of any script inside and behind it.
// Those at the beginning of a text are in none.
func findScript(t []byte, from int) (start, end int) {
	all := scripts()
	script := uint8(0)
	for i := from; i < len(t); {
		r, w := utf8.DecodeRune(t[i:])
		next := all[r]
		if r == utf8.RuneError && w == 1 {
			next = 0
		}
		switch {
		case next == 0, next == script:
		case script != 0:
			return start, i
		default:
			script, start = next, i
		}
		i += w
	}
	if script == 0 {
		return -1, -1
	}
	return start, len(t)
}

// findLength makes a match of each run of this many characters.
func findLength(length int) finderFunc {
	return func(t []byte, from int) (start, end int) {
		end = from
		for n := 0; n < length && end < len(t); n++ {
			_, w := utf8.DecodeRune(t[end:])
			end += w
		}
		return from, end
	}
}
