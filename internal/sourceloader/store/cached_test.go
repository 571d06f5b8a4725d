package store_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/store/storetest"
)

// TestCached: every wrapped store is as it was, and blocks are read once.
func TestCached(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Fixture {
		m := new(store.Memory)
		c := store.NewCached(m, store.CacheOptions{Dir: t.TempDir(), Block: 32, Bytes: 256})
		t.Cleanup(func() { c.Close() })
		return storetest.Fixture{Store: c, Put: m.Put}
	})
	m := new(store.Memory)
	data := bytes.Repeat([]byte("0123456789"), 100)
	uri := m.Put("f", data)
	below := store.NewMetered(m)
	c := store.NewCached(below, store.CacheOptions{Dir: t.TempDir(), Block: 100, Bytes: 500})
	obj, err := c.Stat(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	h, err := c.Open(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	read := func(off, n int) {
		t.Helper()
		p := make([]byte, n)
		if _, err := h.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+n]) {
			t.Fatalf("%d bytes at %d: %q, %v", n, off, p, err)
		}
	}
	for range 3 {
		read(95, 110) // three blocks
	}
	if got := c.Meter(); got != (store.CacheMeter{Hits: 6, Misses: 3, Bytes: 300, Disk: 300}) {
		t.Errorf("%+v", got)
	}
	for off := range 9 {
		read(off*100, 100)
	}
	if got := c.Meter(); got.Disk != 500 || below.Meter().Bytes != got.Bytes {
		t.Errorf("%+v, %+v", got, below.Meter())
	}
	read(0, 100) // it gave way, and comes again
	if err := errors.Join(h.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}
