package jinja

import (
	"math"
	"slices"
	"strings"
	"unicode"
)

// isSpace is Python's white space of str, which has four separators that Go's lacks.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func isName(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

func refuseUndefined(values ...Value) {
	for _, v := range values {
		if u, is := v.(Undefined); is {
			panic(failf("%s", u.what))
		}
	}
}

// arithmetic applies an operator as Python does.
func arithmetic(op string, a, b Value) Value {
	if op == "~" {
		return bounded(text(a) + text(b))
	}
	refuseUndefined(a, b)
	if v, ok := ofSequences(op, a, b); ok {
		return v
	}
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok && op != "/" {
			return ofIntegers(op, x, y)
		}
	}
	x, _, okX := number(a)
	y, _, okY := number(b)
	if !okX || !okY {
		panic(failf("%s is not defined for %s and %s", op, typeName(a), typeName(b)))
	}
	return ofFloats(op, x, y)
}

// ofSequences joins and repeats texts and lists.
func ofSequences(op string, a, b Value) (Value, bool) {
	if _, ok := integer(a); ok && op == "*" {
		a, b = b, a
	}
	n, isInt := integer(b)
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		switch {
		case op == "+" && ok:
			return bounded(x + y), true
		case op == "*" && isInt:
			refuseLong(int64(len(x)), n)
			return strings.Repeat(x, int(max(n, 0))), true
		}
	case *List:
		y, ok := b.(*List)
		switch {
		case op == "+" && ok && x.Tuple == y.Tuple:
			if len(x.Items)+len(y.Items) > maxRange {
				panic(failf("a list is longer than %d", maxRange))
			}
			return &List{Items: slices.Concat(x.Items, y.Items), Tuple: x.Tuple}, true
		case op == "*" && isInt:
			refuseLong(int64(len(x.Items)), n)
			return &List{Items: slices.Repeat(x.Items, int(max(n, 0))), Tuple: x.Tuple}, true
		}
	}
	return nil, false
}

// bounded refuses a text that is longer than any conversation.
func bounded(s string) string {
	if len(s) > maxText {
		panic(failf("a text is longer than %d bytes", maxText))
	}
	return s
}

func refuseLong(length, times int64) {
	if times > 0 && length > maxRange/times {
		panic(failf("%d times %d is more than %d", length, times, maxRange))
	}
}

func ofIntegers(op string, x, y int64) Value {
	switch op {
	case "+":
		if sum := x + y; (sum > x) == (y > 0) {
			return sum
		}
	case "-":
		if difference := x - y; (difference < x) == (y > 0) {
			return difference
		}
	case "*":
		if x == 0 || y == 0 {
			return int64(0)
		}
		if product := x * y; product/y == x && (x != -1 || y != math.MinInt64) && (y != -1 || x != math.MinInt64) {
			return product
		}
	case "//", "%":
		if y == 0 {
			panic(failf("division by zero"))
		}
		quotient, rest := x/y, x%y
		if rest != 0 && (rest < 0) != (y < 0) {
			quotient, rest = quotient-1, rest+y
		}
		if op == "%" {
			return rest
		}
		return quotient
	case "**":
		if y < 0 {
			return math.Pow(float64(x), float64(y))
		}
		result := Value(int64(1))
		for range min(y, 64) {
			result = ofIntegers("*", result.(int64), x)
		}
		if y <= 64 || x == 0 || x == 1 {
			return result
		}
	}
	panic(failf("%d %s %d is beyond 64 bits", x, op, y))
}

func ofFloats(op string, x, y float64) Value {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		return math.Pow(x, y)
	}
	if y == 0 {
		panic(failf("division by zero"))
	}
	rest := math.Mod(x, y)
	if rest != 0 && (rest < 0) != (y < 0) {
		rest += y
	}
	switch op {
	case "/":
		return x / y
	case "//":
		return math.Floor((x - rest) / y)
	}
	return rest
}

// attributeOf is v.name: a method, else the key of a dict.
func attributeOf(v Value, name string) Value {
	if strings.HasPrefix(name, "_") {
		refuseUndefined(v)
		return Undefined{"the attribute " + name + " is not for templates"}
	}
	switch x := v.(type) {
	case Undefined:
		panic(failf("%s", x.what))
	case string:
		if f := textMethods[name]; f != nil {
			return method(name, x, f)
		}
	case *Dict:
		if f := dictMethods[name]; f != nil {
			return method(name, x, f)
		}
		if v, has := x.Get(name); has {
			return v
		}
		refuseChange(name, "clear", "pop", "popitem", "setdefault", "update")
	case *List:
		if f := listMethods[name]; f != nil {
			return method(name, x, f)
		}
		refuseChange(name, "append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")
	case *namespace:
		if v, has := x.Get(name); has {
			return v
		}
	case *loop:
		if v, has := x.attribute(name); has {
			return v
		}
	}
	return Undefined{"'" + typeName(v) + " object' has no attribute '" + name + "'"}
}

func refuseChange(name string, changes ...string) {
	if slices.Contains(changes, name) {
		panic(failf("%s changes a value, which templates may not", name))
	}
}

// itemOf is v[key].
func itemOf(v, key Value) Value {
	if u, is := v.(Undefined); is {
		panic(failf("%s", u.what))
	}
	if d, is := v.(*Dict); is {
		if item, has := d.Get(key); has {
			return item
		}
	} else if n, ok := integer(key); ok {
		if item, has := at(v, n); has {
			return item
		}
	}
	if name, is := key.(string); is {
		if _, isDict := v.(*Dict); !isDict || dictMethods[name] != nil {
			return attributeOf(v, name)
		}
	}
	return Undefined{"'" + typeName(v) + " object' has no element " + text(key)}
}

// at returns an element by number, from the end if that is negative.
func at(v Value, n int64) (Value, bool) {
	var items []Value
	switch x := v.(type) {
	case string, *List:
		items = elements(x)
	default:
		return nil, false
	}
	if n < 0 {
		n += int64(len(items))
	}
	if n < 0 || n >= int64(len(items)) {
		return nil, false
	}
	return items[n], true
}

// sliceOf is v[from:to:step].
func sliceOf(v Value, bounds [3]Value) Value {
	switch v.(type) {
	case string, *List:
	default:
		refuseUndefined(v)
		panic(failf("a %s has no parts", typeName(v)))
	}
	items := elements(v)
	n, step := int64(len(items)), int64(1)
	if bounds[2] != nil {
		step, _ = integer(bounds[2])
	}
	if step == 0 {
		panic(failf("the step of a slice is 0"))
	}
	step = min(max(step, -n-1), n+1) // a longer one goes as far, and may not overflow
	from, to := int64(0), n
	low, high := int64(0), n
	if step < 0 {
		from, to, low, high = n-1, -1, -1, n-1
	}
	from, to = bound(bounds[0], from, n, low, high), bound(bounds[1], to, n, low, high)
	var part []Value
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		part = append(part, items[i])
	}
	if l, is := v.(*List); is {
		return &List{Items: part, Tuple: l.Tuple}
	}
	var b strings.Builder
	for _, r := range part {
		b.WriteString(r.(string))
	}
	return b.String()
}

func bound(v Value, otherwise, n, low, high int64) int64 {
	if v == nil {
		return otherwise
	}
	i, ok := integer(v)
	if !ok {
		panic(failf("a slice has whole numbers, not a %s", typeName(v)))
	}
	if i < 0 {
		i += n
	}
	return min(max(i, low), high)
}
