package cost_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/planner/cost"
)

// anyCount is a count of any size: small, usual, huge, or next to a power of two.
func anyCount(rng *rand.Rand) int64 {
	n := rng.Int64() >> rng.IntN(63)
	if rng.IntN(4) == 0 {
		n = max(1<<rng.IntN(63)+rng.Int64N(3)-1, 0)
	}
	return n
}

// TestFormulasAreExact compares models with the formulas of the package comment in
// numbers without bounds: the cost is right, and refused only if it does not fit.
func TestFormulasAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	fits, overflows := 0, 0
	for range 1500 {
		v, s := [3]int64{anyCount(rng), anyCount(rng), 1 + rng.Int64N(100)}, anyCount(rng)
		layers, hidden, tenths := 1+rng.Int64N(200), 1+rng.Int64N(20000), 1+rng.Int64N(400)
		x := big.NewInt(s)
		times := func(f ...int64) *big.Int {
			p := big.NewInt(1)
			for _, f := range f {
				p.Mul(p, big.NewInt(f))
			}
			return p
		}
		square := new(big.Int).Mul(x, x)
		sum := func(a, b *big.Int) *big.Int {
			return new(big.Int).Add(new(big.Int).Mul(a, x), new(big.Int).Mul(b, square))
		}
		// 2 L h² a is rounded up to a whole operation.
		perToken := times(2, layers, hidden, hidden, tenths)
		perToken.Add(perToken, big.NewInt(9)).Quo(perToken, big.NewInt(10))
		unit := big.NewInt(1 << 20)
		up := func(n *big.Int) *big.Int {
			return n.Quo(n.Add(n, big.NewInt(1<<20-1)), unit)
		}
		for spec, want := range map[string]*big.Int{
			fmt.Sprintf("linear(a=%d)", v[0]):                                                                    times(v[0], s),
			fmt.Sprintf("quadratic(a=%d, b=%d)", v[0], v[1]):                                                     sum(times(v[0]), times(v[1])),
			fmt.Sprintf("quadratic(a=%d, b=%d, of=patches)", v[2], v[2]):                                         sum(times(v[2]), times(v[2])),
			fmt.Sprintf("memory(bytes_per_token=%d, fixed_bytes=%d)", v[2], v[1]):                                new(big.Int).Add(times(v[2], s), times(v[1])),
			fmt.Sprintf("transformer(layers=%d, hidden=%d, active=%d.%d)", layers, hidden, tenths/10, tenths%10): up(sum(perToken, times(2, layers, hidden))),
			fmt.Sprintf("encoder(layers=%d, hidden=%d)", layers, hidden):                                         up(sum(times(24, layers, hidden, hidden), times(4, layers, hidden))),
		} {
			got, err := parse(t, spec).Cost(cost.Sample{Tokens: s, Patches: s, Images: 1})
			if want.IsInt64() != (err == nil) || err == nil && got != want.Int64() {
				t.Fatalf("%s of %d: %d, %v, want %v", spec, s, got, err, want)
			}
			if err == nil {
				fits++
			} else {
				overflows++
			}
		}
	}
	if min(fits, overflows) < 1500 {
		t.Errorf("%d fit and %d overflow: the test is one-sided", fits, overflows)
	}
}

// exact is a number as the package comment defines it: a value in units of
// 10^-decimals, nil if an operation had no result.
type exact struct {
	value    *big.Rat
	decimals int
	constant bool
}

// held is the exact of a value, which has a result only if it fits in 64 bits.
func held(value *big.Rat, decimals int, constant bool) exact {
	if value == nil {
		return exact{nil, decimals, constant}
	}
	if n := inUnits(value, decimals); !n.IsInt() || !n.Num().IsInt64() {
		value = nil
	}
	for constant && value != nil && decimals > 0 && inUnits(value, decimals-1).IsInt() {
		decimals-- // to lowest terms
	}
	return exact{value, decimals, constant}
}

