package jobspec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
)

// Tokenize turns text into token ids.
type Tokenize struct {
	Encoding string // bytes (default), r50k_base, cl100k_base, o200k_base; "" with File
	File     string // a tokenizer.json, in place of Encoding and Ranks
	Ranks    string // rank file (.tiktoken) of the encoding; not used by bytes
	SHA256   string // of a rank file that is not the published one of the encoding, or of File, in hex; "" = the published one, any File

	Special       string   // what names of special tokens in the text become: "" (ordinary text), allow or refuse
	Allow, Refuse []string // names for which something else is so; sorted

	PostProcessor string // of File: "" (applied) or skip
}

var tokenizeOperator = Operator{
	Name:    "tokenize",
	Doc:     "Turns the text into token ids. An empty value takes all defaults.",
	Example: "[{tokenize: {file: tokenizer.json}}, {append_eod: 2}]",
	Takes:   []string{"text"}, Gives: []string{"tokens"},
	Rules: "One of a chain, without `tokens`. Encodings other than `bytes` need `ranks`; `bytes` takes none, and neither does a `file`, which takes the place of `encoding`. A `sha256` is that of a rank file or `file`, 64 hex digits. A `post_processor` is that of a `file`. `allow` and `refuse` name special tokens of the encoding, none of them both: " + specialTokens() + "; a `file` has its own.",

	step: (*Tokenize)(nil), value: field{kind: objectKind, object: &tokenizeObject},
	place: func(has func(...string) bool) (message, valid string) {
		if has("tokens") {
			return besideTokens()
		}
		return "", ""
	},
}

var tokenizeObject = object{title: "tokenize", short: "encoding", fields: []field{
	{key: "encoding", name: "Encoding", kind: textKind, def: "bytes", enum: encodingNames(),
		doc: "The encoding; `bytes` makes every byte a token and needs no file. None with `file`."},
	{key: "file", name: "File", kind: textKind, empty: true,
		doc: "A model's `tokenizer.json` (Hugging Face) or SentencePiece `.model`, relative to the spec's folder, in place of `encoding` and `ranks`: the ids are those of the `tokenizers` library or of SentencePiece. [tokenizers.md](tokenizers.md) says what of such files is supported."},
	{key: "post_processor", name: "PostProcessor", kind: textKind, empty: true, enum: []string{"apply", "skip"}, auto: "apply",
		doc: "Whether every text that has tokens gets what the post-processor of `file` adds, such as BOS, EOS or `[CLS]`: as `encode` does with `add_special_tokens` true, its default, or false. `append_eod` adds its own token behind that."},
	{key: "special", name: "Special", kind: textKind, empty: true, enum: []string{"text", "allow", "refuse"}, auto: "text",
		doc: "What the name of a special token in the text of a record, such as `<|endoftext|>` in a web page, becomes: `text`, the tokens of its letters; `allow`, the one id of the special token; `refuse`, a bad record."},
	{key: "allow", name: "Allow", kind: textKind, list: true, one: true,
		doc: "Special tokens that are allowed whatever `special` says: `special: refuse` with `allow: \"<|fim_prefix|>\"` is tiktoken's `allowed_special={\"<|fim_prefix|>\"}`."},
	{key: "refuse", name: "Refuse", kind: textKind, list: true, one: true,
		doc: "Special tokens that are refused whatever `special` says."},
	{key: "ranks", name: "Ranks", kind: textKind, empty: true,
		doc: "The rank file (`.tiktoken`) of the encoding, relative to the spec's folder. Required by all encodings but `bytes`."},
	{key: "sha256", name: "SHA256", kind: textKind, empty: true, auto: "that of the file that is published under the encoding's name",
		doc: "The SHA-256 of the rank file, in hex, if it holds a vocabulary of your own: with the rule of splitting, the number of ranks and the special tokens of `encoding`. Of `file`, if one is to be accepted only."},
}}

