// Package storetest is the conformance suite of sourceloader/store: every
// Store, and every Store wrapped in a decorator, runs it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Fixture is a fresh, empty store and a way to write it.
type Fixture struct {
	Store store.Store
	// Put writes the file with the slash-separated relative name, over an
	// existing one, and returns its URI, which ends in name. Two
	// writes of one name give two versions.
	Put func(name string, data []byte) (uri string)
}

// Run checks the store that fresh makes, once per subtest.
func Run(t *testing.T, fresh func(t *testing.T) Fixture) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(*testing.T, Fixture)
	}{
		{"list", checkList},
		{"list nothing", checkListNothing},
		{"hidden", checkHidden},
		{"odd names", checkOddNames},
		{"read", checkRead},
		{"version", checkVersion},
		{"shrinks", checkShrinks},
		{"context", checkContext},
		{"close", checkClose},
		{"concurrent", checkConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, fresh(t)) })
	}
}

// root returns the part before name of the URI that Put returned.
func root(t *testing.T, uri, name string) string {
	t.Helper()
	dir, ok := strings.CutSuffix(uri, "/"+name)
	if !ok {
		t.Fatalf("Put returned %q for %q", uri, name)
	}
	return dir
}

func mustList(t *testing.T, st store.Store, uri string) []store.Object {
	t.Helper()
	objects, err := st.List(t.Context(), uri)
	if err != nil {
		t.Fatalf("List(%q): %v", uri, err)
	}
	return objects
}

func checkList(t *testing.T, f Fixture) {
	var dir string
	for _, name := range []string{"d/b.txt", "d/a.txt", "d/sub/c.txt", "d/sub/deep/e.json", "other/a.txt", "dd/x.txt"} {
		dir = root(t, f.Put(name, []byte(name)), name)
	}
	for _, c := range []struct{ uri, want string }{
		{"d/a.txt", "d/a.txt"},
		{"d", "d/a.txt d/b.txt d/sub/c.txt d/sub/deep/e.json"},
		{"d/", "d/a.txt d/b.txt d/sub/c.txt d/sub/deep/e.json"},
		{"d/*.txt", "d/a.txt d/b.txt"},
		{"d/?.txt", "d/a.txt d/b.txt"},
		{"d/[b-z].txt", "d/b.txt"},
		{"d/[!b-z].txt", "d/a.txt"},
		{"d/**", "d/a.txt d/b.txt d/sub/c.txt d/sub/deep/e.json"},
		{"**/a.txt", "d/a.txt other/a.txt"},
		{"d/**/*.{json,txt}", "d/a.txt d/b.txt d/sub/c.txt d/sub/deep/e.json"},
		{"{other,d}/{a,a}.txt", "d/a.txt other/a.txt"},
	} {
		objects := mustList(t, f.Store, dir+"/"+c.uri)
		var got []string
		for _, obj := range objects {
			name := strings.TrimPrefix(obj.URI, dir+"/")
			got = append(got, name)
			if obj.Size != int64(len(name)) {
				t.Errorf("List(%q): %s has size %d, want %d", c.uri, name, obj.Size, len(name))
			}
			if stat, err := f.Store.Stat(t.Context(), obj.URI); err != nil || stat != obj {
				t.Errorf("Stat(%s) = %+v, %v; listed as %+v", name, stat, err, obj)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("List(%q) = %q, want %q", c.uri, got, c.want)
		}
	}
}

func checkListNothing(t *testing.T, f Fixture) {
	dir := root(t, f.Put("a.txt", nil), "a.txt")
	for _, uri := range []string{"b.txt", "sub/", "*.json", "a", "a.txt.gz", "x/**"} {
		objects, err := f.Store.List(t.Context(), dir+"/"+uri)
		if !errors.Is(err, store.ErrNotExist) || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), uri) {
			t.Errorf("List(%q) = %v, %v; want a user error that wraps ErrNotExist and names it", uri, objects, err)
		}
	}
	if _, err := f.Store.List(t.Context(), dir+"/[a"); err == nil || fault.ClassOf(err) != fault.User {
		t.Errorf("List of a malformed pattern: %v", err)
	}
	if _, err := f.Store.List(t.Context(), dir+"/"+strings.Repeat("{a,b}", 28)); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), "stand for more than") {
		t.Errorf("List of a pattern of 2^28: %v", err)
	}
	if _, err := f.Store.Stat(t.Context(), dir+"/nope"); !errors.Is(err, store.ErrNotExist) || fault.ClassOf(err) != fault.User {
		t.Errorf("Stat of nothing: %v", err)
	}
	if _, err := f.Store.Open(t.Context(), store.Object{URI: dir + "/nope"}); !errors.Is(err, store.ErrNotExist) || fault.ClassOf(err) != fault.User {
		t.Errorf("Open of nothing: %v", err)
	}
}

func checkHidden(t *testing.T, f Fixture) {
	var dir string
	for _, name := range []string{"d/_SUCCESS", "d/.crc", "d/_temp/x.txt", "d/a.txt"} {
		dir = root(t, f.Put(name, nil), name)
	}
	for uri, want := range map[string]int{"d": 1, "d/*": 1, "d/**": 1, "d/_SUCCESS": 1, "d/_temp": 1, "d/_*": 1, "d/_*/*.txt": 1} {
		if objects := mustList(t, f.Store, dir+"/"+uri); len(objects) != want {
			t.Errorf("List(%q) = %v, want %d", uri, objects, want)
		}
	}
}