func inUnits(value *big.Rat, decimals int) *big.Rat {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(decimals)), nil)
	return new(big.Rat).Mul(value, new(big.Rat).SetInt(power))
}

// writer makes random expressions and evaluates them as it goes, over one sample.
type writer struct {
	rng    *rand.Rand
	sample cost.Sample
	never  bool // a part without a field has no result: the expression does not compile
}

// together gives both the decimals of the one that has more.
func (w *writer) together(l, r exact) (exact, exact) {
	decimals := max(l.decimals, r.decimals)
	align := func(e exact) exact {
		if e.value != nil && !inUnits(e.value, decimals).Num().IsInt64() {
			e.value = nil
			w.never = w.never || e.constant
		}
		e.decimals = decimals
		return e
	}
	return align(l), align(r)
}

func (w *writer) number(depth int) (string, exact) {
	if depth == 0 || w.rng.IntN(6) == 0 {
		return w.leaf()
	}
	if w.rng.IntN(6) == 0 {
		return w.choice(depth - 1)
	}
	if w.rng.IntN(5) == 0 {
		return w.unary(depth - 1)
	}
	left, l := w.number(depth - 1)
	right, r := w.number(depth - 1)
	op := []string{"+", "-", "*", "/", "%", "min", "max"}[w.rng.IntN(7)]
	e := w.operate(op, l, r)
	if op == "min" || op == "max" {
		return fmt.Sprintf("%s(%s, %s)", op, left, right), e
	}
	return fmt.Sprintf("(%s) %s (%s)", left, op, right), e
}

func (w *writer) operate(op string, l, r exact) exact {
	constant, decimals := l.constant && r.constant, l.decimals+r.decimals
	if op != "*" {
		l, r = w.together(l, r)
		decimals = l.decimals
	}
	if (op == "/" || op == "%") && r.constant && r.value != nil && r.value.Sign() == 0 {
		w.never = true
	}
	var v *big.Rat
	if l.value == nil || r.value == nil {
		if op == "/" {
			decimals = 0
		}
		return held(nil, decimals, constant)
	}
	switch op {
	case "+":
		v = new(big.Rat).Add(l.value, r.value)
	case "-":
		v = new(big.Rat).Sub(l.value, r.value)
	case "*":
		v = new(big.Rat).Mul(l.value, r.value)
	case "min", "max":
		v = l.value
		if (l.value.Cmp(r.value) > 0) == (op == "min") {
			v = r.value
		}
	case "/", "%":
		if r.value.Sign() != 0 {
			ratio := new(big.Rat).Quo(l.value, r.value)
			quotient := new(big.Rat).SetInt(new(big.Int).Quo(ratio.Num(), ratio.Denom()))
			if v = quotient; op == "%" {
				v = new(big.Rat).Sub(l.value, quotient.Mul(quotient, r.value))
			}
		}
		if op == "/" {
			decimals = 0
		}
	}
	e := held(v, decimals, constant)
	w.never = w.never || constant && e.value == nil
	return e
}

func (w *writer) leaf() (string, exact) {
	fields := map[string]int64{"tokens": w.sample.Tokens, "patches": w.sample.Patches, "images": w.sample.Images}
	if name := []string{"tokens", "patches", "images", ""}[w.rng.IntN(4)]; name != "" {
		return name, held(new(big.Rat).SetInt64(fields[name]), 0, false)
	}
	literal, decimals := fmt.Sprint(anyCount(w.rng)), 0
	if d := w.rng.IntN(4); d > 0 && len(literal) < 16 {
		literal += "." + fmt.Sprintf("%0*d", d, w.rng.IntN(1000))[:d]
		decimals = d
	}
	v, _ := new(big.Rat).SetString(literal)
	return literal, held(v, decimals, true)
}

