package filter_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/transform/filter"
)

func Example() {
	var columns []string
	keep, err := filter.Compile("len(text) > 4 and lang in ['en', 'de']", filter.Scope{
		Column: func(path string) (int, error) {
			columns = append(columns, path)
			return len(columns) - 1, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	in := filter.Input{
		Text:   []byte("Grüezi"),
		Values: []format.Value{{Kind: format.String, Bytes: []byte("de")}},
	}
	yes, err := keep.Eval(&in)
	fmt.Println(columns, yes, err)

	in.Values[0] = format.Value{Kind: format.Int, Int: 49}
	_, err = keep.Eval(&in)
	fmt.Println(err)
	// Output:
	// [lang] true <nil>
	// filter, column 24 ("in ['en', 'de']"): cannot compare int with string
}
