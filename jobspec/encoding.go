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
	special   []string // their special tokens
}{
	{"bytes", 256, []string{"<|endoftext|>"}},
	{"r50k_base", 50256, []string{"<|endoftext|>"}},
	{"cl100k_base", 100257, []string{"<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|endofprompt|>"}},
	{"o200k_base", 199999, []string{"<|endoftext|>", "<|endofprompt|>"}},
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

// specialTokens lists the special tokens of all encodings, for a person.
func specialTokens() string {
	var all []string
	for _, e := range encodings {
		all = append(all, fmt.Sprintf("%s has `%s`", e.name, strings.Join(e.special, "` `")))
	}
	return strings.Join(all, ", ")
}

// SpecialTokens returns the special tokens of an encoding, nil if it is not known.
func SpecialTokens(encoding string) []string {
	i := slices.Index(encodingNames(), encoding)
	if i < 0 {
		return nil
	}
	return slices.Clone(encodings[i].special)
}

// endOfText returns the end-of-text id of an encoding.
func endOfText(name string) (int32, bool) {
	i := slices.Index(encodingNames(), name)
	if i < 0 {
		return 0, false
	}
	return encodings[i].endOfText, true
}
