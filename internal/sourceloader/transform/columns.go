package transform

import (
	"slices"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// What a step takes of a column is checked when a chain is compiled, against what the last
// function before it that gives the column says of it. What files hold is known when they are read.

// need is what a step takes of a column.
type need struct {
	words string // for a person
	kinds []format.Kind
	of    []format.Kind // of the elements, if it takes a list; nil: any
}

// The needs of native steps; null is taken, or refused, where records are.
var (
	textNeed     = need{"a text, a number or a list of such", []format.Kind{format.String, format.Bytes, format.Int, format.Float, format.Bool, format.List}, []format.Kind{format.String, format.Bytes, format.Int, format.Float, format.Bool, format.List}}
	tokensNeed   = need{"token ids or a list of integers", []format.Kind{format.Tokens, format.List}, []format.Kind{format.Int}}
	maskNeed     = need{"a list of 0 and 1 or of booleans", []format.Kind{format.Tokens, format.List}, []format.Kind{format.Int, format.Bool, format.Float}}
	imagesNeed   = need{"bytes or a list of them", []format.Kind{format.Bytes, format.List}, []format.Kind{format.Bytes, format.List}}
	soundNeed    = need{"bytes", []format.Kind{format.Bytes}, nil}
	messagesNeed = need{"a list of messages or their JSON text", []format.Kind{format.String, format.Bytes, format.List}, nil}
	keptNeed     = need{"a single value, no list", []format.Kind{format.String, format.Bytes, format.Int, format.Float, format.Bool}, nil}
)

// takes returns an error of class fault.User if a function gives a column as something that the step
// which is compiled does not take.
func (c *compiler) takes(path string, n need) error {
	if slices.Contains(c.replaced, path) {
		return nil
	}
	for at := len(c.chain.runs) - 2; at >= 0; at-- {
		f := c.chain.runs[at].after
		i := f.gives(path)
		if i < 0 {
			continue
		}
		if column := &f.Out[i]; !n.accepts(column) {
			return fault.Userf("needs column %q to be %s, and %s (function %s) gives it as %s", path, n.words, f.label, f.Name, column.words())
		}
		return nil
	}
	return nil
}

func (n *need) accepts(c *Column) bool {
	switch {
	case c.Kind == format.Null:
		return true
	case !slices.Contains(n.kinds, c.Kind):
		return false
	}
	return c.Kind != format.List || c.Element == format.Null || n.of == nil || slices.Contains(n.of, c.Element)
}

// words say what values of a column are.
func (c *Column) words() string {
	if c.Kind == format.List && c.Element != format.Null {
		return "a list, each element " + kindWords(c.Element)
	}
	return kindWords(c.Kind)
}

// needOf is what a function takes of a column: what a worker makes its type of.
func needOf(c *Column) need {
	n := need{words: c.words(), kinds: []format.Kind{c.Kind}}
	switch c.Kind {
	case format.Null:
		n.kinds = []format.Kind{format.Null, format.String, format.Bytes, format.Int, format.Float, format.Bool, format.Tokens, format.List}
	case format.String, format.Bytes:
		n.kinds = []format.Kind{format.String, format.Bytes}
	case format.Float:
		n.kinds = append(n.kinds, format.Int)
	case format.Tokens:
		n.kinds, n.of = append(n.kinds, format.List), []format.Kind{format.Int}
	case format.List:
		if c.Element == format.Int || c.Element == format.Float || c.Element == format.Null {
			n.kinds = append(n.kinds, format.Tokens)
		}
	}
	return n
}
