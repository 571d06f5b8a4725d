package filter

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
)

// record is a set of named columns; a column that is not in it is null.
type record map[string]format.Value

func text_(s string) format.Value { return format.Value{Kind: format.String, Bytes: []byte(s)} }
func int_(i int64) format.Value   { return format.Value{Kind: format.Int, Int: i} }
func real_(f float64) format.Value {
	return format.Value{Kind: format.Float, Float: f}
}
func list_(v ...format.Value) format.Value { return format.Value{Kind: format.List, List: v} }

// bound is a filter with the names of its columns.
type bound struct {
	*Filter
	columns []string
}

func compile(expr string, tokens bool) (*bound, error) {
	b := &bound{}
	f, err := Compile(expr, Scope{Tokens: tokens, Column: func(path string) (int, error) {
		if path == "wrong" {
			return 0, errors.New("no such path")
		}
		b.columns = append(b.columns, path)
		return len(b.columns) - 1, nil
	}})
	b.Filter = f
	return b, err
}

func (b *bound) eval(in *Input, r record) (bool, error) {
	in.Values = in.Values[:0]
	for _, c := range b.columns {
		in.Values = append(in.Values, r[c])
	}
	return b.Eval(in)
}

// sample has a column of every kind.
var sample = record{
	"lang":              text_("en"),
	"title":             text_("Ärger IM Büro"),
	"empty":             text_(""),
	"n":                 int_(7),
	"zero":              int_(0),
	"max":               int_(math.MaxInt64),
	"min":               int_(math.MinInt64),
	"score":             real_(0.5),
	"nan":               real_(math.NaN()),
	"big":               real_(9007199254740992), // 2^53
	"yes":               truth(true),
	"no":                truth(false),
	"jpg":               {Kind: format.Bytes, Bytes: []byte{0xff, 0xd8, 'A'}},
	"ids":               {Kind: format.Tokens, Tokens: []int32{1, 2}},
	"tags":              list_(text_("a"), format.Value{}, text_("b")),
	"mixed":             list_(int_(1), text_("a")),
	"messages[].role":   list_(text_("user"), text_("bot")),
	"meta.lang":         text_("de"),
	"weird name":        text_("odd"),
	"text":              text_("the column"),
	"naïve.größe":       int_(3),
	"a.0":               int_(1),
	"True":              truth(true),
	"tokens":            int_(5),
	"messages[].n[].id": list_(int_(3)),
}

