package format

import (
	"fmt"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// TestIndexes: indexes are those of a version of a file of their source, and take no more memory than they may.
func TestIndexes(t *testing.T) {
	file := func(i int) store.Object { return store.Object{URI: fmt.Sprint("/", i), Size: 9, Version: "1"} }
	all := &indexes{limit: 10 * (100 + keptBytes)}
	x, other := &Indexes{all}, &Indexes{all}
	for i := range 100 {
		x.Put(file(i), i, 80)
		if x.Get(file(0)) != 0 {
			t.Fatalf("the index that was used last is gone after %d others", i)
		}
	}
	for i := range 100 {
		if got, kept := x.Get(file(i)), i == 0 || i > 90; kept != (got != nil) || kept && got != i {
			t.Errorf("index %d is %v", i, got)
		}
	}
	if all.bytes > all.limit || len(all.by) != 10 || all.used.Len() != 10 {
		t.Errorf("%d indexes take %d bytes, more than %d", len(all.by), all.bytes, all.limit)
	}
	changed, longer, unversioned := file(0), file(0), file(0)
	changed.Version, longer.Size, unversioned.Version = "2", 10, ""
	x.Put(unversioned, 1, 8)
	for _, obj := range []store.Object{changed, longer, unversioned} {
		if got := x.Get(obj); got != nil {
			t.Errorf("%+v has the index of another file: %v", obj, got)
		}
	}
	if got := other.Get(file(0)); got != nil {
		t.Errorf("another source has the index %v", got)
	}
	x.Put(file(0), 0, all.limit)
	x.Forget(file(99))
	if x.Get(file(0)) != nil || x.Get(file(99)) != nil {
		t.Error("an index without room, or one that was forgotten, is kept")
	}
	var none *Indexes
	none.Put(file(0), 1, 1)
	none.Forget(file(0))
	if none.Get(file(0)) != nil {
		t.Error("nil keeps an index")
	}
}
