package expr_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/expr"
)

// A tree by its operators, and what an error shows.
func ExampleLanguage_Parse() {
	lang := &expr.Language{Name: "cost", Values: "a number or a name"}
	tree, err := lang.Parse("1 + size * 2")
	fmt.Println(tree.Text, tree.Args[0].Text, tree.Args[1].Text, tree.Args[1].Pos, err)
	_, err = lang.Parse("1 + * 2")
	fmt.Println(err)
	// Output:
	// + 1 * 9 <nil>
	// cost, column 5 ("* 2"): expected a value: a number or a name
}
