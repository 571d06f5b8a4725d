package preview

import (
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
		words = append(words, t.Words())
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
