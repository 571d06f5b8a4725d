package format_test

import (
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Batches own their memory: they may be kept, or handed to another goroutine.
func ExampleBatchReader() {
	var st store.Memory
	obj, _ := st.Stat(context.Background(), st.Put("a.jsonl", []byte("{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n")))
	r, err := json.Lines{}.Open(context.Background(), &st, obj, 0, 0, format.Options{Columns: []string{"n"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	for batches := format.NewBatchReader(r); ; {
		batch, next, err := batches.ReadBatch(50)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(batch.Len(), "records in", batch.Bytes(), "bytes, then go on at", next)
	}
	// Output:
	// 2 records in 50 bytes, then go on at 9
	// 1 records in 25 bytes, then go on at 17
	// EOF
}
