// Package fieldpath parses the field names of a job spec: paths, such as
// messages[].content, and templates, such as "{title}: {body}". The spec's checks and
// the readers of files share it, so that both accept the same syntax. It
// knows nothing of records or files.
package fieldpath

import (
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// Step is one step of a Path: into the field Key of an object or, if Each is
// set, into every element of a list (Key is then empty).
type Step struct {
	Key  string
	Each bool
}

// Path names a field of a record. "meta.title" has two key steps;
// "messages[].content" has the steps messages, each element and content, and its
// value is a List. The first step is always a key.
type Path []Step

// Parse reads a field path. Keys are separated by dots, [] after a key
// means each element of the list, and a backslash escapes the next character,
// so that "a\.b" is the one key a.b.
func Parse(s string) (Path, error) {
	var (
		p   Path
		key []byte
	)
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			key = append(key, s[i])
			continue
		case s[i] == '\\':
			return nil, badPath(s, i, `a backslash at the end escapes nothing; write \\ for a backslash`)
		case s[i] != '.' && s[i] != '[':
			key = append(key, s[i])
			continue
		}
		if len(key) == 0 {
			return nil, badPath(s, i, "a field name belongs here")
		}
		p, key = append(p, Step{Key: string(key)}), key[:0]
		for strings.HasPrefix(s[i:], "[]") {
			p = append(p, Step{Each: true})
			i += len("[]")
		}
		switch {
		case i == len(s):
			return p, nil
		case s[i] != '.':
			return nil, badPath(s, i, `only [] (each element) then . or the end may follow a name; write \[ for a bracket in a name`)
		}
	}
	if len(key) == 0 {
		return nil, badPath(s, len(s), "a field name belongs here")
	}
	return append(p, Step{Key: string(key)}), nil
}

func badPath(path string, at int, why string) error {
	return fault.Userf("field path %q: character %d: %s (valid: text, meta.title, messages[].content)", path, at, why)
}

// String returns the path in the form that Parse reads.
func (p Path) String() string {
	var b strings.Builder
	for i, step := range p {
		if step.Each {
			b.WriteString("[]")
			continue
		}
		if i > 0 {
			b.WriteByte('.')
		}
		for j := 0; j < len(step.Key); j++ {
			if strings.IndexByte(`.[\`, step.Key[j]) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(step.Key[j])
		}
	}
	return b.String()
}
