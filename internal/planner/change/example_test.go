package change_test

import (
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/planner/change"
)

func ExampleRead() {
	changes, err := change.Read(strings.NewReader(`
# the mix is set by hand, and a record that made the loss jump is taken out
{"step": 20, "ban": {"source": "web", "file": "a.jsonl", "row": 17}}
{"step": 10, "weights": {"web": 0.25, "code": 0.75}}
`), "changes.jsonl")
	fmt.Println(changes, err)
	_, err = change.Parse([]byte(`{"step": 3, "wieghts": {"web": 1}}`))
	fmt.Println(err)
	// Output:
	// [{"step":10,"weights":{"code":0.75,"web":0.25}} {"step":20,"ban":{"source":"web","file":"a.jsonl","row":17}}] <nil>
	// json: unknown field "wieghts", did you mean "weights"?; valid is such as {"step":100,"weights":{"web":0.7,"code":0.3}}
}
