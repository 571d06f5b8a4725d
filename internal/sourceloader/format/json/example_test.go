package json_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// A reader that is opened behind a record goes on with the next one.
func ExampleLines() {
	var st store.Memory
	obj, _ := st.Stat(context.Background(), st.Put("a.jsonl", []byte(`{"text":"mill"}
{"text":"river"}
{"text":"stone"}
`)))
	var at format.Position
	for {
		r, err := json.Lines{}.Open(context.Background(), &st, obj, 0, at, format.Options{Columns: []string{"text"}})
		if err != nil {
			fmt.Println(err)
			return
		}
		rec, err := r.Next()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d: %s\n", at, rec.Values[0].Bytes)
		at = rec.After()
		r.Close()
	}
	// Output:
	// 0: mill
	// 1: river
	// 17: stone
	// EOF
}
