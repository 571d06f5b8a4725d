package filter

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/millrace-data/millrace/internal/expr"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// fail notes the first error of an evaluation. The evaluation goes on with null
// or false, which is cheaper than an error result on every closure; Eval
// throws its result away.
func (in *Input) fail(pos int, format string, args ...any) {
	if !in.failure.set {
		in.failure = failure{true, pos, fmt.Sprintf(format, args...)}
	}
}

// orders says which results of cmp an ordering operator accepts.
type orders struct{ less, equal, greater bool }

var orderings = map[string]orders{
	"<":  {less: true},
	"<=": {less: true, equal: true},
	">":  {greater: true},
	">=": {greater: true, equal: true},
}

func (o orders) accept(c int) bool {
	return c < 0 && o.less || c == 0 && o.equal || c > 0 && o.greater
}

// comparison builds the test of left op right.
func comparison(op *expr.Node, left, right node) func(*Input) bool {
	switch op.Text {
	case "==", "!=":
		negate := op.Text == "!="
		return func(in *Input) bool {
			l, r := left.eval(in), right.eval(in)
			return equal(in, op.Pos, &l, &r) != negate
		}
	}
	accepted := orderings[op.Text]
	return func(in *Input) bool {
		l, r := left.eval(in), right.eval(in)
		if l.Kind == format.Bool && r.Kind == format.Bool {
			in.fail(op.Pos, "bools have no order: use == or !=")
			return false
		}
		c, ordered := compare(in, op.Pos, &l, &r)
		return ordered && accepted.accept(c)
	}
}

// equal implements ==: null equals null only.
func equal(in *Input, pos int, l, r *format.Value) bool {
	if l.Kind == format.Null || r.Kind == format.Null {
		return l.Kind == r.Kind
	}
	c, ordered := compare(in, pos, l, r)
	return ordered && c == 0
}

// compare orders two values; ordered is false for null, NaN and, after an
// error, values that cannot be compared.
func compare(in *Input, pos int, l, r *format.Value) (c int, ordered bool) {
	switch {
	case l.Kind == format.Int && r.Kind == format.Int:
		return cmp.Compare(l.Int, r.Int), true
	case l.Kind == format.Null || r.Kind == format.Null:
		return 0, false
	case isText(l) && isText(r):
		return bytes.Compare(l.Bytes, r.Bytes), true
	case isNumber(l) && isNumber(r):
		return compareNumbers(l, r)
	case l.Kind == format.Bool && r.Kind == format.Bool:
		return cmp.Compare(l.Int, r.Int), true
	}
	in.fail(pos, "cannot compare %s with %s", kindName(l.Kind), kindName(r.Kind))
	return 0, false
}

func isText(v *format.Value) bool   { return v.Kind == format.String || v.Kind == format.Bytes }
func isNumber(v *format.Value) bool { return v.Kind == format.Int || v.Kind == format.Float }

// compareNumbers compares two numbers of which one is a float.
func compareNumbers(l, r *format.Value) (c int, ordered bool) {
	switch {
	case l.Kind == format.Int:
		return compareIntFloat(l.Int, r.Float)
	case r.Kind == format.Int:
		c, ordered = compareIntFloat(r.Int, l.Float)
		return -c, ordered
	}
	return cmp.Compare(l.Float, r.Float), l.Float == l.Float && r.Float == r.Float
}

// compareIntFloat compares by exact value: turning i into a float would make
// 2^53+1 equal to 2^53.
func compareIntFloat(i int64, f float64) (c int, ordered bool) {
	switch {
	case math.IsNaN(f):
		return 0, false
	case f >= 1<<63:
		return -1, true
	case f < -1<<63:
		return 1, true
	}
	whole, fraction := math.Modf(f)
	if c := cmp.Compare(i, int64(whole)); c != 0 {
		return c, true
	}
	return cmp.Compare(0, fraction), true
}

// contains implements l in r for a string, a list or token ids r.
func contains(in *Input, pos int, l, r *format.Value) bool {
	switch r.Kind {
	case format.Null:
		return false
	case format.String, format.Bytes:
		if l.Kind == format.Null {
			return false
		}
		if !isText(l) {
			in.fail(pos, "cannot look for %s in %s: only a string is part of a string", kindName(l.Kind), kindName(r.Kind))
			return false
		}
		return bytes.Contains(r.Bytes, l.Bytes)
	case format.List:
		for i := range r.List {
			if equal(in, pos, l, &r.List[i]) {
				return true
			}
		}
		return false
	case format.Tokens:
		for _, id := range r.Tokens {
			if equal(in, pos, l, &format.Value{Kind: format.Int, Int: int64(id)}) {
				return true
			}
		}
		return false
	}
	in.fail(pos, "cannot look into %s: in takes a string, a list or tokens on its right", kindName(r.Kind))
	return false
}

