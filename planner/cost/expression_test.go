package cost_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/planner/cost"
)

func compile(tb testing.TB, expr string) cost.Model {
	tb.Helper()
	m, err := cost.Compile(expr)
	if err != nil {
		tb.Fatalf("%s: %v", expr, err)
	}
	return m
}

// TestExpressions evaluates with tokens=100, patches=7, images=2.
func TestExpressions(t *testing.T) {
	sample := cost.Sample{Tokens: 100, Patches: 7, Images: 2}
	for _, tc := range []struct {
		expr, text string
		want       int64
	}{
		{"12", "12", 12},
		{"007", "7", 7},
		{"tokens*tokens+24576*tokens", "tokens * tokens + 24576 * tokens", 10000 + 2457600},
		{"tokens - patches - images", "tokens - patches - images", 91},
		{"tokens - (patches - images)", "tokens - (patches - images)", 95},
		{"(tokens - patches) - images", "tokens - patches - images", 91},
		{"2 + 3 * tokens", "2 + 3 * tokens", 302},
		{"((2 + 3)) * (tokens)", "(2 + 3) * tokens", 500},
		{"tokens / patches * patches + tokens % patches", "tokens / patches * patches + tokens % patches", 100},
		{"tokens * patches / 3", "tokens * patches / 3", 233},
		{"tokens * (patches / 3)", "tokens * (patches / 3)", 200},
		{"-(0 - tokens) / patches", "-(0 - tokens) / patches", 14},
		{"--tokens", "--tokens", 100},
		{"abs((patches - tokens) / 2)", "abs((patches - tokens) / 2)", 46}, // toward zero
		{"10 + (patches - tokens) % 7", "10 + (patches - tokens) % 7", 8},  // the sign of its left
		{"min(tokens, patches, images)", "min(tokens, patches, images)", 2},
		{"max(tokens, 3*tokens, 512)", "max(tokens, 3 * tokens, 512)", 512},
		{"min(-3, -images) + 4", "min(-3, -images) + 4", 1},
		{"sqrt(tokens) + sqrt(patches)", "sqrt(tokens) + sqrt(patches)", 12},
		{"sqrt(9223372036854775807)", "sqrt(9223372036854775807)", 3037000499},
		{"sqrt(0.25 * tokens + 0.5)", "sqrt(0.25 * tokens + 0.5)", 5},
		{"abs(patches - tokens)", "abs(patches - tokens)", 93},
		{"if(tokens > 99, patches, 1 / (images - 2))", "if(tokens > 99, patches, 1 / (images - 2))", 7},
		{"if(images != 2 && 1 / (images - 2) > 0, 1, 3)", "if(images != 2 and 1 / (images - 2) > 0, 1, 3)", 3},
		{"if(images == 2 || 1 / (images - 2) > 0, 1, 3)", "if(images == 2 or 1 / (images - 2) > 0, 1, 3)", 1},
		{"if(!(tokens < 5) and not patches >= 8, 1, 0)", "if(not tokens < 5 and not patches >= 8, 1, 0)", 1},
		{"if((tokens < 5 or patches <= 7) and images != 3, if(0 == images, 5, images * 0.5), 9)", "if((tokens < 5 or patches <= 7) and images != 3, if(0 == images, 5, images * 0.5), 9)", 1},
		{"if(512 < tokens, 1, 0) + if(50 < tokens, 2, 0) + if(3 > images, 4, 0)", "if(512 < tokens, 1, 0) + if(50 < tokens, 2, 0) + if(3 > images, 4, 0)", 6},
		{"tokens / (2 - 2 + images)", "tokens / (2 - 2 + images)", 50},
		{"if(50 > patches * 7, 1, 0) + if(50 >= tokens - 1, 2, 0)", "if(50 > patches * 7, 1, 0) + if(50 >= tokens - 1, 2, 0)", 1},
		{"0.1 * patches", "0.1 * patches", 1}, // 0.7, up
		{"0.5 * tokens", "0.5 * tokens", 50},  // exactly
		{"0.1 * tokens + 0.001", "0.1 * tokens + 0.001", 11},
		{"0.50 * 2e0 * tokens", "0.5 * 2 * tokens", 100},
		{"2.5e-3 * tokens * 4e2", "0.0025 * tokens * 400", 100},
		{"1.5 * 1.5 * images", "1.5 * 1.5 * images", 5},
		{"tokens / 0.3", "tokens / 0.3", 333},
		{"7.5 % images", "7.5 % images", 2},
		{"3 / 0.5 + images", "3 / 0.5 + images", 8},
		{"if(0.07 * tokens == patches, 1.25, 3)", "if(0.07 * tokens == patches, 1.25, 3)", 2},
		{"max(0, 0 - 9223372036854775807 - 1 + tokens)", "max(0, 0 - 9223372036854775807 - 1 + tokens)", 0},
		{"1e9 * tokens", "1000000000 * tokens", 1e11},
	} {
		m := compile(t, tc.expr)
		if got, err := m.Cost(sample); got != tc.want || err != nil {
			t.Errorf("%s: %d, %v, want %d", tc.expr, got, err, tc.want)
		}
		if m.String() != tc.text {
			t.Errorf("%s: its text is %q, want %q", tc.expr, m, tc.text)
		}
		if again := compile(t, m.String()); again.String() != tc.text {
			t.Errorf("%s: compiled again its text is %q", m, again)
		}
	}
}

