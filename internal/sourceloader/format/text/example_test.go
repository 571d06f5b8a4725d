package text_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/text"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func ExampleFormat() {
	var st store.Memory
	obj, _ := st.Stat(context.Background(), st.Put("note.txt", []byte("the mill\n")))
	opt := format.Options{Columns: []string{"path", "text"}}
	err := format.Read(context.Background(), text.Format{}, &st, obj, 0, opt, func(r *format.Record) error {
		fmt.Printf("%s: %q\n", r.Values[0].Bytes, r.Values[1].Bytes)
		return nil
	})
	fmt.Println(err)
	// Output:
	// /note.txt: "the mill\n"
	// <nil>
}
