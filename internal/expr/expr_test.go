package expr

import (
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
)

var columns = &Language{
	Name: "test", Columns: true, Reserved: []string{"true", "null"}, Operand: "x", Values: "a value", Number: "nothing",
	TooDeep: "write less", Hints: map[string]string{"^": "x * x"},
}

// print writes a tree with all its parentheses; names of kinds that look alike differ.
func print(n *Node) string {
	var args []string
	for _, arg := range n.Args {
		args = append(args, print(arg))
	}
	switch n.Kind {
	case Operator:
		return "(" + strings.Join(append([]string{n.Text}, args...), " ") + ")"
	case Call:
		return n.Text + "(" + strings.Join(args, ", ") + ")"
	case List:
		return "[" + strings.Join(args, ", ") + "]"
	case String:
		return fmt.Sprintf("%q", n.Text)
	case Column:
		return "`" + n.Text + "`"
	}
	return n.Text
}

func TestTrees(t *testing.T) {
	for src, want := range map[string]string{
		"a or b and not c == 1":           "(or a (and b (not (== c 1))))",
		"a || b && !c":                    "(or a (and b (not c)))",
		"1 - 2 - 3 * -4 % .5e-2":          "(- (- 1 2) (% (* 3 (- 4)) .5e-2))",
		"(1 - (2 - 3)) * 4":               "(* (- 1 (- 2 3)) 4)",
		"f(x, g(), 1 < 2,)":               "f(x, g(), (< 1 2))",
		"m.n[].o in ['a', r'\\d', -1]":    `(in m.n[].o ["a", "\\d", (- 1)])`,
		"x not in y and `x y` in null":    "(and (not in x y) (in `x y` null))",
		`"a\n\u00e9'" == 'it\'s'`:         `(== "a\né'" "it's")`,
		"not not a":                       "(not (not a))",
		"null[]":                          "", // a literal is no path
		"größe_2.maß":                     "größe_2.maß",
		strings.Repeat("1 + ", 500) + "1": strings.Repeat("(+ ", 500) + "1" + strings.Repeat(" 1)", 500),
	} {
		n, err := columns.Parse(src)
		got := ""
		if err == nil {
			got = print(n)
		}
		if got != want {
			t.Errorf("%s: %v\ngot  %s\nwant %s", src, err, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	plain := &Language{Name: "test"}
	for _, row := range []struct {
		lang *Language
		src  string
		want string
	}{
		{columns, "1 < x < 2", `test, column 7 ("< 2"): comparisons do not chain: write 1 < x and x < 5, or use parentheses`},
		{columns, "x in y not in z", `test, column 8 ("not in z"): comparisons do not chain`},
		{columns, "a ^ b", `test, column 3 ("^ b"): ^ is not an operator: write x * x`},
		{columns, "a = b", `test, column 3 ("= b"): = is not an operator: write == to compare`},
		{columns, "é and and", `test, column 7 ("and"): expected a value before and`},
		{columns, "a b", `test, column 3 ("b"): expected the end`},
		{columns, "f(a b)", `test, column 5 ("b)"): expected ) or , after an argument of f`},
		{columns, "x in [1 2]", `test, column 9 ("2]"): expected ] or , after an item of the list`},
		{columns, "[1]", `test, column 1 ("[1]"): a list stands only to the right of in`},
		{columns, "(a", `test, column 3 (the end): expected ) to close the parenthesis`},
		{columns, "1.2.3", `test, column 1 ("1.2.3"): not a number: valid are 12, 1.5, 2e-3; nothing`},
		{columns, "'a", `test, column 1 ("'a"): the string is not closed: add a '`},
		{columns, "``", `test, column 1 ("` + "``" + `"): the column name is empty`},
		{columns, strings.Repeat("(", 101) + "1", `test, column 101 ("(1"): nested deeper than 100: write less`},
		{plain, "'a'", `test, column 1 ("'a'"): character '\'' has no meaning here: valid are names, numbers, and ||`},
		{plain, "x in y", `test, column 3 ("in y"): expected the end`},
		{plain, "a.b", `test, column 2 (".b"): character '.' has no meaning here`},
	} {
		_, err := row.lang.Parse(row.src)
		if err == nil || !strings.HasPrefix(err.Error(), row.want) || fault.ClassOf(err) != fault.User {
			t.Errorf("%s\ngot  %v\nwant %s", row.src, err, row.want)
		}
	}
}

// FuzzParse: nothing panics, and every place is within the text.
func FuzzParse(f *testing.F) {
	for _, src := range []string{"a or b and not c == 1", "f(x, 1.5e-3) in ['a', r\"b\"]", "-(-x) % `y`", "\"\\u00e9"} {
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src string) {
		n, err := columns.Parse(src)
		if err != nil {
			return
		}
		var check func(n *Node)
		check = func(n *Node) {
			if n.Pos < 0 || n.Pos >= len(src) {
				t.Fatalf("%q: %+v is outside", src, n)
			}
			for _, arg := range n.Args {
				check(arg)
			}
		}
		check(n)
	})
}