// TestCompileErrors holds messages word for word.
func TestCompileErrors(t *testing.T) {
	for expr, want := range map[string]string{
		"":                          "cost: the expression is empty; an example is: tokens * tokens + 24576 * tokens",
		"tokens * tokns":            `cost, column 10 ("tokns"): there is no field tokns, did you mean tokens?; valid are tokens, patches, images`,
		"2 * squirt(tokens)":        `cost, column 5 ("squirt(tokens)"): there is no function squirt, did you mean sqrt?; valid are min, max, abs, sqrt, if`,
		"tokens(3)":                 `cost, column 1 ("tokens(3)"): tokens is a field, not a function: write it without parentheses`,
		"min + 3":                   `cost, column 1 ("min + 3"): min is a function: write min(x, y, ...)`,
		"min(tokens)":               `cost, column 1 ("min(tokens)"): write min(x, y, ...): 1 arguments are given`,
		"abs()":                     `cost, column 1 ("abs()"): write abs(x): 0 arguments are given`,
		"if(tokens, 1, 2)":          `cost, column 4 ("tokens, 1, 2)"): the condition of if takes what is true or false, and this is a number: compare it, as in tokens > 512`,
		"tokens > 3":                `cost, column 8 ("> 3"): a cost takes numbers, and this is true or false: if(tokens > 512, 1, 0) makes a number of it`,
		"1 + (tokens > 3)":          `cost, column 13 ("> 3)"): + takes numbers, and this is true or false: if(tokens > 512, 1, 0) makes a number of it`,
		"tokens and 3":              `cost, column 1 ("tokens and 3"): and takes what is true or false, and this is a number: compare it, as in tokens > 512`,
		"if(1 < tokens < 5,1,0)":    `cost, column 15 ("< 5,1,0)"): comparisons do not chain: write 1 < tokens and tokens < 5, or use parentheses`,
		"tokens tokens":             `cost, column 8 ("tokens"): expected the end, or an operator such as and, ==, <, + before this`,
		"(tokens":                   `cost, column 8 (the end): expected ) to close the parenthesis`,
		"min(tokens 3)":             `cost, column 12 ("3)"): expected ) or , after an argument of min`,
		"tokens *":                  `cost, column 9 (the end): expected a value: a number, tokens, patches, images, a function call or a parenthesis`,
		"and 3":                     `cost, column 1 ("and 3"): expected a value before and`,
		"tokens ? 1 : 2":            `cost, column 8 ("? 1 : 2"): ? is not an operator: write if(condition, then, else)`,
		"tokens^2":                  `cost, column 7 ("^2"): ^ is not an operator: write tokens * tokens for a square`,
		"2tokens":                   `cost, column 1 ("2tokens"): not a number: valid are 12, 1.5, 2e-3; a product needs its *`,
		"tokens = 3":                `cost, column 8 ("= 3"): = is not an operator: write == to compare`,
		"tokens & 3":                `cost, column 8 ("& 3"): & is not an operator: write and, or &&`,
		"tokens | 3":                `cost, column 8 ("| 3"): | is not an operator: write or, or ||`,
		"1 < (2 *)":                 `cost, column 9 (")"): expected a value: a number, tokens, patches, images, a function call or a parenthesis`,
		"-(":                        `cost, column 3 (the end): expected a value: a number, tokens, patches, images, a function call or a parenthesis`,
		"tökens":                    `cost, column 1 ("tökens"): there is no field tökens, did you mean tokens?; valid are tokens, patches, images`,
		"tokens ~ 2":                `cost, column 8 ("~ 2"): character '~' has no meaning here: valid are names, numbers, and || && == != <= >= < > ! + - * / % ( ) ,`,
		"3 / 2 * tokens":            `cost, column 3 ("/ 2 * tokens"): 3 / 2 is not a whole number, and / drops the fraction: write a decimal, such as 1.5 for 3 / 2, or multiply before you divide`,
		"tokens / (2 - 2)":          `cost, column 8 ("/ (2 - 2)"): division by zero, whatever the sample`,
		"tokens % 0":                `cost, column 8 ("% 0"): division by zero, whatever the sample`,
		"1 / (2 - 2)":               `cost, column 3 ("/ (2 - 2)"): division by zero, whatever the sample`,
		"sqrt(-1) + tokens":         `cost, column 1 ("sqrt(-1) + tokens"): the square root of a negative number, whatever the sample`,
		"tokens + 1e18 * 10":        `cost, column 15 ("* 10"): the result does not fit in 64 bits, whatever the sample`,
		"0.5 + 9223372036854775807": `cost, column 5 ("+ 9223372036854775807"): 9223372036854775807 in units of 10^-1: the result does not fit in 64 bits`,
		"9223372036854775808":       `cost, column 1 ("9223372036854775808"): 9223372036854775808: it does not fit in 64 bits: the largest number is 9223372036854775807, and with d decimals 10^d times less`,
		"1e-10 * tokens":            `cost, column 1 ("1e-10 * tokens"): 1e-10: it has 10 decimals, and at most 9 are allowed`,
		"1e-99999 * tokens":         `cost, column 1 ("1e-99999 * tokens"): 1e-99999: the exponent is out of range`,
		"1e-5*tokens*1e-5":          `cost, column 12 ("*1e-5"): the product needs 10 decimals, and at most 9 are allowed: round its factors, or divide by a power of ten at the end`,
		"1 + quadratic(a=3)":        `cost, column 16 ("=3)"): = is not an operator: write == to compare`,
		"1 + quadratic(3)":          `cost, column 5 ("quadratic(3)"): quadratic is a model: it stands alone, not in an expression`,
		"\xff":                      `cost, column 1 ("�"): character '�' has no meaning here: valid are names, numbers, and || && == != <= >= < > ! + - * / % ( ) ,`,
	} {
		_, err := cost.Compile(expr)
		if err == nil || err.Error() != want || fault.ClassOf(err) != fault.User {
			t.Errorf("%s:\n got %v\nwant %s", expr, err, want)
		}
	}
}

