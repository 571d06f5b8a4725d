// Package objecttest is the conformance suite of object.Store, and starts the S3 server
// that tests run it against.
package objecttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/object"
)

// Run checks the store that fresh makes, empty, once per subtest.
func Run(t *testing.T, fresh func(t *testing.T) object.Store) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(*testing.T, object.Store)
	}{
		{"ranges", checkRanges},
		{"overwrite", checkOverwrite},
		{"absent", checkAbsent},
		{"create once", checkCreate},
		{"create race", checkRace},
		{"list", checkList},
		{"keys", checkKeys},
		{"cancelled", checkCancelled},
		{"prove", checkProve},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, fresh(t)) })
	}
}

func put(t *testing.T, s object.Store, key string, data []byte) {
	t.Helper()
	if err := s.Put(t.Context(), key, data); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s object.Store, key string, r object.Range, data []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), key, r)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%v of %s: %.30q (%d bytes), %v, want %.30q (%d bytes)", r, key, got, len(got), err, data, len(data))
	}
}

func checkRanges(t *testing.T, s object.Store) {
	large := bytes.Repeat([]byte("0123456789abcdef"), 70_000)
	put(t, s, "a/large", large)
	put(t, s, "empty", nil)
	info, err := s.Stat(t.Context(), "a/large")
	if err != nil || info.Key != "a/large" || info.Size != int64(len(large)) || info.Version == "" {
		t.Fatalf("%+v, %v", info, err)
	}
	size := info.Size
	for _, version := range []string{"", info.Version} {
		for _, r := range []struct{ off, n, from, to int64 }{
			{0, -1, 0, size}, {0, 0, 0, 0}, {0, 1, 0, 1}, {5, 10, 5, 15}, {size - 3, 10, size - 3, size}, {size - 3, 3, size - 3, size},
			{size, 5, size, size}, {size + 7, 5, size, size}, {17, -1, 17, size}, {1 << 19, 1 << 17, 1 << 19, 1<<19 + 1<<17},
		} {
			want(t, s, "a/large", object.Range{Off: r.off, N: r.n, Version: version}, large[r.from:r.to])
		}
	}
	want(t, s, "empty", object.Whole, nil)
}

func checkOverwrite(t *testing.T, s object.Store) {
	put(t, s, "k", []byte("one"))
	before, err := s.Stat(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "k", []byte("another"))
	want(t, s, "k", object.Whole, []byte("another"))
	after, err := s.Stat(t.Context(), "k")
	if err != nil || after.Version == before.Version || after.Size != 7 {
		t.Errorf("%+v after %+v, %v", after, before, err)
	}
	for _, n := range []int64{-1, 0, 2} {
		if _, err := s.Get(t.Context(), "k", object.Range{N: n, Version: before.Version}); !errors.Is(err, object.ErrChanged) || fault.ClassOf(err) != fault.User {
			t.Errorf("a range of %d of the version before: %v, want ErrChanged", n, err)
		}
	}
}

