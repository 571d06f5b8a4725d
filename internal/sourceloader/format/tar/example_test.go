package tar_test

import (
	stdtar "archive/tar"
	"bytes"
	"context"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/tar"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func ExampleFormat() {
	var shard bytes.Buffer
	w := stdtar.NewWriter(&shard)
	for name, text := range map[string]string{"0001.txt": "a river"} {
		w.WriteHeader(&stdtar.Header{Name: name, Size: int64(len(text)), Mode: 0o644})
		w.Write([]byte(text))
	}
	w.Close()
	var st store.Memory
	obj, _ := st.Stat(context.Background(), st.Put("a.tar", shard.Bytes()))
	err := format.Read(context.Background(), tar.Format{}, &st, obj, 0, format.Options{Columns: []string{"__key__", "txt"}}, func(r *format.Record) error {
		fmt.Printf("sample %d: %s %s\n", r.Row, r.Values[0].Bytes, r.Values[1].Bytes)
		return nil
	})
	fmt.Println(err)
	// Output:
	// sample 0: 0001 a river
	// <nil>
}
