package tokenize

import (
	"maps"
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
)

// Marked returns an encoding in which name is one token, and its id: this encoding if name is a
// special or added token of it, else one that has name as a special token more, of the id behind
// all others. So the text around it becomes the tokens that the tokenizers library gives after
// add_special_tokens([name]). As any special token it has to be allowed (Specials). The encodings share their
// tables.
func (e *Encoding) Marked(name string) (*Encoding, int32, error) {
	if name == "" {
		return nil, 0, fault.Userf("a marker of no letters is everywhere in a text")
	}
	if e.file != nil && e.file.sentencePiece {
		return nil, 0, fault.Userf("the text %s is not a token of the SentencePiece model, and none can be added to it: use the model's tokenizer.json", name)
	}
	for id, special := range e.special {
		if special == name {
			return e, id, nil
		}
	}
	id := int32(e.size)
	made := &Encoding{
		name: e.name, eot: e.eot, size: e.size + 1, special: maps.Clone(e.special), digest: e.digest,
		split: e.split, vocab: e.vocab, file: e.file,
	}
	made.special[id] = name
	if e.file != nil {
		file := *e.file
		file.specials = slices.Sorted(slices.Values(append(slices.Clone(file.specials), name)))
		file.raw = file.raw.clone()
		file.raw.add(name, &addedToken{ID: id, Content: name, Special: true})
		made.file = &file
	}
	return made, id, nil
}
