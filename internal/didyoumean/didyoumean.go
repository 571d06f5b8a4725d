// Package didyoumean finds the word nearest to a misspelt one, for
// error messages. It owns one definition of near for the whole project and never
// writes a message.
package didyoumean

import (
	"strings"
	"unicode/utf8"
)

// Limits keep suggestions cheap on arbitrary input.
const (
	maxBytes = 64   // a longer word is not a typing error
	maxWords = 1000 // words compared at most
)

// Nearest returns the first of the words with the least edit distance from got,
// case aside, if that is at most a third of got's length (at least one letter);
// else the first that got abbreviates or lengthens; else "".
func Nearest(got string, words []string) string {
	if len(got) > maxBytes {
		return ""
	}
	got, words = strings.ToLower(got), words[:min(len(words), maxWords)]
	best, limit := "", max(1, utf8.RuneCountInString(got)/3)
	for _, w := range words {
		if d := distance(got, strings.ToLower(w), limit); d <= limit {
			best, limit = w, d-1
		}
	}
	if best != "" || len(got) < 2 {
		return best
	}
	for _, w := range words {
		lower := strings.ToLower(w)
		if strings.HasPrefix(lower, got) || len(w) > 1 && strings.HasPrefix(got, lower) {
			return w
		}
	}
	return ""
}

// distance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment). It gives up
// (limit+1) on words whose lengths already differ by more than limit.
func distance(a, b string, limit int) int {
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) > limit || len(y)-len(x) > limit {
		return limit + 1
	}
	before, above, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row[0] = i
		for j := 1; j <= len(y); j++ {
			differ := 1
			if x[i-1] == y[j-1] {
				differ = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+differ)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(y)]
}