// indexFrom is the list length from which a hash look-up beats comparing.
const indexFrom = 8

// literalList is the right side of in when it is a list of literals: all
// strings, all numbers or all bools, with or without null.
type literalList struct {
	items []format.Value
	index map[string]bool // the strings of a long list, else nil
}

func newLiteralList(items []format.Value) *literalList {
	list := &literalList{items: items}
	if len(items) < indexFrom || !slices.ContainsFunc(items, func(v format.Value) bool { return isText(&v) }) {
		return list
	}
	list.index = make(map[string]bool, len(items))
	for _, item := range items {
		if isText(&item) {
			list.index[string(item.Bytes)] = true
		}
	}
	return list
}

func (list *literalList) contains(in *Input, pos int, v *format.Value) bool {
	if list.index != nil && isText(v) {
		return list.index[string(v.Bytes)]
	}
	for i := range list.items {
		if equal(in, pos, v, &list.items[i]) {
			return true
		}
	}
	return false
}

// calculate is l op r for an arithmetic op. Null in gives null out. The
// operators are a switch and not a table of functions, so that l and r stay on
// the stack.
func calculate(in *Input, op *expr.Node, l, r *format.Value) format.Value {
	switch {
	case l.Kind == format.Null || r.Kind == format.Null:
		return format.Value{}
	case op.Text == "/":
		return divide(in, op, l, r)
	case op.Text == "%":
		return remainder(in, op, l, r)
	case l.Kind == format.Int && r.Kind == format.Int:
		return calculateInt(in, op, l.Int, r.Int)
	}
	x, y, ok := in.floats(op, l, r)
	if !ok {
		return format.Value{}
	}
	// The conversions keep a product from being fused with a later sum.
	switch op.Text {
	case "+":
		return realValue(float64(x + y))
	case "-":
		return realValue(float64(x - y))
	}
	return realValue(float64(x * y))
}

func calculateInt(in *Input, op *expr.Node, l, r int64) format.Value {
	var result int64
	var fits bool
	switch op.Text {
	case "+":
		result = l + r
		fits = (result > l) == (r > 0)
	case "-":
		result = l - r
		fits = (result < l) == (r > 0)
	default:
		result = l * r
		fits = l == 0 || result/l == r && !(l == -1 && r == math.MinInt64)
	}
	if !fits {
		in.fail(op.Pos, "%d %s %d does not fit in 64 bits", l, op.Text, r)
		return format.Value{}
	}
	return format.Value{Kind: format.Int, Int: result}
}

func divide(in *Input, op *expr.Node, l, r *format.Value) format.Value {
	x, y, ok := in.floats(op, l, r)
	if !ok {
		return format.Value{}
	}
	if y == 0 {
		in.fail(op.Pos, "division by zero")
		return format.Value{}
	}
	return realValue(x / y)
}

func remainder(in *Input, op *expr.Node, l, r *format.Value) format.Value {
	if l.Kind != format.Int || r.Kind != format.Int {
		in.fail(op.Pos, "%% takes ints, and here are %s and %s", kindName(l.Kind), kindName(r.Kind))
		return format.Value{}
	}
	if r.Int == 0 {
		in.fail(op.Pos, "division by zero")
		return format.Value{}
	}
	return format.Value{Kind: format.Int, Int: l.Int % r.Int}
}

// floats gives two numbers as floats; ok is false, after an error, for anything
// else.
func (in *Input) floats(op *expr.Node, l, r *format.Value) (x, y float64, ok bool) {
	if !isNumber(l) || !isNumber(r) {
		in.fail(op.Pos, "%s takes numbers, and here are %s and %s", op.Text, kindName(l.Kind), kindName(r.Kind))
		return 0, 0, false
	}
	return asFloat(l), asFloat(r), true
}

func asFloat(v *format.Value) float64 {
	if v.Kind == format.Int {
		return float64(v.Int)
	}
	return v.Float
}

func realValue(f float64) format.Value { return format.Value{Kind: format.Float, Float: f} }

func negative(in *Input, pos int, v *format.Value) format.Value {
	switch {
	case v.Kind == format.Null:
		return *v
	case v.Kind == format.Float:
		return realValue(-v.Float)
	case v.Kind != format.Int:
		in.fail(pos, "- takes a number, and this is %s", kindName(v.Kind))
		return format.Value{}
	case v.Int == math.MinInt64:
		in.fail(pos, "-(%d) does not fit in 64 bits", v.Int)
		return format.Value{}
	}
	return format.Value{Kind: format.Int, Int: -v.Int}
}
