package decoders_test

import (
	"context"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// stored puts files into a store and returns the object of one of them, or a
// bare name if there is none.
func stored(t testing.TB, files map[string][]byte, file string) (*store.Memory, store.Object) {
	t.Helper()
	st := &store.Memory{}
	for name, data := range files {
		st.Put(name, data)
	}
	obj, err := st.Stat(t.Context(), file)
	if err != nil {
		obj = store.Object{URI: file}
	}
	return st, obj
}

func class(err error) fault.Class { return fault.ClassOf(err) }

// count reads all of obj and returns how many good and bad records it has.
func count(ctx context.Context, f format.Format, st store.Store, obj store.Object, opt format.Options) (good, bad int, err error) {
	chunks, err := f.Chunks(ctx, st, obj, opt)
	for chunk := 0; chunk < chunks && err == nil; chunk++ {
		err = format.Read(ctx, f, st, obj, chunk, opt, func(r *format.Record) error {
			if r.Err != nil {
				bad++
			} else {
				good++
			}
			return nil
		})
	}
	return good, bad, err
}
