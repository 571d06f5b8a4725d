package jobspec

import (
	"fmt"
	"slices"
	"strings"
)

// encodings are the tokenizers a spec can name, with their end-of-text ids.
var encodings = []struct {
	name      string
	endOfText int32
}{
	{"bytes", 256},
	{"r50k_base", 50256},
	{"cl100k_base", 100257},
	{"o200k_base", 199999},
}

func encodingNames() []string {
	var names []string
	for _, e := range encodings {
		names = append(names, e.name)
	}
	return names
}

func endOfTextIDs() string {
	var ids []string
	for _, e := range encodings {
		ids = append(ids, fmt.Sprintf("%d for %s", e.endOfText, e.name))
	}
	return strings.Join(ids, ", ")
}

// endOfText returns the end-of-text id of an encoding.
func endOfText(name string) (int32, bool) {
	i := slices.Index(encodingNames(), name)
	if i < 0 {
		return 0, false
	}
	return encodings[i].endOfText, true
}