func checkAbsent(t *testing.T, s object.Store) {
	put(t, s, "a/b", []byte("x"))
	for _, key := range []string{"none", "a", "a/none", "b/none"} {
		_, err := s.Get(t.Context(), key, object.Whole)
		_, err2 := s.Stat(t.Context(), key)
		_, err3 := s.Get(t.Context(), key, object.Range{})
		for _, err := range []error{err, err2, err3} {
			if !errors.Is(err, object.ErrNotExist) || fault.ClassOf(err) != fault.User {
				t.Errorf("%s: class %v, %v, want ErrNotExist", key, fault.ClassOf(err), err)
			}
		}
	}
	for range 2 {
		if err := s.Delete(t.Context(), "a/b"); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Stat(t.Context(), "a/b"); !errors.Is(err, object.ErrNotExist) {
		t.Errorf("after Delete: %v", err)
	}
}

func checkCreate(t *testing.T, s object.Store) {
	if err := s.PutIfAbsent(t.Context(), "slot/1", []byte("mine")); err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(t.Context(), "slot/1", []byte("yours")); !errors.Is(err, object.ErrExists) {
		t.Errorf("a second create: %v, want ErrExists", err)
	}
	same := object.ErrExists
	if _, repeats := s.(object.Retry); repeats {
		same = nil // the first answer may have been lost on the way
	}
	if err := s.PutIfAbsent(t.Context(), "slot/1", []byte("mine")); !errors.Is(err, same) {
		t.Errorf("a second create of the same bytes: %v, want %v", err, same)
	}
	want(t, s, "slot/1", object.Whole, []byte("mine"))
	if err := s.Delete(t.Context(), "slot/1"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(t.Context(), "slot/1", []byte("again")); err != nil {
		t.Error(err)
	}
	want(t, s, "slot/1", object.Whole, []byte("again"))
}

// checkRace: of several that create an object at once, one wins and its bytes stay.
func checkRace(t *testing.T, s object.Store) {
	for slot := range 8 {
		key := fmt.Sprintf("slot/%d", slot)
		var won atomic.Int32
		var winner atomic.Value
		var all sync.WaitGroup
		for who := range 6 {
			all.Go(func() {
				data := bytes.Repeat(fmt.Appendf(nil, "%d", who), 10_000)
				switch err := s.PutIfAbsent(t.Context(), key, data); {
				case err == nil:
					won.Add(1)
					winner.Store(data)
				case !errors.Is(err, object.ErrExists) && fault.ClassOf(err) != fault.Lost:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("%d of 6 creates won", won.Load())
		}
		want(t, s, key, object.Whole, winner.Load().([]byte))
	}
}

func checkList(t *testing.T, s object.Store) {
	keys := []string{"a-b", "a/1", "a/2", "a/b/3", "ab", "z"}
	for i, key := range slices.Backward(keys) {
		put(t, s, key, make([]byte, i))
	}
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{
		{"", "", keys}, {"a", "", keys[:5]}, {"a/", "", keys[1:4]}, {"a/", "a/1", keys[2:4]}, {"a/", "a/10", keys[2:4]},
		{"a/b/", "", keys[3:4]}, {"", "ab", keys[5:]}, {"a/b", "z", nil}, {"none/", "", nil}, {"", "a-b", keys[1:]},
	} {
		got, err := s.List(t.Context(), c.prefix, c.after)
		var names []string
		for _, o := range got {
			names = append(names, o.Key)
			if info, err := s.Stat(t.Context(), o.Key); err != nil || info != o {
				t.Errorf("%+v is listed, %+v is there (%v)", o, info, err)
			}
		}
		if err != nil || !slices.Equal(names, c.want) {
			t.Errorf("List(%q, %q) = %q, %v, want %q", c.prefix, c.after, names, err, c.want)
		}
	}
}

func checkKeys(t *testing.T, s object.Store) {
	good := "0/with space+plus%25&=ü.x~y"
	put(t, s, good, []byte("x"))
	want(t, s, good, object.Whole, []byte("x"))
	if all, err := s.List(t.Context(), "0/", ""); err != nil || len(all) != 1 || all[0].Key != good {
		t.Errorf("%v, %v", all, err)
	}
	for _, key := range []string{"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\nb", ".tmp-x"} {
		_, err := s.Get(t.Context(), key, object.Whole)
		for _, err := range []error{err, s.Put(t.Context(), key, nil), s.PutIfAbsent(t.Context(), key, nil), s.Delete(t.Context(), key)} {
			if fault.ClassOf(err) != fault.User || errors.Is(err, object.ErrNotExist) {
				t.Errorf("the key %q: class %v, %v", key, fault.ClassOf(err), err)
			}
		}
	}
}

func checkCancelled(t *testing.T, s object.Store) {
	put(t, s, "k", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, "k", object.Whole)
	_, err2 := s.Stat(ctx, "k")
	_, err3 := s.List(ctx, "", "")
	for _, err := range []error{err, err2, err3, s.Put(ctx, "k", []byte("y")), s.PutIfAbsent(ctx, "l", nil), s.Delete(ctx, "k")} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want context.Canceled", err)
		}
	}
	want(t, s, "k", object.Whole, []byte("x"))
}

func checkProve(t *testing.T, s object.Store) {
	if err := object.Prove(t.Context(), s, "probe/"); err != nil {
		t.Error(err)
	}
	if all, err := s.List(t.Context(), "", ""); err != nil || len(all) > 0 {
		t.Errorf("the probe left %v, %v", all, err)
	}
}
