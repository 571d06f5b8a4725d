package columnar_test

import (
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/columnar"
)

func ExampleObjects() {
	o := columnar.NewObjects(10, 1000)
	o.Reset()
	if err := o.Take(1); err != nil { // an element of a list
		panic(err)
	}
	o.Text = append(columnar.AppendQuoted(append(o.Text, '{'), "role"), ':')
	if err := o.Value(&format.Value{Kind: format.String, Bytes: []byte("user")}, false); err != nil {
		panic(err)
	}
	o.Text = append(o.Text, '}')
	row := format.Value{Kind: format.List, List: []format.Value{o.End()}}
	o.Place(&row)
	fmt.Printf("%s\n", row.List[0].Bytes)
	fmt.Println(columnar.DecimalText(columnar.BigEndian([]byte{0xfb, 0x1e}), 2))
	// Output:
	// {"role":"user"}
	// -12.50
}
