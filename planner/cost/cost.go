package cost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
)

// Sample is what a cost may depend on. Counts are 0 or more.
type Sample struct {
	Tokens  int64 // length in the row
	Patches int64 // of all images, as the encoder sees them
	Images  int64
}

// String lists the fields by the names they have in expressions.
func (s Sample) String() string {
	return fmt.Sprintf("tokens=%d, patches=%d, images=%d", s.Tokens, s.Patches, s.Images)
}

// field is a count of a sample.
type field uint8

const (
	tokens field = iota
	patches
	images
)

// fieldNames are the words of specs and expressions, by field.
var fieldNames = []string{tokens: "tokens", patches: "patches", images: "images"}

func (f field) String() string { return fieldNames[f] }

func fieldNamed(name string) (field, bool) {
	i := slices.Index(fieldNames, name)
	return field(max(i, 0)), i >= 0
}

func (s Sample) get(f field) int64 {
	switch f {
	case tokens:
		return s.Tokens
	case patches:
		return s.Patches
	default:
		return s.Images
	}
}

func (s Sample) negative() bool { return s.Tokens|s.Patches|s.Images < 0 }

// Model is the cost of samples. It is immutable and safe for concurrent use.
type Model interface {
	// Cost returns the cost units of s, at least 0. It is a pure function of s
	// and does not allocate unless it fails. Errors are of class fault.User and
	// name the model and the sample's fields.
	Cost(s Sample) (int64, error)

	// String is the canonical text of the model. Models of equal text are equal.
	String() string
}

// Func is a Go function as a model: pure, at least 0, and safe for concurrent
// use. A function does not tell what it computes, so its String is "func", equal
// for all; give it a name with Named where a job's identity depends on it.
type Func func(Sample) int64

// Cost calls the function.
func (f Func) Cost(s Sample) (int64, error) { return called("func", f, s) }

// String returns "func".
func (f Func) String() string { return "func" }

type namedFunc struct {
	name string
	f    Func
}

// Named is a Go function as a model whose String is "func " and the name. The
// caller changes the name whenever the function changes what it computes.
func Named(name string, f Func) Model { return &namedFunc{"func " + name, f} }

func (n *namedFunc) Cost(s Sample) (int64, error) { return called(n.name, n.f, s) }
func (n *namedFunc) String() string               { return n.name }

func called(name string, f Func, s Sample) (int64, error) {
	if f == nil {
		return 0, fault.Userf("cost %s: the function is nil", name)
	}
	if s.negative() {
		return 0, negativeField(name, s)
	}
	units := f(s)
	if units < 0 {
		return 0, fault.Userf("cost %s: %d for a sample of %v; a cost is 0 or more", name, units, s)
	}
	return units, nil
}

func negativeField(model string, s Sample) error {
	return fault.Userf("cost %s: a sample of %v has a negative count; each is 0 or more", model, s)
}

// Parse reads a model: a name such as quadratic, a name with parameters such as
// transformer(layers=32, hidden=4096, active=12), or an expression such as
// tokens * tokens + 24576 * tokens. Errors are of class fault.User and say
// what would be valid.
func Parse(spec string) (Model, error) {
	name, rest, hasParams := strings.Cut(strings.TrimSpace(spec), "(")
	name = strings.TrimSpace(name)
	if text, ok := preset(name); ok {
		if hasParams {
			return nil, fault.Userf("cost %s: it takes no parameters; it is short for %s", name, text)
		}
		return Parse(text)
	}
	if shape := shapeNamed(name); shape != nil {
		params, closed := strings.CutSuffix(rest, ")")
		if hasParams && !closed {
			return nil, fault.Userf("cost %s: expected ) after its parameters and nothing behind it; a model stands alone, expressions are over %s",
				name, strings.Join(fieldNames, ", "))
		}
		return shape.parse(params)
	}
	if isModelName(name) && (!hasParams || strings.Contains(rest, "=") && !slices.Contains(functionNames, name)) {
		return nil, unknownModel(name)
	}
	return Compile(spec)
}

// isModelName reports whether a text that is no model's name was meant to be one:
// a single word, with hyphens, that does not begin with a field.
func isModelName(s string) bool {
	first, _, _ := strings.Cut(s, "-")
	first = strings.TrimSpace(first)
	_, isField := fieldNamed(first)
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
	return !isField && first != "" && strings.Contains(letters, first[:1]) && !strings.Contains(first, ".") &&
		strings.Trim(s, letters+"0123456789.-") == ""
}

func unknownModel(name string) error {
	models := modelNames()
	return fault.Userf("cost %q: there is no such model%s; valid are %s, or an expression over %s",
		shortened(name), meant(name, slices.Concat(models, fieldNames)), strings.Join(models, ", "), strings.Join(fieldNames, ", "))
}

// meant is the part of a message that suggests a word, for what is longer than a
// letter.
func meant(got string, words []string) string {
	if near := didyoumean.Nearest(got, words); near != "" && len(got) > 1 {
		return ", did you mean " + near + "?"
	}
	return ""
}

// shortened is text that has to fit into a message of one line.
func shortened(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
