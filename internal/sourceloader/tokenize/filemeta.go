package tokenize

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// metaspace reads a Metaspace.
func (r *fileReader) metaspace(path string, p *preTokenizerJSON) error {
	scheme := p.PrependScheme
	if scheme == "" {
		scheme = "always"
	}
	if p.AddPrefixSpace != nil && !*p.AddPrefixSpace {
		if scheme != "never" {
			return fmt.Errorf("%s has add_prefix_space: false and prepend_scheme: %q, which the tokenizers library refuses; write never", path, scheme)
		}
	}
	switch {
	case utf8.RuneCountInString(p.Replacement) != 1:
		return fmt.Errorf("%s.replacement is %q, want one character", path, p.Replacement)
	case scheme != "always" && scheme != "never" && scheme != "first":
		return fmt.Errorf("%s.prepend_scheme is %q, want always, first or never", path, scheme)
	case scheme == "first":
		if err := r.firstPiece(path, p.Replacement); err != nil {
			return err
		}
	}
	r.file.spaced = r.file.spaced || scheme != "never"
	r.file.stages = append(r.file.stages, stage{rewrite: metaspace(p.Replacement, scheme == "always", scheme == "never")})
	if p.Split == nil || *p.Split {
		r.file.mark = p.Replacement
		r.file.stages = append(r.file.stages, stage{find: findText(p.Replacement), behaviour: following})
	}
	return nil
}

// firstPiece refuses a Metaspace that asks for the first piece where the library may find another one: it takes each
// piece that begins with a part of the text's first character, and only those.
func (r *fileReader) firstPiece(path, mark string) error {
	r.first = true
	rewrites := func(s stage) bool { return s.rewrite != nil }
	marked := func(s string) bool { return strings.HasPrefix(s, mark) || strings.HasPrefix(s, " ") }
	why := ""
	switch {
	case r.deletes:
		why = "a normalizer that leaves characters out"
	case slices.ContainsFunc(r.put, func(s string) bool { return !marked(s) }):
		why = fmt.Sprintf("a Replace that takes several characters and does not put %s in their place", mark)
	case len(r.file.stages) > 0 && len(r.file.normalize) > 0:
		why = "a normalizer and another pre-tokenizer"
	case slices.ContainsFunc(r.file.stages, rewrites):
		why = "another Metaspace"
	default:
		return nil
	}
	return fmt.Errorf("%s has prepend_scheme: first behind %s, which is not supported", path, why)
}

// firstWhole refuses an added token that may be a part of what the normalizer makes of a text's first character: what
// follows it there begins with a part of that, too.
func (r *fileReader) firstWhole() error {
	if !r.first || len(r.file.normalize) == 0 || r.file.normal.byText == nil {
		return nil
	}
	var w divided
	var char []byte
	for c := rune(0); c <= utf8.MaxRune; c++ {
		char = utf8.AppendRune(char[:0], c)
		w.text = char
		w.normalize(r.file.normalize)
		if t, _, end := r.file.normal.next(w.text, 0); t != nil && end < len(w.text) {
			return fmt.Errorf("added_tokens: %q is a part of what the normalizer makes of %q, which is not supported with prepend_scheme: first of a Metaspace", t.Content, c)
		}
	}
	return nil
}