func checkOddNames(t *testing.T, f Fixture) {
	for _, name := range []string{"a b.txt", "c[1].txt", "d*.txt", "100%.txt", "日本語.txt", "e{1,2}.txt", "+=&#.txt"} {
		uri := f.Put(name, []byte("x"))
		objects := mustList(t, f.Store, uri)
		if len(objects) != 1 || path.Base(objects[0].URI) != name {
			t.Errorf("List(%q) = %v", uri, objects)
		}
	}
}

func open(t *testing.T, st store.Store, uri string) (store.Handle, store.Object) {
	t.Helper()
	obj := mustList(t, st, uri)[0]
	h, err := st.Open(t.Context(), obj)
	if err != nil {
		t.Fatalf("Open(%s): %v", uri, err)
	}
	t.Cleanup(func() { h.Close() })
	return h, obj
}

func checkRead(t *testing.T, f Fixture) {
	data := []byte("0123456789")
	h, _ := open(t, f.Store, f.Put("f", data))
	for _, c := range []struct {
		off, n, want int
		eof          bool
	}{{0, 10, 10, false}, {0, 11, 10, true}, {3, 4, 4, false}, {9, 1, 1, false}, {9, 2, 1, true}, {10, 1, 0, true}, {99, 5, 0, true}, {4, 0, 0, false}} {
		p := make([]byte, c.n)
		n, err := h.ReadAt(p, int64(c.off))
		if n != c.want || (err == io.EOF) != c.eof || err != nil && err != io.EOF {
			t.Errorf("ReadAt(%d bytes, %d) = %d, %v; want %d, EOF %v", c.n, c.off, n, err, c.want, c.eof)
		} else if n > 0 && !bytes.Equal(p[:n], data[c.off:c.off+n]) {
			t.Errorf("ReadAt(%d bytes, %d) read %q", c.n, c.off, p[:n])
		}
	}
	if _, err := h.ReadAt(make([]byte, 1), -1); err == nil || err == io.EOF {
		t.Errorf("ReadAt(-1): %v", err)
	}
	empty, _ := open(t, f.Store, f.Put("empty", nil))
	if n, err := empty.ReadAt(make([]byte, 1), 0); n != 0 || err != io.EOF {
		t.Errorf("reading an empty file: %d, %v", n, err)
	}
}

func checkVersion(t *testing.T, f Fixture) {
	uri := f.Put("f", []byte("old"))
	old := mustList(t, f.Store, uri)[0]
	if again := mustList(t, f.Store, uri)[0]; again != old {
		t.Errorf("listed twice: %+v, %+v", old, again)
	}
	f.Put("f", []byte("new"))
	if now := mustList(t, f.Store, uri)[0]; now.Version == old.Version {
		t.Errorf("written twice, version still %q", now.Version)
	}
	_, err := f.Store.Open(t.Context(), old)
	if !errors.Is(err, store.ErrChanged) || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), uri) {
		t.Errorf("Open of an old version: %v", err)
	}
	old.Version = ""
	h, err := f.Store.Open(t.Context(), old)
	if err != nil {
		t.Fatalf("Open without a version: %v", err)
	}
	defer h.Close()
	p := make([]byte, 3)
	if _, err := h.ReadAt(p, 0); err != nil || string(p) != "new" {
		t.Errorf("read %q, %v", p, err)
	}
}

// checkShrinks: a file that shrinks under an open handle gives its old
// bytes or an error, never a silent end of file.
func checkShrinks(t *testing.T, f Fixture) {
	uri := f.Put("f", []byte("0123456789"))
	h, _ := open(t, f.Store, uri)
	f.Put("f", []byte("0123"))
	p := make([]byte, 8)
	n, err := h.ReadAt(p, 0)
	switch {
	case err == nil && string(p) == "01234567":
	case errors.Is(err, store.ErrChanged) && fault.ClassOf(err) == fault.User && n < 8:
	default:
		t.Errorf("reading a shrunk file: %d bytes %q, %v", n, p, err)
	}
}

func checkContext(t *testing.T, f Fixture) {
	uri := f.Put("f", []byte("0123"))
	obj := mustList(t, f.Store, uri)[0]
	ctx, cancel := context.WithCancel(t.Context())
	h, err := f.Store.Open(ctx, obj)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	cancel()
	if _, err := h.ReadAt(make([]byte, 2), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("read after cancel: %v", err)
	}
	if _, err := f.Store.Open(ctx, obj); !errors.Is(err, context.Canceled) {
		t.Errorf("Open after cancel: %v", err)
	}
	if _, err := f.Store.List(ctx, uri); !errors.Is(err, context.Canceled) {
		t.Errorf("List after cancel: %v", err)
	}
	if _, err := f.Store.Stat(ctx, uri); !errors.Is(err, context.Canceled) {
		t.Errorf("Stat after cancel: %v", err)
	}
}

func checkClose(t *testing.T, f Fixture) {
	h, _ := open(t, f.Store, f.Put("f", []byte("0123")))
	if err := h.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if _, err := h.ReadAt(make([]byte, 1), 0); err == nil || err == io.EOF {
		t.Errorf("read after Close: %v", err)
	}
}

func checkConcurrent(t *testing.T, f Fixture) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1000)
	h, obj := open(t, f.Store, f.Put("f", data))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			p := make([]byte, 100)
			for off := i; off < len(data)-100; off += 97 {
				if _, err := h.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, data[off:off+100]) {
					t.Errorf("ReadAt(%d): %v", off, err)
					return
				}
			}
			if again, err := f.Store.Stat(t.Context(), obj.URI); err != nil || again != obj {
				t.Errorf("Stat: %+v, %v", again, err)
			}
		})
	}
	wg.Wait()
}
