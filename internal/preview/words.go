package preview

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/jobspec"
)

// Words describe each source: what becomes of its records, in order.
func (j *Job) Words() []string {
	words := make([]string, len(j.sources))
	for i, s := range j.sources {
		words[i] = fmt.Sprintf("source %s: %s", s.Spec.Name, strings.Join(wordsOf(s.Spec), "; "))
	}
	return words
}

func wordsOf(s *jobspec.Source) (words []string) {
	for _, t := range s.Transforms {
		words = append(words, transformWords(t))
	}
	words = append(words, fmt.Sprintf("%s samples longer than %d tokens", s.Long.Rule, s.Long.Max))
	if s.Limit > 0 {
		words = append(words, fmt.Sprintf("at most %d samples an epoch", s.Limit))
	}
	if s.Shuffle.Enabled {
		return append(words, fmt.Sprintf("shuffled in blocks of %d chunks", s.Shuffle.Block))
	}
	return append(words, "in the order of files and records")
}

func transformWords(t jobspec.Transform) string {
	switch {
	case t.Text != "":
		return fmt.Sprintf("text %q", t.Text)
	case t.Chat != nil:
		return fmt.Sprintf("conversations of %s, trained on %s", t.Chat.Messages, t.Chat.TrainOn)
	case t.Tokens != "":
		return fmt.Sprintf("tokens of column %s", t.Tokens)
	case t.LossMask != "":
		return fmt.Sprintf("loss by column %s", t.LossMask)
	case t.Filter != "":
		return fmt.Sprintf("only if %s", t.Filter)
	case t.Tokenize != nil:
		return "tokenized by " + cmp.Or(t.Tokenize.File, t.Tokenize.Encoding)
	case t.AppendEOD != nil && t.AppendEOD.ID < 0:
		return "the encoding's end-of-text token appended"
	case t.Normalize != "":
		return "text normalized to " + t.Normalize
	case t.Replace != nil:
		return fmt.Sprintf("%q replaced by %q", t.Replace.Pattern, t.Replace.With)
	case t.Python != nil:
		return "through the Python function " + t.Python.Function
	case t.AppendEOD != nil:
		return fmt.Sprintf("token %d appended", t.AppendEOD.ID)
	}
	return fmt.Sprintf("images of %s as placeholders %d, in patches of %d pixels", strings.Join(t.Image.Columns, ", "), t.Image.Token, t.Image.Patch)
}

// Count is a number of things: 1 step, 2 steps.
func Count[N int | int64](n N, thing string) string {
	switch {
	case n == 1:
		return "1 " + thing
	case strings.HasSuffix(thing, "ch"):
		thing += "e"
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
