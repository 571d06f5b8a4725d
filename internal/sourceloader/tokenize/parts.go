package tokenize

import (
	"bytes"
	"sort"

	"github.com/millrace-data/millrace/internal/fault"
)

// Part is a range [From, To) of bytes, or of tokens.
type Part struct{ From, To int }

// TokensOf says which tokens have a byte of each part of a text, or are only the space that a tokenizer
// puts before its first one; ids are the text's, of this encoding without what a post-processor adds.
// Parts are not empty. Without tokens they have none. A text whose tokens cannot be
// found in it, as after a normalizer that changes letters at the edge of a part, is an error of
// class fault.User.
func (e *Encoding) TokensOf(text []byte, ids []int32, parts []Part) ([]Part, error) {
	if len(ids) == 0 {
		return make([]Part, len(parts)), nil
	}
	ends, failed := e.ends(text, ids, false)
	if failed >= 0 && e.file != nil { // a space may be added before one that is there
		if spaced, none := e.ends(text, ids, true); none < 0 {
			ends, failed = spaced, none
		}
	}
	if failed >= 0 && e.file != nil {
		var err error
		if text, parts, err = e.normalParts(text, parts); err != nil {
			return nil, err
		}
		ends, failed = e.ends(text, ids, false)
	}
	if failed >= 0 {
		return nil, fault.Userf("token %d of %d (id %d) is not in the text where it should be, so that the loss of tokens cannot be told: the tokenizer changes the text", failed, len(ids), ids[min(failed, len(ids)-1)])
	}
	tokens := make([]Part, len(parts))
	for i, p := range parts {
		tokens[i].From = sort.Search(len(ends), func(k int) bool {
			begin := 0
			if k > 0 {
				begin = ends[k-1]
			}
			return max(ends[k], begin+1) > p.From // a token of no bytes is before the next one
		})
		tokens[i].To = min(sort.Search(len(ends), func(k int) bool { return ends[k] >= p.To })+1, len(ends))
	}
	return tokens, nil
}

// ends returns where each token ends in the text, or the number of the first that is not
// there; -1 if all are. spaced says that every space that may have been added before a token was.
func (e *Encoding) ends(text []byte, ids []int32, spaced bool) (ends []int, failed int) {
	ends = make([]int, len(ids))
	at, begins := 0, true // begins: a space may have been added here
	for i, id := range ids {
		n, added := e.lengthIn(text[at:], id, begins, spaced)
		if n < 0 {
			return nil, i
		}
		at += n
		ends[i], begins = at, added
	}
	if at < len(text) {
		return nil, len(ids)
	}
	return ends, -1
}

// lengthIn returns how many bytes of the text that follows a token stands for, -1 if it does not
// stand there, and whether it is an added token.
func (e *Encoding) lengthIn(text []byte, id int32, begins, spaced bool) (n int, added bool) {
	if name := e.special[id]; name != "" {
		return e.addedIn(text, name), true
	}
	token, mark := e.bytesOf(id), []byte(nil)
	if e.file != nil && e.file.mark != "" && int(id) < len(e.vocab.offsets)-1 {
		if raw := e.vocab.token(id); bytes.Contains(raw, []byte(e.file.mark)) {
			token, mark = raw, []byte(e.file.mark)
		}
	}
	if len(token) == 0 {
		return -1, false
	}
	if n := markedIn(text, token, mark); !begins || n >= 0 && !spaced {
		return n, false
	}
	if rest, has := bytes.CutPrefix(token, mark); has && mark != nil {
		return markedIn(text, rest, mark), false
	}
	if rest, has := bytes.CutPrefix(token, []byte(" ")); has {
		return markedIn(text, rest, nil), false
	}
	return markedIn(text, token, mark), false
}

// markedIn returns the length of a token at the beginning of text, -1 if it is not there. A mark
// in the token is a space there, or a mark.
func markedIn(text, token, mark []byte) int {
	rest := text
	for mark != nil {
		before, after, found := bytes.Cut(token, mark)
		if !found {
			break
		}
		if !bytes.HasPrefix(rest, before) {
			return -1
		}
		rest, token = rest[len(before):], after
		switch {
		case bytes.HasPrefix(rest, mark):
			rest = rest[len(mark):]
		case len(rest) > 0 && rest[0] == ' ':
			rest = rest[1:]
		default:
			return -1
		}
	}
	if !bytes.HasPrefix(rest, token) {
		return -1
	}
	return len(text) - len(rest) + len(token)
}

// addedIn is lengthIn for an added token, which may take white space along.
func (e *Encoding) addedIn(text []byte, name string) int {
	var t addedToken
	if e.file != nil {
		if found := e.file.raw.byText[name]; found != nil {
			t = *found
		} else if found := e.file.normal.byText[name]; found != nil {
			t = *found
		}
	}
	rest := text
	if t.LStrip {
		rest = bytes.TrimLeftFunc(rest, namedSets()["space"].has)
	}
	if !bytes.HasPrefix(rest, []byte(name)) {
		return -1
	}
	rest = rest[len(name):]
	if t.RStrip {
		rest = bytes.TrimLeftFunc(rest, namedSets()["space"].has)
	}
	return len(text) - len(rest)
}

// normalParts returns a text as it is after normalizing, and the parts in it. The normalizer has
// to give the same on both sides of the edges of parts as on the whole.
func (e *Encoding) normalParts(text []byte, parts []Part) (normal []byte, moved []Part, err error) {
	cuts := make([]int, 0, 2*len(parts))
	for _, p := range parts {
		cuts = append(cuts, p.From, p.To)
	}
	var starts []int // of segments, where in them added tokens are
	var tokens []bool
	e.file.raw.split(text, func(*addedToken) bool { return true }, func(at int, _ []byte, t *addedToken) {
		starts, tokens = append(starts, at), append(tokens, t != nil)
	})
	at := map[int]int{len(text): 0}
	form := func(part []byte) []byte {
		d := divided{text: part}
		d.normalize(e.file.normalize)
		return bytes.Clone(d.text)
	}
	for i, from := range starts {
		to := len(text)
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		whole := text[from:to]
		if !tokens[i] {
			whole = form(whole)
		}
		for _, cut := range cuts {
			if cut < from || cut >= to {
				continue
			}
			before := text[from:cut]
			if !tokens[i] {
				before = form(before)
				if after := form(text[cut:to]); !bytes.Equal(whole, append(bytes.Clone(before), after...)) {
					return nil, nil, fault.Userf("the tokenizer changes the text where a message begins or ends (byte %d), so that the loss of tokens cannot be told", cut)
				}
			}
			at[cut] = len(normal) + len(before)
		}
		normal = append(normal, whole...)
	}
	at[len(text)] = len(normal)
	for _, p := range parts {
		moved = append(moved, Part{at[p.From], at[p.To]})
	}
	return normal, moved, nil
}
