package jobspec

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/didyoumean"
)

// suggestList is how many valid words a message lists.
const suggestList = 24

// oneOf says what would be valid in place of got: the nearest of the words, if
// one is near, and all of them.
func oneOf(got string, words []string) string {
	is, shown, more := "are ", words, ""
	if len(words) == 1 {
		is = "is "
	}
	if len(words) > suggestList {
		shown, more = words[:suggestList], fmt.Sprintf(" and %d more", len(words)-suggestList)
	}
	list := is + strings.Join(shown, ", ") + more
	if near := didyoumean.Nearest(got, words); near != "" {
		return "did you mean " + quote(near) + "? Valid " + list
	}
	return "valid " + list
}

// shorten keeps messages readable when a value is a whole document.
func shorten(s string) string {
	const most = 80
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most]) + "..."
}

func quote(s string) string { return strconv.Quote(shorten(s)) }
