package arrow_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	arrowlib "github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/arrow"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func ExampleFormat() {
	schema := arrowlib.NewSchema([]arrowlib.Field{{Name: "text", Type: arrowlib.BinaryTypes.String}}, nil)
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"text":"mill"},{"text":"river"}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release()
	var file bytes.Buffer
	w := ipc.NewWriter(&file, ipc.WithSchema(schema))
	w.Write(batch)
	w.Close()
	var st store.Memory
	obj, _ := st.Stat(context.Background(), st.Put("a.arrow", file.Bytes()))
	err = format.Read(context.Background(), arrow.Format{}, &st, obj, 0, format.Options{Columns: []string{"text"}}, func(r *format.Record) error {
		fmt.Println(r.Row, string(r.Values[0].Bytes))
		return nil
	})
	fmt.Println(err)
	// Output:
	// 0 mill
	// 1 river
	// <nil>
}