func TestEval(t *testing.T) {
	for expr, want := range map[string]bool{
		// literals and precedence
		"true": true, "false": false, "null": false, "not null": true,
		"false and false or true":        true,
		"false and (false or true)":      false,
		"not false and false":            false,
		"not (false and false)":          true,
		"!false && !no || false":         true,
		"not not yes":                    true,
		"1 + 2 * 3 == 7":                 true,
		"(1 + 2) * 3 == 9":               true,
		"10 - 3 - 2 == 5":                true,
		"-2 * 3 == -6":                   true,
		"- -n == 7":                      true,
		"n -1 == 6":                      true,
		"n-1==6":                         true,
		"7 / 2 == 3.5":                   true,
		"7 % 4 == 3 and -7 % 4 == -3":    true,
		"min % -1 == 0":                  true,
		"min == -9223372036854775808":    true,
		"max == 9223372036854775807":     true,
		".5 == 0.5 and 1e3 == 1000":      true,
		"2.5e-1 == score / 2":            true,
		"n + score == 7.5":               true,
		"-score < 0":                     true,
		"n - score == 6.5":               true,
		"n * score == 3.5":               true,
		"not n == 8":                     true,
		"max * 0 == 0 and 0 * max == 0":  true,
		"max + min == -1":                true,
		"9007199254740993 == big":        false,
		"9007199254740993 > big":         true,
		"big < 9007199254740993":         true,
		"9007199254740992 == big":        true,
		"max < 9223372036854775808.0":    true,
		"min >= -9223372036854775808.0":  true,
		"min == -9223372036854775808.0":  true,
		"min > -1e300 and max < 1e300":   true,
		"1 < 1.5 and -1 > -1.5 and 2>.5": true,
		"nan == nan":                     false,
		"nan != nan":                     true,
		"nan < 1 or nan >= 1 or 1 < nan": false,
		"1 == nan":                       false,
		// strings
		"lang == 'en'":                       true,
		`lang == "en"`:                       true,
		"lang != 'en'":                       false,
		"'a' < 'b' and 'B' < 'a'":            true,
		"lang >= 'en' and lang <= 'en'":      true,
		`"\u00c4'\\\n\t\r" == 'Ä\'\\\n\t\r'`: true,
		`len('\"\\\r') == 3`:                 true,
		`len('\u00e9\n') == 3`:               true,
		`len(r'\n') == 2`:                    true,
		"jpg > 'a'":                          true,
		"len(jpg) == 3":                      true,
		"'Büro' in title":                    true,
		"'' in empty":                        true,
		"'x' in title":                       false,
		"'x' not in title":                   true,
		"not 'x' in title":                   true,
		"len(title) == 15":                   true,
		"runes(title) == 13":                 true,
		"lower(title) == 'ärger im büro'":    true,
		"lower(jpg) == lower(jpg)":           true,
		"lower(lower('ÀB')) in 'xàbx'":       true,
		"lower('A') < lower('B')":            true,
		"startswith(title, 'Är')":            true,
		"endswith(title, 'ro')":              true,
		"endswith(title, 'Ro')":              false,
		"contains(title, 'IM')":              true,
		"contains(lower(title), 'im')":       true,
		`matches(title, r'^Ä\w*r')`:          true,
		`matches(title, '\\d')`:              false,
		`matches(text, '(?i)HELLO')`:         true,
		// lists
		"lang in ['en', 'de']":     true,
		"lang in ['fr']":           false,
		"lang not in ['fr', 'de']": true,
		"n in [1, 2.5, 7]":         true,
		"yes in [true]":            true,
		"lang in ['a','b','c','d','e','f','g','h','en']":        true,
		"lang in ['a','b','c','d','e','f','g','h','i', null]":   false,
		"absent in ['a','b','c','d','e','f','g','h','i', null]": true,
		"n in [1,2,3,4,5,6,8,9,10,11]":                          false,
		"n in [1,2,3,4,5,6,7,8,9,10,11]":                        true,
		"'b' in tags":                                           true,
		"'c' in tags":                                           false,
		"null in tags":                                          true,
		"len(tags) == 3":                                        true,
		"1 in mixed":                                            true,
		"'bot' in messages[].role":                              true,
		"3 in messages[].n[].id":                                true,
		"2 in ids and not 3 in ids":                             true,
		"len(ids) == 2":                                         true,
		// names
		"meta.lang == 'de'":           true,
		"`weird name` == 'odd'":       true,
		"text == 'Hello, world'":      true,
		"`text` == 'the column'":      true,
		"naïve.größe == 3":            true,
		"a.0 == 1":                    true,
		"`True`":                      true,
		"`tokens` == 5":               true,
		"tokens() == 4":               true,
		"len(tokens) == tokens()":     true,
		"50256 in tokens":             true,
		"1 in tokens":                 false,
		"not_a_keyword == null":       true,
		"nullable == null":            true,
		"len(text) / tokens() == 3.0": true,
		// null
		"absent == null": true,
		"lang == null":   false,
		"lang != null":   true,
		"absent != 'en'": true,
		"absent == 'en'": false,
		"absent < 1 or absent >= 1 or absent <= null": false,
		"not absent < 1":                              true,
		"absent + 1 == null":                          true,
		"-absent == null":                             true,
		"absent % 2 == null and 1 / absent == null":   true,
		"len(absent) == null and runes(absent)==null": true,
		"lower(absent) == null":                       true,
		"len(absent) > 3":                             false,
		"startswith(absent, 'x')":                     false,
		"contains(lang, absent)":                      false,
		"matches(absent, '')":                         false,
		"'x' in absent":                               false,
		"absent in lang":                              false,
		"absent in ['en']":                            false,
		"absent in ['en', null]":                      true,
		"absent or yes":                               true,
		"absent and yes":                              false,
		// short circuit
		"zero != 0 and n / zero > 1": false,
		"zero == 0 or n / zero > 1":  true,
	} {
		b, err := compile(expr, true)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		in := Input{Text: []byte("Hello, world"), Tokens: []int32{50256, 9, 8, 7}}
		got, err := b.eval(&in, sample)
		if err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", expr, got, err, want)
		}
	}
}

