package filter

import (
	"strings"
	"unicode/utf8"

	"github.com/millrace-data/millrace/internal/expr"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// MaxLength bounds an expression in bytes: a list of a thousand languages or
// hosts fits, and a file pasted by mistake does not.
const MaxLength = 16 << 10

// MaxDepth bounds the nesting of an expression, and with it the stack that
// compiling and evaluating take. Long chains of and, of or, and lists do not nest.
const MaxDepth = expr.MaxDepth

// maxScratch is the scratch memory in bytes that is kept from one evaluation to
// the next: one huge text must not hold its size for the rest of the job.
const maxScratch = 16 << 20

// Scope is what an expression may name besides the current text.
type Scope struct {
	// Column gives the place of a column path in Input.Values, or says what is
	// wrong with the path. It is called during Compile, for each mention of a
	// column; it must not be nil.
	Column func(path string) (int, error)
	// Tokens says that token ids are known where the filter stands.
	Tokens bool
}

// Filter is a compiled expression. It is immutable and safe for concurrent use.
type Filter struct {
	src      string
	keep     func(*Input) bool
	usesText bool
}

// Input is what one evaluation sees, and its scratch memory. Set the exported
// fields before each Eval, which only reads them. The zero value is ready; one
// goroutine uses an Input at a time.
type Input struct {
	Text   []byte         // the current text
	Tokens []int32        // the current token ids
	Values []format.Value // the columns, by the places that Scope.Column gave

	lowered []byte  // memory of lower
	failure failure // the first error of this evaluation
}

// failure is a run-time error: an operator of the expression and what is wrong.
type failure struct {
	set  bool
	pos  int
	what string
}

// Compile compiles an expression. Errors are of class fault.User and say
// where in the expression, what is wrong and what would be valid. It takes
// time in proportion to the expression's length.
func Compile(src string, scope Scope) (*Filter, error) {
	switch {
	case len(src) > MaxLength:
		return nil, fault.Userf("filter of %d bytes: at most %d are allowed; several filter steps one after another do the same as and", len(src), MaxLength)
	case !utf8.ValidString(src):
		return nil, fault.Userf("filter %q: not valid UTF-8", src)
	case strings.TrimSpace(src) == "":
		return nil, fault.Userf("filter: the expression is empty; an example is: len(text) > 20")
	}
	tree, err := language.Parse(src)
	if err != nil {
		return nil, err
	}
	p := &compiler{src: src, scope: scope}
	n, err := p.whole(tree)
	if err != nil {
		return nil, err
	}
	return &Filter{src: src, keep: n.condition(), usesText: p.usesText}, nil
}

// UsesText reports whether the expression reads the current text.
func (f *Filter) UsesText() bool { return f.usesText }

// String returns the expression as it was written.
func (f *Filter) String() string { return f.src }

// Eval says whether the record in is kept. An error is of class fault.User, a
// pure function of the input, and names the place in the expression.
func (f *Filter) Eval(in *Input) (bool, error) {
	in.failure = failure{}
	in.lowered = in.lowered[:0]
	if cap(in.lowered) > maxScratch {
		in.lowered = nil
	}
	keep := f.keep(in)
	if in.failure.set {
		return false, language.Errorf(f.src, in.failure.pos, "%s", in.failure.what)
	}
	return keep, nil
}
