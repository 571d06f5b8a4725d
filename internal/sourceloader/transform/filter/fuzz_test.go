package filter

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// FuzzCompile checks that no expression makes the compiler or an evaluation
// panic, that errors are the user's, and that evaluating twice gives the same.
func FuzzCompile(f *testing.F) {
	for _, expr := range []string{
		"len(text) > 20 and lang == 'en'",
		"not (a.b[].c in ['x', \"y\", null]) || !matches(text, r'^\\d+')",
		"-9223372036854775808 - n % 2 * 1.5e3 / score <= runes(lower(`weird name`))",
		"startswith(x, 'a') && tokens() not in [1, 2] or 7 in tokens",
		"'\\u00e9\\n' == x or x == null",
		"((((((a", "not not not", "1 < 2 < 3", "len(", "'", "`", "[", "\x00", "é > ü",
	} {
		f.Add(expr)
	}
	values := make([]format.Value, 0, len(sample))
	for _, name := range []string{"lang", "n", "score", "yes", "jpg", "ids", "tags", "mixed", "zero", "max", "min", "nan", "absent"} {
		values = append(values, sample[name])
	}
	f.Fuzz(func(t *testing.T, expr string) {
		for start := range values {
			mentions := 0
			compiled, err := Compile(expr, Scope{Tokens: true, Column: func(string) (int, error) {
				mentions++
				return (start + mentions) % len(values), nil
			}})
			if err != nil {
				if fault.ClassOf(err) != fault.User {
					t.Fatalf("error of class %v: %v", fault.ClassOf(err), err)
				}
				return
			}
			in := Input{Text: []byte("some text"), Tokens: []int32{1, 2}, Values: values}
			keep, err := compiled.Eval(&in)
			again, errAgain := compiled.Eval(&in)
			if keep != again || (err == nil) != (errAgain == nil) || err != nil && (keep || err.Error() != errAgain.Error()) {
				t.Fatalf("first %v, %v; then %v, %v", keep, err, again, errAgain)
			}
		}
	})
}

// TestRandomExpressions evaluates expressions made from the grammar over columns
// of every kind: whatever compiles gives an answer or a user error, and
// not (e) is the opposite of e.
func TestRandomExpressions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	evaluated, failed := 0, 0
	for range 20000 {
		expr := randomCondition(rng, 4)
		b, err := compile(expr, true)
		if err != nil {
			continue // the types do not fit; that is checked in TestCompileErrors
		}
		negated, err := compile("not ("+expr+")", true)
		if err != nil {
			t.Fatalf("%s compiles, but not its negation: %v", expr, err)
		}
		in := Input{Text: []byte("Hello"), Tokens: []int32{1, 2, 3}}
		keep, err := b.eval(&in, sample)
		opposite, errOpposite := negated.eval(&in, sample)
		if (err == nil) != (errOpposite == nil) {
			t.Fatalf("%s: %v, but negated %v", expr, err, errOpposite)
		}
		if evaluated++; err != nil {
			failed++
			continue
		}
		if keep == opposite {
			t.Fatalf("%s and its negation are both %v", expr, keep)
		}
	}
	if evaluated < 2000 || failed < 200 || failed > evaluated*9/10 {
		t.Errorf("%d expressions ran, %d of them failed: the generator tests too little", evaluated, failed)
	}
}

func pick(rng *rand.Rand, from ...string) string { return from[rng.IntN(len(from))] }

func randomCondition(rng *rand.Rand, depth int) string {
	if depth == 0 {
		return pick(rng, "yes", "no", "true", "absent", "null")
	}
	inner := func() string { return randomCondition(rng, depth-1) }
	value := func() string { return randomValue(rng, depth-1) }
	switch rng.IntN(7) {
	case 0:
		return "(" + inner() + pick(rng, " and ", " && ") + inner() + ")"
	case 1:
		return "(" + inner() + pick(rng, " or ", "||") + inner() + ")"
	case 2:
		return "not (" + inner() + ")"
	case 3:
		return value() + pick(rng, " in ", " not in ") + pick(rng, "tags", "mixed", "ids", "tokens", "lang", "[1, 2, 7]", "['en', null]")
	case 4:
		return pick(rng, "startswith", "endswith", "contains") + "(" + value() + ", " + value() + ")"
	}
	return value() + pick(rng, "==", "!=", "<", "<=", ">", ">=") + value()
}

func randomValue(rng *rand.Rand, depth int) string {
	if depth <= 0 || rng.IntN(3) == 0 {
		return pick(rng, "1", "-2.5", "'en'", "null", "text", "tokens()", "lang", "title", "n", "zero",
			"max", "min", "score", "nan", "big", "absent", "jpg", "ids", "`weird name`", "9223372036854775807")
	}
	inner := func() string { return randomValue(rng, depth-1) }
	switch rng.IntN(4) {
	case 0:
		return pick(rng, "len", "runes", "lower") + "(" + inner() + ")"
	case 1:
		return "-(" + inner() + ")"
	}
	return "(" + inner() + pick(rng, "+", "-", "*", "/", "%") + inner() + ")"
}

// TestIntArithmeticIsExact compares + - * with arbitrary precision on values
// around the limits: equal, or an error exactly if the result does not fit.
func TestIntArithmeticIsExact(t *testing.T) {
	edges := []int64{math.MinInt64, math.MinInt64 + 1, -1 << 32, -3, -1, 0, 1, 2, 1 << 31, 3037000500, math.MaxInt64 - 1, math.MaxInt64}
	for _, op := range []string{"+", "-", "*"} {
		b, err := compile("x "+op+" y == z", false)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range edges {
			for _, y := range edges {
				want := exactResult(op, x, y)
				z := int_(0)
				if want.IsInt64() {
					z = int_(want.Int64())
				}
				keep, err := b.eval(&Input{}, record{"x": int_(x), "y": int_(y), "z": z})
				if want.IsInt64() != (err == nil) || want.IsInt64() && !keep {
					t.Errorf("%d %s %d: %v, %v; exactly %v", x, op, y, keep, err, want)
				}
				if err != nil && !strings.Contains(err.Error(), "does not fit in 64 bits") {
					t.Error(err)
				}
			}
		}
	}
}

func exactResult(op string, x, y int64) *big.Int {
	a, b := big.NewInt(x), big.NewInt(y)
	switch op {
	case "+":
		return a.Add(a, b)
	case "-":
		return a.Sub(a, b)
	}
	return a.Mul(a, b)
}