// TestEvaluationErrors holds messages word for word.
func TestEvaluationErrors(t *testing.T) {
	s := cost.Sample{Tokens: 3, Patches: math.MaxInt64}
	const fields = ", for a sample of tokens=3, patches=9223372036854775807, images=0"
	for expr, want := range map[string]string{
		"tokens + 1 + patches":   `cost "tokens + 1 + patches", column 12 ("+ patches"): the result does not fit in 64 bits` + fields,
		"0 - patches - tokens":   `cost "0 - patches - tokens", column 13 ("- tokens"): the result does not fit in 64 bits` + fields,
		"tokens * patches":       `cost "tokens * patches", column 8 ("* patches"): the result does not fit in 64 bits` + fields,
		"tokens / images":        `cost "tokens / images", column 8 ("/ images"): division by zero` + fields,
		"1 + tokens % images":    `cost "1 + tokens % images", column 12 ("% images"): division by zero` + fields,
		"sqrt(images - tokens)":  `cost "sqrt(images - tokens)", column 1 ("sqrt(images - tokens)"): the square root of a negative number` + fields,
		"sqrt(0.1 - tokens)":     `cost "sqrt(0.1 - tokens)", column 1 ("sqrt(0.1 - tokens)"): the square root of a negative number` + fields,
		"abs(-patches - 1)":      `cost "abs(-patches - 1)", column 1 ("abs(-patches - 1)"): the result does not fit in 64 bits` + fields,
		"(-patches - 1) / -1":    `cost "(-patches - 1) / -1", column 16 ("/ -1"): the result does not fit in 64 bits` + fields,
		"patches + 0.5":          `cost "patches + 0.5", column 9 ("+ 0.5"): the result does not fit in 64 bits` + fields,
		"if(patches > 0.5, 1,2)": `cost "if(patches > 0.5, 1,2)", column 12 ("> 0.5, 1,2)"): the result does not fit in 64 bits` + fields,
		"images - tokens":        `cost "images - tokens": -3 for a sample of tokens=3, patches=9223372036854775807, images=0; a cost is 0 or more, as max(0, ...) makes it`,
		"images - 0.25":          `cost "images - 0.25": -0.25 for a sample of tokens=3, patches=9223372036854775807, images=0; a cost is 0 or more, as max(0, ...) makes it`,
	} {
		refuses(t, compile(t, expr), s, want)
	}
	refuses(t, compile(t, "7"), text(-1), `cost "7": a sample of tokens=-1, patches=0, images=0 has a negative count; each is 0 or more`)
}

