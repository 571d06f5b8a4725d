package control

import (
	"strconv"
	"strings"
)

// twinOf takes the words off that say which id a member was given, and the number of its process.
func twinOf(words []string) (id string, instance uint64, rest []string) {
	id = words[1]
	for _, w := range words {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "id":
			id = value
		case "instance":
			instance, _ = strconv.ParseUint(value, 10, 64)
		default:
			rest = append(rest, w)
		}
	}
	return id, instance, rest
}
