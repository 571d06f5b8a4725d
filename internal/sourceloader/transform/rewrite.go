package transform

import (
	"crypto/sha256"
	"regexp"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/jobspec"
)

// forms are Unicode's normal forms. The tables of another version of Unicode give another
// text, so that version is part of what a chain is made of.
var forms = map[string]norm.Form{"nfc": norm.NFC, "nfkc": norm.NFKC, "nfd": norm.NFD, "nfkd": norm.NFKD}

func (c *compiler) normalize(label string, name jobspec.Normalize) error {
	form, ok := forms[string(name)]
	if !ok {
		return fault.Userf("normalize %q: valid are nfc, nfkc, nfd and nfkd", name)
	}
	c.chain.beyond = append(c.chain.beyond, sha256.Sum256([]byte("unicode/norm "+norm.Version)))
	return c.rewrite(label, func(dst, text []byte) []byte { return form.Append(dst, text...) })
}

func (c *compiler) replace(label string, step *jobspec.Replace) error {
	pattern, err := regexp.Compile(step.Pattern)
	if err != nil {
		return fault.As(fault.User, err)
	}
	c.chain.beyond = append(c.chain.beyond, sha256.Sum256([]byte("regexp "+unicode.Version)))
	with := []byte(step.With)
	return c.rewrite(label, func(dst, text []byte) []byte { return append(dst, pattern.ReplaceAll(text, with)...) })
}

// rewrite adds a step that makes another text of the current one.
func (c *compiler) rewrite(label string, f func(dst, text []byte) []byte) error {
	if c.hasTokens {
		return fault.Userf("the step changes the text after the tokens are made of it; put it before")
	}
	if err := c.needText(label); err != nil {
		return err
	}
	c.add(label, func(w *Worker, _ *format.Record) (bool, error) {
		// The current text may be in buffers[0], so the new one goes into the other.
		out := f(w.buffers[1][:0], w.text)
		w.buffers[0], w.buffers[1] = out, w.buffers[0]
		if w.text = out; len(out) > w.chain.maxText {
			return false, format.TooLong(int64(w.chain.maxText), "the text of %d bytes is", len(out))
		}
		return true, nil
	})
	return nil
}