// TestLimits checks expressions at a limit and beyond it.
func TestLimits(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("(", n) + "tokens" + strings.Repeat(")", n) }
	chain := func(n int) string { return "1" + strings.Repeat("+1", n) }
	waiting := func(n int) string { // n results wait for the last one
		return strings.Repeat("(tokens*images)+(", n) + "tokens*images" + strings.Repeat(")", n)
	}
	for _, tc := range []struct {
		build   func(int) string
		allowed int
		want    string
	}{
		{nested, cost.MaxDepth, "nested deeper than 100: write a Go function for a model of this size"},
		{func(n int) string { return strings.Repeat("-", n) + "1 + 2" }, cost.MaxDepth, "nested deeper than 100: write a Go function for a model of this size"},
		{chain, (cost.MaxNodes - 1) / 2, "more than 1000 operators, fields and numbers: write a Go function for a model of this size"},
		{waiting, 27, "more than 28 results wait for their operator here: begin with what is nested most, or write a Go function"},
		{func(n int) string { return "1" + strings.Repeat(" ", n) }, cost.MaxLength - 1, "cost of 4097 bytes: at most 4096 are allowed; write a Go function for a model of this size"},
	} {
		compile(t, tc.build(tc.allowed))
		_, err := cost.Compile(tc.build(tc.allowed + 1))
		if err == nil || !strings.HasSuffix(err.Error(), tc.want) || fault.ClassOf(err) != fault.User {
			t.Errorf("%s beyond the limit: %v", tc.want, err)
		}
	}
	if got, err := compile(t, waiting(27)).Cost(cost.Sample{Tokens: 2, Images: 3}); got != 6*28 || err != nil {
		t.Errorf("28 terms of 6 are %d, %v", got, err)
	}
	long := fmt.Sprintf("%s - tokens", chain(60))
	if _, err := compile(t, long).Cost(text(100)); err == nil || !strings.HasPrefix(err.Error(), `cost "1+1+1`) || !strings.Contains(err.Error(), "…") {
		t.Errorf("a long expression in a message: %v", err)
	}
}
