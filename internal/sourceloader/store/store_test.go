package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/internal/sourceloader/store/storetest"
)

// localFixture writes real files. Two writes within the clock's grain must
// still be two versions, so each write sets its own time.
func localFixture(t *testing.T) storetest.Fixture {
	dir, writes := t.TempDir(), int64(0)
	return storetest.Fixture{Store: store.Local{}, Put: func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		writes++
		if err := os.Chtimes(path, time.Time{}, time.Unix(1700000000, writes)); err != nil {
			t.Fatal(err)
		}
		return path
	}}
}

func memoryFixture(*testing.T) storetest.Fixture {
	st := &store.Memory{}
	return storetest.Fixture{Store: st, Put: st.Put}
}

func TestConformance(t *testing.T) {
	metered := func(t *testing.T) storetest.Fixture {
		f := memoryFixture(t)
		f.Store = store.NewMetered(f.Store)
		return f
	}
	t.Run("local", func(t *testing.T) { storetest.Run(t, localFixture) })
	t.Run("memory", func(t *testing.T) { storetest.Run(t, memoryFixture) })
	t.Run("metered", func(t *testing.T) { storetest.Run(t, metered) })
}

func TestLocalNames(t *testing.T) {
	f := localFixture(t)
	uri := f.Put("sub/a b.txt", []byte("x"))
	t.Chdir(filepath.Dir(filepath.Dir(uri)))
	for _, name := range []string{
		"sub/a b.txt", "./sub/../sub/a b.txt", "sub", ".", "sub/*", "**/*.txt", uri,
		"file://" + strings.ReplaceAll(uri, " ", "%20"), "file://localhost" + strings.ReplaceAll(uri, " ", "%20"),
	} {
		objects, err := f.Store.List(t.Context(), name)
		if err != nil || len(objects) != 1 || objects[0].URI != uri {
			t.Errorf("List(%q) = %v, %v; want %s", name, objects, err, uri)
		}
	}
	for _, name := range []string{"", "s3://bucket/key", "file://relative", "file:///%zz"} {
		if objects, err := f.Store.List(t.Context(), name); err == nil || fault.ClassOf(err) != fault.User {
			t.Errorf("List(%q) = %v, %v; want a user error", name, objects, err)
		}
	}
	if _, err := f.Store.Stat(t.Context(), filepath.Dir(uri)); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Errorf("Stat of a directory: %v", err)
	}
}

func TestLocalLinks(t *testing.T) {
	f := localFixture(t)
	file := f.Put("real/a.txt", []byte("x"))
	dir := filepath.Dir(filepath.Dir(file))
	link := func(target, name string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(target, path)); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	link(file, "links/b.txt")
	link(filepath.Dir(file), "links/dir")
	for uri, want := range map[string]int{"links": 2, "links/*": 1, "links/**": 2, "links/dir": 1, "links/*/*": 1} {
		objects, err := f.Store.List(t.Context(), filepath.Join(dir, uri))
		if err != nil || len(objects) != want {
			t.Errorf("List(%q) = %v, %v; want %d", uri, objects, err, want)
		}
	}
	link(filepath.Join(dir, "loop"), "loop/back")
	link(filepath.Join(dir, "nowhere"), "broken/c.txt")
	link("self", "self")
	for uri, want := range map[string]string{"loop": "loop/back leads back to", "loop/**": "back/back/back leads back to", "self": "self leads back to", "broken": "broken/c.txt is a link to " + dir + "/nowhere, which is not there", "broken/*": "is a link to " + dir + "/nowhere", "broken/c.txt": "is a link to " + dir + "/nowhere"} {
		if objects, err := f.Store.List(t.Context(), filepath.Join(dir, uri)); err == nil || fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) {
			t.Errorf("List(%q) = %v, %v; want a user error with %q", uri, objects, err, want)
		}
	}
}

func TestLocalSaysWhatChanged(t *testing.T) {
	f := localFixture(t)
	obj, err := f.Store.Stat(t.Context(), f.Put("f", []byte("0123")))
	if err != nil {
		t.Fatal(err)
	}
	for data, want := range map[string]string{"01": "its size was 4 bytes and is 2", "4567": "written again"} {
		f.Put("f", []byte(data))
		if _, err := f.Store.Open(t.Context(), obj); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open: %v; want %q", err, want)
		}
	}
}

func TestMetered(t *testing.T) {
	memory := &store.Memory{}
	st := store.NewMetered(memory)
	obj := store.Object{URI: memory.Put("f", make([]byte, 100))}
	h, err := st.Open(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{0, 90} {
		h.ReadAt(make([]byte, 20), off)
	}
	if got, want := st.Meter(), (store.Meter{Opens: 1, Open: 1, Reads: 2, Bytes: 30}); got != want {
		t.Errorf("Meter = %+v, want %+v", got, want)
	}
	h.Close()
	h.Close()
	if got := st.Meter().Open; got != 0 {
		t.Errorf("%d handles open after Close", got)
	}
}

func TestFingerprint(t *testing.T) {
	st := &store.Memory{}
	sum := func(data []byte) [32]byte {
		t.Helper()
		obj, err := st.Stat(t.Context(), st.Put("f", data))
		if err != nil {
			t.Fatal(err)
		}
		sum, err := store.Fingerprint(t.Context(), st, obj)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 64 << 10, 192<<10 - 1, 192 << 10, 192<<10 + 1, 1 << 20, 3<<20 + 7} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		whole := sum(data)
		if whole != sum(data) {
			t.Errorf("%d bytes: two fingerprints", size)
		}
		if sum(append(data[:size:size], 0)) == whole {
			t.Errorf("%d bytes: a longer file has the same fingerprint", size)
		}
		for _, at := range []int{0, 1000, 64<<10 - 1, size - 64<<10, size - 1} {
			if at < 0 || at >= size {
				continue
			}
			data[at] ^= 1
			if sum(data) == whole {
				t.Errorf("%d bytes: flipping byte %d keeps the fingerprint", size, at)
			}
			data[at] ^= 1
		}
	}
}

func TestFingerprintOfChangedFile(t *testing.T) {
	st := &store.Memory{}
	obj := store.Object{URI: st.Put("f", make([]byte, 10)), Size: 1000}
	if _, err := store.Fingerprint(t.Context(), st, obj); !errors.Is(err, store.ErrChanged) {
		t.Errorf("got %v, want ErrChanged", err)
	}
}

func ExampleStore() {
	ctx := context.Background()
	st := &store.Memory{} // store.Local{} for real files
	st.Put("corpus/b.txt", []byte("river"))
	st.Put("corpus/a.txt", []byte("mill"))
	objects, err := st.List(ctx, "corpus/*.txt")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, obj := range objects {
		h, err := st.Open(ctx, obj)
		if err != nil {
			fmt.Println(err)
			return
		}
		text := make([]byte, obj.Size)
		n, err := h.ReadAt(text, 0)
		fmt.Println(obj.URI, string(text[:n]), err)
		h.Close()
	}
	// Output:
	// /corpus/a.txt mill <nil>
	// /corpus/b.txt river <nil>
}
