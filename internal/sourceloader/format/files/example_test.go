package files_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/files"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// A sound with a text beside it is a record.
func Example() {
	st := &store.Memory{}
	st.Put("/d/0001.wav", []byte("RIFF"))
	st.Put("/d/0001.txt", []byte("a river"))
	ctx := context.Background()
	obj, _ := st.Stat(ctx, "/d/0001.wav")
	err := format.Read(ctx, files.Format{}, st, obj, 0, format.Options{Columns: []string{"wav", "txt", "json", "__key__"}}, func(rec *format.Record) error {
		for _, v := range rec.Values {
			fmt.Printf("%q %v\n", v.Bytes, v.Absent)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// "RIFF" false
	// "a river" false
	// "" true
	// "0001" false
	// <nil>
}
