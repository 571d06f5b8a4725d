package members_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format/members"
)

// A column names an extension, or a field of a JSON file.
func Example() {
	columns, err := members.Columns([]string{"jpg", "json.caption", members.Key}, 100)
	for _, c := range columns {
		fmt.Printf("%q %v %v\n", c.Ext, c.JSON != nil, members.IsText(c.Ext))
	}
	fmt.Println(err)
	// Output:
	// "jpg" false false
	// "json" true true
	// "" false false
	// <nil>
}