func TestEvalErrors(t *testing.T) {
	for expr, want := range map[string]string{
		"lang > 3":                    `column 6 ("> 3"): cannot compare string with int`,
		"3 == lang":                   "cannot compare int with string",
		"yes == 1":                    "cannot compare bool with int",
		"yes < no":                    "bools have no order",
		"tags == lang":                "cannot compare list with string",
		"jpg == 1":                    "cannot compare bytes with int",
		"ids == tags":                 "cannot compare tokens with list",
		"n / zero > 1":                `column 3 ("/ zero > 1"): division by zero`,
		"score / zero > 1":            "division by zero",
		"n / 0.0 > 1":                 "division by zero",
		"n % zero == 1":               "division by zero",
		"score % 2 == 1":              "% takes ints, and here are float and int",
		"max + 1 > 0":                 `column 5 ("+ 1 > 0"): 9223372036854775807 + 1 does not fit in 64 bits`,
		"min - 1 < 0":                 "-9223372036854775808 - 1 does not fit",
		"max - -1 > 0":                "does not fit",
		"min + -1 > 0":                "does not fit",
		"max * 2 > 0":                 "does not fit",
		"min * -1 > 0":                "does not fit",
		"-1 * min > 0":                "does not fit",
		"-min > 0":                    "-(-9223372036854775808) does not fit",
		"-lang > 0":                   "- takes a number, and this is string",
		"lang + 1 > 0":                "+ takes numbers, and here are string and int",
		"n and yes":                   `column 1 ("n and yes"): a condition is needed here, which is true or false, and this is int`,
		"not lang":                    "this is string",
		"lang":                        "this is string",
		"len(n) > 1":                  "len takes a string, a list or tokens, and this is int",
		"runes(n) > 1":                "runes takes a string, and this is int",
		"lower(tags) == 'a'":          "lower takes a string, and this is list",
		"startswith(lang, n)":         "startswith takes a string, and this is int",
		"matches(n, 'a')":             "matches takes a string, and this is int",
		"n in ['en', 'de']":           "cannot compare int with string",
		"lang in n":                   "cannot look into int",
		"n in lang":                   "cannot look for int in string",
		"2 in mixed":                  "cannot compare int with string",
		"'a' in ids":                  "cannot compare string with int",
		"ärger == 1 or n / zero == 1": `column 17`,
	} {
		b, err := compile(expr, true)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		_, err = b.eval(&Input{}, sample)
		if err == nil || !strings.Contains(err.Error(), want) || fault.ClassOf(err) != fault.User {
			t.Errorf("%s gives %v (class %v), want a user error with %q", expr, err, fault.ClassOf(err), want)
		}
		if again, ok := b.eval(&Input{}, sample); ok == nil || again || ok.Error() != err.Error() {
			t.Errorf("%s: a second evaluation gives %v", expr, ok)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for expr, want := range map[string]string{
		"":                          "empty",
		" \t":                       "empty",
		"len(text) >":               "column 12 (the end): expected a value",
		"len(text) > 20 and":        "(the end): expected a value",
		"len(text":                  "expected ) or , after an argument",
		"(lang == 'en'":             "expected ) to close the parenthesis",
		"lang == 'en')":             `column 13 (")"): expected the end`,
		"lang = 'en'":               "write == to compare",
		"a & b":                     "write and, or &&",
		"a | b":                     "write or, or ||",
		"a ? b":                     `character '?' has no meaning here`,
		"1 < n < 5":                 "comparisons do not chain",
		"a == b != c":               "comparisons do not chain",
		"a in b in c":               "comparisons do not chain",
		"a == b not in c":           "comparisons do not chain",
		"lenght(text) > 1":          "no function is called lenght: did you mean len(x)?",
		"length(text) > 1":          "did you mean len(x)?",
		"LEN(text) > 1":             "did you mean len(x)?",
		"lowercase(x) == 'a'":       "did you mean lower(x)?",
		"startsWith(x, 'a')":        "did you mean startswith(x, y)?",
		"match(x, 'a')":             "did you mean matches(x, 're')?",
		"sqrt(x) > 1":               "no function is called sqrt: Functions are len(x), runes(x)",
		"meta.len(x)":               "no function is called meta.len",
		"len(text, 1) > 1":          "2 arguments given: valid is len(x)",
		"contains(text)":            "1 arguments given: valid is contains(x, y)",
		"tokens(1) > 2":             "valid is tokens()",
		"len(text)":                 "a filter is true or false, and this is int",
		"'abc'":                     "a filter is true or false, and this is string",
		"len(text) == 'a'":          "cannot compare int with string",
		"text == 3":                 "cannot compare string with int",
		"text == tokens":            "cannot compare string with tokens",
		"tokens == tokens":          "tokens cannot be compared",
		"true < false":              "< takes string or bytes or int or float, and this is bool",
		"len(3) > 1":                "len takes string",
		"lower(3) == 'a'":           "lower takes string",
		"startswith(text, 3)":       "startswith takes string",
		"text + 1 > 2":              "+ takes int or float, and this is string",
		"1.5 % 2 == 1":              "% takes int, and this is float",
		"-text == 1":                "- takes int or float",
		"not 3":                     "not takes bool, and this is int",
		"len(text) and true":        "and takes bool",
		"1 in 2":                    "the right side of in takes",
		"1 in text":                 "the left side of in before a string takes string",
		"lang in []":                "expected a value",
		"n in [1, +7]":              "expected a value",
		"'it''s' == 'its'":          "expected the end",
		"7.0 in [n]":                "a list holds literals only",
		"lang in ['a', other]":      "a list holds literals only",
		"lang in ['a', 1]":          "the list mixes string or int",
		"lang in ['a' 'b']":         "expected ] or , after an item",
		"text in [1, 2]":            "cannot compare string with int",
		"['a'] == lang":             "a list stands only to the right of in",
		"matches(text, '(')":        "error parsing regexp",
		"matches(text, lang)":       "the regular expression is a string literal",
		"matches(3, 'a')":           "matches takes string",
		"'abc":                      "the string is not closed",
		"r'abc":                     "the string is not closed",
		`'\d' == x`:                 `column 2 ("\\d' == x"): unknown escape`,
		`'\u12'`:                    "unknown escape",
		`'\ud800'`:                  "unknown escape",
		`'\`:                        "unknown escape",
		"`abc == 1":                 "the column name is not closed",
		"`` == 1":                   "the column name is empty",
		"12abc == 1":                "not a number",
		"1. == 1":                   "not a number",
		"1e400 == 1":                "too large for a float",
		"99999999999999999999 == n": "does not fit in 64 bits",
		"9223372036854775808 == n":  "does not fit in 64 bits",
		"True and yes":              "write true in lower case",
		"a AND b":                   "expected the end",
		"AND":                       "write and in lower case",
		"x == None":                 "write null",
		"and x":                     "expected a value before and",
		"in(x)":                     "expected a value before in",
		"x == not y":                "expected a value before not",
		"\xff == 1":                 "not valid UTF-8",
		"1 == wrong":                `column 6 ("wrong"): no such path`,
		"a.":                        "character '.' has no meaning here",
		strings.Repeat("(", 101) + "x" + strings.Repeat(")", 101): "nested deeper than 100",
		strings.Repeat("not ", 101) + "x":                         "nested deeper than 100",
		strings.Repeat("- ", 101) + "x == 1":                      "nested deeper than 100",
		"x" + strings.Repeat(" + x", 101) + " == 1":               "nested deeper than 100",
		strings.Repeat("lower(", 101) + "x":                       "nested deeper than 100",
		strings.Repeat("x", MaxLength+1):                          "at most 16384 are allowed",
	} {
		_, err := compile(expr, true)
		if err == nil || !strings.Contains(err.Error(), want) || fault.ClassOf(err) != fault.User {
			t.Errorf("%.40s gives %v (class %v), want a user error with %q", expr, err, fault.ClassOf(err), want)
		}
	}
}

func TestTokensNeedTheirStep(t *testing.T) {
	for _, expr := range []string{"tokens() > 1", "len(tokens) > 1"} {
		if _, err := compile(expr, false); err == nil || !strings.Contains(err.Error(), "after the tokenize or tokens step") {
			t.Errorf("%s before any token: %v", expr, err)
		}
	}
	if _, err := compile("`tokens` == 1", false); err != nil {
		t.Errorf("the column tokens before any token: %v", err)
	}
}

func TestLongChainsDoNotNest(t *testing.T) {
	for _, joined := range []string{" and ", " or "} {
		expr := strings.TrimSuffix(strings.Repeat("x"+joined, 1000), joined)
		b, err := compile(expr, false)
		if err != nil {
			t.Fatal(err)
		}
		if keep, err := b.eval(&Input{}, record{"x": truth(true)}); !keep || err != nil {
			t.Errorf("1000 terms with%sgive %v, %v", joined, keep, err)
		}
	}
}

func TestUsesText(t *testing.T) {
	for expr, want := range map[string]bool{"len(text) > 1": true, "`text` == 'a'": false, "meta.text == 'a'": false} {
		b, err := compile(expr, false)
		if err != nil || b.UsesText() != want || b.String() != expr {
			t.Errorf("%s: UsesText is %v, %v", b, b.UsesText(), err)
		}
	}
}

// TestErrorsDoNotLinger evaluates a good record after a bad one with the same Input.
func TestErrorsDoNotLinger(t *testing.T) {
	b, err := compile("10 / n > 1", false)
	if err != nil {
		t.Fatal(err)
	}
	var in Input
	if _, err := b.eval(&in, record{"n": int_(0)}); err == nil {
		t.Fatal("division by zero gives no error")
	}
	if keep, err := b.eval(&in, record{"n": int_(2)}); !keep || err != nil {
		t.Errorf("after an error: %v, %v", keep, err)
	}
}

func TestEvalDoesNotAllocate(t *testing.T) {
	b, err := compile("len(text) > 3 and lower(lang) in ['a','b','c','d','e','f','g','h','en'] and n / 2 > score", false)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{Text: []byte("Hello")}
	if keep, err := b.eval(&in, sample); !keep || err != nil {
		t.Fatal(keep, err)
	}
	if n := testing.AllocsPerRun(100, func() { b.Eval(&in) }); n != 0 {
		t.Errorf("an evaluation makes %v allocations, want 0", n)
	}
}

func BenchmarkEval(b *testing.B) {
	for _, expr := range []string{
		"len(text) > 20",
		"len(text) > 20 and lang == 'en'",
		"lang in ['en', 'de', 'fr'] and score * 2 > 0.5",
		"len(text) / n < 100 and not startswith(text, 'http')",
	} {
		b.Run(expr, func(b *testing.B) {
			f, err := compile(expr, false)
			if err != nil {
				b.Fatal(err)
			}
			in := Input{Text: []byte(strings.Repeat("a", 100))}
			if _, err := f.eval(&in, sample); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				f.Eval(&in)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevals/s")
		})
	}
}
