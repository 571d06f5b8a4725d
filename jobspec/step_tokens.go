package jobspec

import (
	"fmt"
	"math"
)

// Tokens is the column that already holds token ids.
type Tokens string

var tokensOperator = Operator{
	Name:    "tokens",
	Doc:     "The column that already holds token ids; in place of `text` and `tokenize`. A record without it is a bad record.",
	Example: "[{tokens: input_ids}, {append_eod: 50256}]",
	Takes:   []string{"the column"}, Gives: []string{"tokens"},
	Rules: "One of a chain, without `text`, `chat` and `tokenize`.",

	step: Tokens(""), value: field{kind: textKind}, begins: true,
	place: func(has func(...string) bool) (message, valid string) {
		switch {
		case has("chat"):
			return "comes after chat", "chat makes text: put a tokenize step behind it"
		case has("text", "tokenize"):
			return "comes after text or tokenize", "tokens take the place of both: keep the one or the other"
		}
		return "", ""
	},
}

// Operator implements Transform.
func (Tokens) Operator() string { return tokensOperator.Name }

// Words implements Transform.
func (t Tokens) Words() string { return "tokens of column " + string(t) }

func (t Tokens) check(c *checker, at string) { c.column(at, string(t)) }

// LossMask is the column that says which tokens of a Tokens step carry loss.
type LossMask string

var lossMaskOperator = Operator{
	Name:    "loss_mask",
	Doc:     "The column that says which tokens of the `tokens` step before it carry loss: a list of 0 and 1, or of booleans, one for each token. A token with 0 is no label; null stands for all 1. Of a Megatron dataset it is a second one beside it: `X_loss_mask_document.idx` and `.bin` for `X_text_document.idx` and the column `loss_mask`. A record without the column is a bad record.",
	Example: "[{tokens: input_ids}, {loss_mask: loss}]",
	Takes:   []string{"the column", "tokens"}, Gives: []string{"loss"},
	Rules: "One of a chain, after `tokens` and before `append_eod`.",

	step: LossMask(""), value: field{kind: textKind},
	place: func(has func(...string) bool) (message, valid string) {
		switch {
		case !has("tokens"):
			return "has no tokens step before it", "move it after tokens: the column has a value for each token of that one"
		case has("append_eod"):
			return "comes after append_eod", "move it before: the column has no value for the token that is appended"
		}
		return "", ""
	},
}

// Operator implements Transform.
func (LossMask) Operator() string { return lossMaskOperator.Name }

// Words implements Transform.
func (l LossMask) Words() string { return "loss by column " + string(l) }

func (l LossMask) check(c *checker, at string) { c.column(at, string(l)) }

// AppendEOD appends one end-of-document token.
type AppendEOD struct {
	ID int32 // token id; default: the encoding's own end-of-text id (bytes: 256)
}

var appendEODOperator = Operator{
	Name:    "append_eod",
	Doc:     "Appends one end-of-document token, which carries loss if the token before it does. An empty value takes all defaults.",
	Example: "[{tokenize: bytes}, {append_eod: {}}]",
	Takes:   []string{"tokens"}, Gives: []string{"tokens"},
	Rules: "One of a chain, after the tokens are there.",

	step: (*AppendEOD)(nil), value: field{kind: objectKind, object: &appendEODObject},
	place: func(has func(...string) bool) (message, valid string) {
		if !has("tokens", "tokenize") {
			return "comes before there are tokens", "move it after tokenize or tokens"
		}
		return "", ""
	},
}

var appendEODObject = object{title: "append_eod", short: "id", fields: []field{
	{key: "id", name: "ID", kind: countKind, max: math.MaxInt32, auto: "the encoding's own: " + endOfTextIDs(),
		doc: "The token's id. Required after `tokens`, and after a `file`, which does not say which token ends a text: `eos_token_id` in the model's `config.json` does."},
}}

// Operator implements Transform.
func (*AppendEOD) Operator() string { return appendEODOperator.Name }

// Words implements Transform.
func (a *AppendEOD) Words() string {
	if a.ID < 0 {
		return "the encoding's end-of-text token appended"
	}
	return fmt.Sprintf("token %d appended", a.ID)
}

// derive takes the id of the encoding before the step.
func (a *AppendEOD) derive(d *decoder, at string, before []Transform) {
	encoding := ""
	for _, t := range before {
		if t, ok := t.(*Tokenize); ok {
			encoding = t.Encoding
		}
	}
	if d.given(at + ".id") {
		return
	}
	if id, ok := endOfText(encoding); ok {
		a.ID = id
	} else if d.sound(parentField(parentField(at))) {
		d.noEncoding(before, at)
	}
}

// noEncoding reports an append_eod that has no encoding to take its id from.
// One that comes before tokenize is left to the rule for the order.
func (d *decoder) noEncoding(before []Transform, step string) {
	for _, t := range before {
		switch t := t.(type) {
		case *Tokenize:
			if t.File != "" {
				d.error(step+".id", "is missing", "a tokenizer.json does not say which token ends a text: write such as append_eod: 2, the eos_token_id in the model's config.json")
				return
			}
		case Tokens:
			d.error(step+".id", "is missing", "after tokens there is no encoding to take it from: write such as append_eod: 50256")
			return
		}
	}
}
