package jobspec

import (
	_ "embed"
	"fmt"
	"regexp"

	"github.com/millrace-data/millrace/internal/fieldpath"
)

// Text makes the document: a template over fields, "{title}\n\n{body}", with braces doubled
// for literal ones.
type Text string

var textOperator = Operator{
	Name:    "text",
	Doc:     "The document, as a template over fields: `\"{title}\\n\\n{body}\"`. `{{` and `}}` are literal braces, `meta.title` reaches into a field, `messages[].content` through a list. A record without one of the fields is a bad record; `{title?}` is empty in a record without a title.",
	Example: "[{text: '{title}: {body}'}, {tokenize: bytes}]",
	Takes:   []string{"the fields in braces"}, Gives: []string{"text"},
	Rules: "One of a chain, before `tokenize` and without `tokens`; after a `python` there may be another. Without `text`, `chat` or `tokens` the text of column `text` is taken (`txt` in a webdataset and of `files`), after the last `python`. A template names at least one field in braces, `{title}`; a literal brace is doubled.",

	step: Text(""), value: field{kind: textKind}, begins: true,
	place: func(has func(...string) bool) (message, valid string) {
		switch {
		case has("chat"):
			return besideText()
		case has("tokens"):
			return besideTokens()
		case has("tokenize"):
			return "comes after tokenize", "move text before tokenize"
		}
		return "", ""
	},
}

// Operator implements Transform.
func (Text) Operator() string { return textOperator.Name }

// Words implements Transform.
func (t Text) Words() string { return fmt.Sprintf("text %q", string(t)) }

func (t Text) check(c *checker, at string) {
	if !c.sound(at) {
		return
	}
	if _, err := fieldpath.ParseTemplate(string(t)); err != nil {
		c.error(at, err.Error(), "")
	}
}

func besideText() (message, valid string) {
	return "stands beside another step that makes the text", "chat takes the place of text, before tokenize: keep the one or the other"
}

func besideTokens() (message, valid string) {
	return "comes after tokens", "tokens take the place of text and tokenize: keep the one or the other"
}

// beforeTokens is the place of steps that change what tokens are made of.
func beforeTokens(has func(...string) bool) (message, valid string) {
	if has("tokens", "tokenize") {
		return "comes after the tokens are made", "move it before tokenize or tokens"
	}
	return "", ""
}

// onText is the place of steps that change the text.
func onText(has func(...string) bool) (message, valid string) {
	if has("chat") {
		return "comes after chat, which says by their places in the text which parts carry loss", "change the messages instead, in a python step before chat, or the template"
	}
	return beforeTokens(has)
}

// Filter leaves records out: an expression over fields, text and tokens, "len(text) > 20 and lang == 'en'".
type Filter string

// filterManual is the reference of the language of filters.
//
//go:embed filter.md
var filterManual string

var filterOperator = Operator{
	Name:    "filter",
	Doc:     "An expression over fields, `text` and `tokens`; records for which it is false are left out: `len(text) > 20 and lang == 'en'`. `len` counts bytes, `runes` characters. A field that a record lacks is null. [Functions and operators](operators.md#the-language-of-filters).",
	Example: "[{filter: len(text) > 20}, {tokenize: bytes}]",
	Takes:   []string{"the fields it names", "text", "tokens"},
	Records: Drops,
	Rules:   "It compiles. `tokens` are there after the step that makes them.",

	step: Filter(""), value: field{kind: textKind}, manual: filterManual, repeat: true,
}

// Operator implements Transform.
func (Filter) Operator() string { return filterOperator.Name }

// Words implements Transform.
func (f Filter) Words() string { return "only if " + string(f) }

// check has the expression compiled, if anybody is there to do it.
func (f Filter) check(c *checker, at string) {
	if c.filter == nil || !c.sound(at) {
		return
	}
	if err := c.filter(string(f)); err != nil {
		c.error(at, err.Error(), "")
	}
}

// Normalize brings the current text into a form of Unicode: nfc, nfkc, nfd or nfkd.
type Normalize string

var normalizeOperator = Operator{
	Name:    "normalize",
	Doc:     "Brings the current text into a Unicode normal form.",
	Example: "[{normalize: nfkc}, {tokenize: bytes}]",
	Takes:   []string{"text"}, Gives: []string{"text"},
	Rules: "Before the tokens are made, and without `chat` before it.",

	step: Normalize(""), value: field{kind: textKind, enum: []string{"nfc", "nfkc", "nfd", "nfkd"}}, repeat: true, place: onText,
}

// Operator implements Transform.
func (Normalize) Operator() string { return normalizeOperator.Name }

// Words implements Transform.
func (n Normalize) Words() string { return "text normalized to " + string(n) }

// Replace replaces parts of the current text.
type Replace struct {
	Pattern string // RE2
	With    string // "" removes what matches
}

var replaceOperator = Operator{
	Name:    "replace",
	Doc:     "Replaces parts of the current text by a regular expression.",
	Example: "[{replace: {pattern: '[0-9]+', with: '0'}}, {tokenize: bytes}]",
	Takes:   []string{"text"}, Gives: []string{"text"},
	Rules: "Before the tokens are made, and without `chat` before it. The pattern compiles.",

	step: (*Replace)(nil), value: field{kind: objectKind, object: &replaceObject}, repeat: true, place: onText,
}

var replaceObject = object{title: "replace", fields: []field{
	{key: "pattern", name: "Pattern", kind: textKind, required: true,
		doc: "A regular expression (RE2): every match, from left to right, none of them overlapping."},
	{key: "with", name: "With", kind: textKind, empty: true,
		doc: "What takes its place: `${1}` or `${name}` is what a group matched, `$$` a dollar sign; each `$` is doubled in a spec, where `${...}` is a variable. None removes the match."},
}}

// Operator implements Transform.
func (*Replace) Operator() string { return replaceOperator.Name }

// Words implements Transform.
func (r *Replace) Words() string { return fmt.Sprintf("%q replaced by %q", r.Pattern, r.With) }

func (r *Replace) check(c *checker, at string) {
	if at += ".pattern"; !c.sound(at) {
		return
	}
	if _, err := regexp.Compile(r.Pattern); err != nil {
		c.error(at, err.Error(), "valid is RE2, without backreferences and lookaround")
	}
}
