package tokenize

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// SpecialNames returns the names of the encoding's special tokens, sorted.
func (e *Encoding) SpecialNames() []string {
	if e.file != nil {
		return slices.Clone(e.file.specials)
	}
	return slices.Sorted(maps.Values(e.special))
}

// Specials is the treatment of special-token names in a text, as in tiktoken's
// encode: allowed names become their ids, a refused name is an error, and all others
// are ordinary text. It is read-only and safe for concurrent use.
type Specials struct {
	encoding *Encoding
	allowed  finder
	refused  finder
}

// Specials returns the rules for texts of this encoding. All names must be among
// SpecialNames; a name that is both is refused.
func (e *Encoding) Specials(allowed, refused []string) (*Specials, error) {
	ids := map[string]int32{}
	for id, name := range e.special {
		ids[name] = id
	}
	names := e.SpecialNames()
	if len(allowed) > 0 && e.file != nil && e.file.sentencePiece {
		return nil, fault.Userf("the names of control symbols, such as %s, are text to a SentencePiece model, as in its library: write special: text or special: refuse, or use the model's tokenizer.json", allowed[0])
	}
	for _, name := range slices.Concat(allowed, refused) {
		if !slices.Contains(names, name) {
			return nil, fault.Userf("encoding %s has no special token %q; it has %s", e.name, name, strings.Join(names, ", "))
		}
	}
	return &Specials{e, newFinder(allowed, ids), newFinder(refused, ids)}, nil
}

// Append is Encoding.Append with these rules. Its error, of class fault.User, names the
// first refused token; nothing is appended then.
func (s *Specials) Append(dst []int32, text []byte) ([]int32, error) {
	if at, n := s.refused.next(text, 0); at >= 0 {
		return dst, fault.Userf("byte %d of the text is the special token %s, which is refused: remove it from the data, or change `special` and `refuse`",
			at, s.refused.tokens[n].name)
	}
	if s.encoding.file != nil {
		encoder := s.encoding.lend()
		defer s.encoding.idle.Put(encoder)
		return encoder.appendFile(dst, text, func(t *addedToken) bool { return slices.ContainsFunc(s.allowed.tokens, t.named) }), nil
	}
	from := 0
	for {
		at, n := s.allowed.next(text, from)
		if at < 0 {
			return s.encoding.Append(dst, text[from:]), nil
		}
		token := &s.allowed.tokens[n]
		if at > from {
			dst = s.encoding.Append(dst, text[from:at])
		}
		dst = append(dst, token.id)
		from = at + len(token.name)
	}
}

// finder finds names in a text.
type finder struct {
	tokens []special // the longest first, so that no prefix hides a longer name
	prefix []byte    // the common prefix of all names: one search finds all candidates
}

type special struct {
	name string
	id   int32
}

func newFinder(names []string, ids map[string]int32) (f finder) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 {
		return f
	}
	first, last := names[0], names[len(names)-1] // sorted: they differ the earliest
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	f.prefix = []byte(first[:n])
	slices.SortStableFunc(names, func(a, b string) int { return len(b) - len(a) })
	for _, name := range names {
		f.tokens = append(f.tokens, special{name, ids[name]})
	}
	return f
}

// next returns the place of the first name in text[from:] and its number; -1 for none.
func (f *finder) next(text []byte, from int) (at, number int) {
	if len(f.tokens) == 0 {
		return -1, 0
	}
	for i := from; i < len(text); i++ {
		skip := bytes.Index(text[i:], f.prefix)
		if skip < 0 {
			return -1, 0
		}
		i += skip
		for n := range f.tokens {
			if name := f.tokens[n].name; len(text)-i >= len(name) && string(text[i:i+len(name)]) == name {
				return i, n
			}
		}
	}
	return -1, 0
}