func (w *writer) unary(depth int) (string, exact) {
	text, e := w.number(depth)
	switch w.rng.IntN(3) {
	case 0:
		return "-(" + text + ")", w.operate("-", exact{new(big.Rat), 0, true}, e)
	case 1:
		if e.value != nil {
			e.value = new(big.Rat).Abs(e.value)
		}
		return "abs(" + text + ")", held(e.value, e.decimals, e.constant)
	default:
		if e.value == nil || e.value.Sign() < 0 {
			w.never = w.never || e.constant
			return "sqrt(" + text + ")", exact{nil, 0, e.constant}
		}
		floor := new(big.Int).Quo(e.value.Num(), e.value.Denom())
		return "sqrt(" + text + ")", held(new(big.Rat).SetInt(floor.Sqrt(floor)), 0, e.constant)
	}
}

func (w *writer) choice(depth int) (string, exact) {
	left, l := w.number(depth)
	right, r := w.number(depth)
	then, t := w.number(depth)
	other, o := w.number(depth)
	text := fmt.Sprintf("if((%s) <= (%s), %s, %s)", left, right, then, other)
	l, r = w.together(l, r)
	t, o = w.together(t, o)
	chosen := t
	if l.value != nil && r.value != nil && l.value.Cmp(r.value) > 0 {
		chosen = o
	}
	if l.value == nil || r.value == nil {
		chosen.value = nil
	}
	return text, exact{chosen.value, t.decimals, false}
}

// TestRandomExpressions compares expressions made from the grammar with their
// values in numbers without bounds. What has a result there has it here, and the
// same; what has none there is an error here, when compiling or when evaluating.
func TestRandomExpressions(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	results, errors, never, refused := 0, 0, 0, 0
	for range 6000 {
		w := &writer{rng: rng, sample: cost.Sample{Tokens: anyCount(rng), Patches: anyCount(rng), Images: rng.Int64N(4)}}
		expr, want := w.number(1 + rng.IntN(4))
		m, err := cost.Compile(expr)
		if err != nil && (strings.Contains(err.Error(), "decimals") || strings.Contains(err.Error(), "not a whole number")) {
			refused++ // by a rule that the writer does not know
			continue
		}
		if w.never != (err != nil) {
			t.Fatalf("%s: %v, though a part without a field has no result: %v", expr, err, w.never)
		}
		if w.never {
			never++
			continue
		}
		got, err := m.Cost(w.sample)
		again := compile(t, m.String())
		if value, failed := again.Cost(w.sample); again.String() != m.String() || value != got || (failed == nil) != (err == nil) {
			t.Fatalf("%s\nis %s with %d, %v; compiled again it is %s with %d, %v", expr, m, got, err, again, value, failed)
		}
		if want.value == nil || want.value.Sign() < 0 {
			errors++
			if err == nil {
				t.Fatalf("%s of %v: %d, want an error", expr, w.sample, got)
			}
			continue
		}
		results++
		n := new(big.Int).Add(want.value.Num(), want.value.Denom())
		n.Sub(n, big.NewInt(1)).Quo(n, want.value.Denom())
		if err != nil || got != n.Int64() {
			t.Fatalf("%s of %v: %d, %v, want %v", expr, w.sample, got, err, n)
		}
	}
	t.Logf("%d results, %d errors, %d never with a result, %d refused", results, errors, never, refused)
	if min(results, errors) < 1200 || never < 60 {
		t.Errorf("%d results, %d errors, %d never with a result, of 6000: the test is one-sided", results, errors, never)
	}
}

// TestRoots compares sqrt with that of big.Int, next to squares above all.
func TestRoots(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	m := parse(t, "sqrt(tokens)")
	check := func(x int64) {
		want := new(big.Int).Sqrt(big.NewInt(x)).Int64()
		if got, err := m.Cost(text(x)); got != want || err != nil {
			t.Fatalf("the root of %d is %d, %v, want %d", x, got, err, want)
		}
	}
	for range 10000 {
		x := anyCount(rng)
		r := int64(math.Sqrt(float64(x)))
		for _, n := range []int64{x, r*r - 1, r * r, r*r + 1} {
			if n >= 0 {
				check(n)
			}
		}
	}
	check(3037000499 * 3037000499)
	check(3037000499*3037000499 - 1)
	check(math.MaxInt64)
}
