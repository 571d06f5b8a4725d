package tokenize

import (
	"bytes"
	"maps"
	"slices"
	"unicode/utf8"
)

// addedToken is an entry of added_tokens: text that is one token before, and whatever,
// the model would make of it.
type addedToken struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"` // not inside of a word
	LStrip     bool   `json:"lstrip"`      // it takes the white space before it
	RStrip     bool   `json:"rstrip"`      // and that behind it
	Normalized bool   `json:"normalized"`  // it is looked for in normalized text
	Special    bool   `json:"special"`
}

func (t *addedToken) named(s special) bool { return t.Content == s.name }

// addedTokens finds added tokens in a text: the leftmost, and the longest of those. It is
// read-only.
type addedTokens struct {
	byText  map[string]*addedToken
	lengths [256]*[256][]int // by the first two bytes, the longest first
	short   [256]*addedToken // of one byte
}

// add looks for text as token t from now on; one that was there gives way.
func (a *addedTokens) add(text string, t *addedToken) {
	if a.byText == nil {
		a.byText = map[string]*addedToken{}
	}
	a.byText[text] = t
	first := text[0]
	if a.lengths[first] == nil {
		a.lengths[first] = new([256][]int)
	}
	if len(text) == 1 {
		a.short[first] = t
		return
	}
	l := &a.lengths[first][text[1]]
	if !slices.Contains(*l, len(text)) {
		*l = append(*l, len(text))
		slices.SortFunc(*l, func(a, b int) int { return b - a })
	}
}

// overlapping reports whether a token may take white space that is another one.
func (a *addedTokens) overlapping() bool {
	space := namedSets()["space"]
	takes, blank := false, false
	for text, t := range a.byText {
		takes = takes || t.RStrip
		blank = blank || t.LStrip && len(bytes.TrimLeftFunc([]byte(text), space.has)) == 0
	}
	return takes && blank
}

// clone returns a copy that has memory of its own.
func (a *addedTokens) clone() addedTokens {
	own := *a
	own.byText = maps.Clone(a.byText)
	for first, lengths := range a.lengths {
		if lengths == nil {
			continue
		}
		copied := *lengths
		for second, l := range copied {
			copied[second] = slices.Clone(l)
		}
		own.lengths[first] = &copied
	}
	return own
}

// next returns the next token in text[from:] and its place, or nil.
func (a *addedTokens) next(text []byte, from int) (t *addedToken, start, end int) {
	for i := from; i < len(text); i++ {
		seconds := a.lengths[text[i]]
		if seconds == nil {
			continue
		}
		if i+1 < len(text) {
			for _, n := range seconds[text[i+1]] {
				if i+n <= len(text) {
					if t := a.byText[string(text[i:i+n])]; t != nil {
						return t, i, i + n
					}
				}
			}
		}
		if t := a.short[text[i]]; t != nil {
			return t, i, i + 1
		}
	}
	return nil, 0, 0
}

// split calls part for each added token of text that is allowed, and for all text between, in
// order. at is where a text begins.
func (a *addedTokens) split(text []byte, allowed func(*addedToken) bool, part func(at int, text []byte, t *addedToken)) {
	from := 0
	for at := 0; a.byText != nil; {
		t, start, end := a.next(text, at)
		if t == nil {
			break
		}
		at = end
		if t.Special && !allowed(t) || t.SingleWord && insideWord(text, start, end) {
			continue
		}
		if t.LStrip {
			start = from + len(bytes.TrimRightFunc(text[from:max(start, from)], namedSets()["space"].has))
		}
		if t.RStrip {
			end = len(text) - len(bytes.TrimLeftFunc(text[max(end, from):], namedSets()["space"].has))
		}
		if start >= end {
			continue // the token before has taken it as white space
		}
		if from < start {
			part(from, text[from:start], nil)
		}
		part(start, nil, t)
		from = end
	}
	if from < len(text) {
		part(from, text[from:], nil)
	}
}

// insideWord reports whether a word goes on before or behind text[start:end].
func insideWord(text []byte, start, end int) bool {
	word := namedSets()["word"]
	before, _ := utf8.DecodeLastRune(text[:start])
	behind, _ := utf8.DecodeRune(text[end:])
	return start > 0 && word.has(before) || end < len(text) && word.has(behind)
}
