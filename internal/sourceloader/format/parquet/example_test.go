package parquet_test

import (
	"bytes"
	"context"
	"fmt"

	pqgo "github.com/parquet-go/parquet-go"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/parquet"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func ExampleFormat() {
	type row struct {
		Text   string  `parquet:"text"`
		Tokens []int32 `parquet:"tokens,list"`
	}
	var b bytes.Buffer
	w := pqgo.NewGenericWriter[row](&b)
	if _, err := w.Write([]row{{"a mill", []int32{64, 2575}}, {"a race", []int32{64, 7102}}}); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}

	ctx, st := context.Background(), &store.Memory{}
	obj, err := st.Stat(ctx, st.Put("data.parquet", b.Bytes()))
	if err != nil {
		panic(err)
	}
	opt := format.Options{Columns: []string{"tokens", "text"}}
	err = format.Read(ctx, parquet.Format{}, st, obj, 0, opt, func(r *format.Record) error {
		fmt.Println(r.Row, r.Values[0].Tokens, string(r.Values[1].Bytes))
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output:
	// 0 [64 2575] a mill
	// 1 [64 7102] a race
}
