package megatron_test

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/megatron"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Two documents of two and one tokens of 16 bits.
func ExampleFormat() {
	u64, u32 := binary.LittleEndian.AppendUint64, binary.LittleEndian.AppendUint32
	idx := append(u64([]byte("MMIDIDX\x00\x00"), 1), 8) // version, uint16
	idx = u64(u64(idx, 2), 3)                           // sequences, ends of documents
	idx = u32(u32(idx, 2), 1)                           // tokens of each
	idx = u64(u64(idx, 0), 4)                           // their places in the .bin
	idx = u64(u64(u64(idx, 0), 1), 2)                   // the first sequence of each document
	var st store.Memory
	st.Put("a.bin", []byte{7, 0, 8, 0, 9, 0})
	obj, _ := st.Stat(context.Background(), st.Put("a.idx", idx))
	err := format.Read(context.Background(), megatron.Format{}, &st, obj, 0, format.Options{Columns: []string{"tokens"}}, func(r *format.Record) error {
		fmt.Println(r.Row, r.Values[0].Tokens)
		return nil
	})
	fmt.Println(err)
	// Output:
	// 0 [7 8]
	// 1 [9]
	// <nil>
}