// Vocabulary returns the path of the file with the tokens, "" for bytes.
func (t *Tokenize) Vocabulary() string { return cmp.Or(t.File, t.Ranks) }

// Operator implements Transform.
func (*Tokenize) Operator() string { return tokenizeOperator.Name }

// Words implements Transform.
func (t *Tokenize) Words() string { return "tokenized by " + cmp.Or(t.File, t.Encoding) }

// derive takes the default encoding away where a file stands in its place, and gives equal
// rules one form.
func (t *Tokenize) derive(d *decoder, at string, _ []Transform) {
	if t.File != "" && !d.given(at+".encoding") {
		t.Encoding = ""
	}
	if t.PostProcessor == "apply" {
		t.PostProcessor = ""
	}
	if t.Special == "text" {
		t.Special = ""
	}
	for _, names := range []*[]string{&t.Allow, &t.Refuse} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
}

func (t *Tokenize) check(c *checker, at string) {
	if c.sound(at) {
		t.checkFiles(c, at)
	}
	if c.sound(at) {
		t.checkSpecial(c, at)
	}
}

// digestText is a SHA-256 as sha256sum prints it.
var digestText = regexp.MustCompile(`^[0-9a-f]{64}$`)

// checkFiles checks that an encoding that needs a rank file has one.
func (t *Tokenize) checkFiles(c *checker, at string) {
	e, ranks, digest := t.Encoding, t.Ranks, t.SHA256
	switch {
	case digest != "" && !digestText.MatchString(digest):
		c.error(at+".sha256", quote(digest)+" is not a SHA-256", "valid are 64 hex digits in lower case, as sha256sum prints them")
	case t.File != "" && (ranks != "" || e != ""):
		c.error(at+".file", "is given together with encoding or ranks", "keep the file, or the encoding with its ranks")
	case t.File != "":
	case t.PostProcessor != "":
		c.error(at+".post_processor", "is given without a file", "remove it: encodings of rank files have none")
	case digest != "" && ranks == "":
		c.error(at+".sha256", "is given without a rank file", "name the file as ranks, or remove it")
	case e == "bytes" && ranks != "":
		c.error(at+".ranks", "is not used by encoding bytes", "remove it, or name the encoding that the file belongs to")
	case e != "bytes" && ranks == "":
		c.error(at+".ranks", "is missing", fmt.Sprintf("encoding %s needs its rank file, such as tokenizers/%s.tiktoken", e, e))
	}
}

// checkSpecial checks the names of special tokens.
func (t *Tokenize) checkSpecial(c *checker, at string) {
	valid := SpecialTokens(t.Encoding)
	for _, name := range slices.Concat(t.Allow, t.Refuse) {
		if t.File == "" && !slices.Contains(valid, name) {
			c.error(at, fmt.Sprintf("encoding %s has no special token %s", t.Encoding, quote(name)), oneOf(name, valid))
		}
	}
	for _, name := range t.Allow {
		if slices.Contains(t.Refuse, name) {
			c.error(at+".refuse", fmt.Sprintf("%s is also in allow", quote(name)), "keep one of the two")
		}
	}
}

func (t *Tokenize) resolve(j *Job) Transform {
	own := *t
	for _, path := range []*string{&own.Ranks, &own.File} {
		if *path != "" {
			*path = j.Resolve(*path)
		}
	}
	return &own
}

func (t *Tokenize) locate(r *report, at string) {
	if field := at + ".ranks"; t.Ranks != "" && r.sound(field) {
		checkVocabulary(r, field, t.Ranks, "name the .tiktoken file of encoding "+t.Encoding)
	}
	if field := at + ".file"; t.File != "" && r.sound(field) {
		checkVocabulary(r, field, t.File, "name the tokenizer.json or SentencePiece .model of the model")
	}
}

func (t *Tokenize) programs([]Transform) []string {
	if t.Vocabulary() == "" {
		return nil
	}
	return []string{absolute(t.Vocabulary())}
}
