package order_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

func repeated(b byte) (out [32]byte) {
	for i := range out {
		out[i] = b
	}
	return out
}

func file(uri string, size int64, chunks int, fingerprint byte) order.File {
	return order.File{Object: store.Object{URI: uri, Size: size}, Chunks: chunks, Fingerprint: repeated(fingerprint)}
}

// TestManifestDigestGolden fixes the digest, computed in Python as SHA-256 over
// pack('<QQQ', len(name), size, chunks) + name + fingerprint for each file, and
// the encoding's digest.
func TestManifestDigestGolden(t *testing.T) {
	m := order.Manifest{Files: []order.File{file("/data/a.jsonl", 10, 1, 1), file("/data/sub/b.jsonl", 20, 2, 2)}, Encoding: repeated(3)}
	if got := fmt.Sprintf("%x", m.Digest()); got != "a7ca29fd994fe88ac442726f24dc4b25aaf7d389639e5e4b7b1eb2db6ff036ed" {
		t.Errorf("digest %s", got)
	}
	if m.Bytes() != 30 {
		t.Errorf("%d bytes, want 30", m.Bytes())
	}
}

func TestManifestDigest(t *testing.T) {
	base := []order.File{file("/data/a", 10, 1, 1), file("/data/b", 20, 2, 2)}
	was := (&order.Manifest{Files: base}).Digest()
	if (&order.Manifest{Files: base, Encoding: repeated(1)}).Digest() == was {
		t.Error("another encoding has the same digest")
	}
	for _, c := range []struct {
		name  string
		files []order.File
		same  bool
	}{
		{"another folder", []order.File{file("s3://bucket/x/a", 10, 1, 1), file("s3://bucket/x/b", 20, 2, 2)}, true},
		{"another name", []order.File{file("/data/a", 10, 1, 1), file("/data/c", 20, 2, 2)}, false},
		{"a folder between", []order.File{file("/data/a", 10, 1, 1), file("/data/b/b", 20, 2, 2)}, false},
		{"another size", []order.File{file("/data/a", 11, 1, 1), file("/data/b", 20, 2, 2)}, false},
		{"other chunks", []order.File{file("/data/a", 10, 2, 1), file("/data/b", 20, 2, 2)}, false},
		{"another content", []order.File{file("/data/a", 10, 1, 9), file("/data/b", 20, 2, 2)}, false},
		{"one file less", base[:1], false},
		{"no file", nil, false},
	} {
		if got := (&order.Manifest{Files: c.files}).Digest(); (got == was) != c.same {
			t.Errorf("%s: same digest is %v, want %v", c.name, got == was, c.same)
		}
	}
}

func TestManifestName(t *testing.T) {
	for _, c := range []struct {
		uris []string
		want []string // the names below the common folder
	}{
		{[]string{"/data/a.jsonl"}, []string{"a.jsonl"}},
		{[]string{"/data/x", "/data/xy"}, []string{"x", "xy"}}, // a name that begins like another is no folder
		{[]string{"/data/a/1", "/data/ab/1"}, []string{"a/1", "ab/1"}},
		{[]string{"/a/1", "/b/1"}, []string{"a/1", "b/1"}},
		{[]string{"s3://x/1", "s3://y/1"}, []string{"x/1", "y/1"}},
		{[]string{"plain", "plainer"}, []string{"plain", "plainer"}},
	} {
		m := order.Manifest{}
		for _, uri := range c.uris {
			m.Files = append(m.Files, file(uri, 1, 1, 1))
		}
		for i, want := range c.want {
			if got := m.Name(int32(i)); got != want {
				t.Errorf("%s among %v is called %q, want %q", c.uris[i], c.uris, got, want)
			}
		}
	}
}

const twoLines = `{"text":"a"}` + "\n" + `{"text":"b"}` + "\n"

// index puts files into a store in memory and indexes a source over patterns.
func index(t *testing.T, data map[string]string, src jobspec.Source) (*order.Source, error) {
	t.Helper()
	var mem store.Memory
	for name, text := range data {
		mem.Put(name, []byte(text))
	}
	src.Name = "s"
	return order.Index(t.Context(), &mem, &src, 1, []string{"text"})
}

func TestIndexChoosesFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		data map[string]string
		src  jobspec.Source
		want []string // URIs
	}{
		{"sorted, each once",
			map[string]string{"b.jsonl": twoLines, "a.jsonl": twoLines},
			jobspec.Source{Files: []string{"/b.jsonl", "/*.jsonl", "/a.jsonl"}},
			[]string{"/a.jsonl", "/b.jsonl"}},
		{"files without a known extension are left out of a folder",
			map[string]string{"d/a.jsonl": twoLines, "d/LICENSE": "words"},
			jobspec.Source{Files: []string{"/d"}},
			[]string{"/d/a.jsonl"}},
		{"files of another format are left out if the format is set",
			map[string]string{"d/a.jsonl": twoLines, "d/README.md": "words"},
			jobspec.Source{Files: []string{"/d"}, Format: "jsonl"},
			[]string{"/d/a.jsonl"}},
		{"a named file stays, whatever it is called",
			map[string]string{"d/a.jsonl": twoLines, "d/b.data": twoLines, "d/c.data": twoLines},
			jobspec.Source{Files: []string{"/d", "/d/b.data"}, Format: "jsonl"},
			[]string{"/d/a.jsonl", "/d/b.data"}},
		{"a named file stays, however its path is written",
			map[string]string{"d/a.jsonl": twoLines, "d/b.data": twoLines},
			jobspec.Source{Files: []string{"/d/*.jsonl", "d/x/../b.data"}, Format: "jsonl"},
			[]string{"/d/a.jsonl", "/d/b.data"}},
		{"text takes any file if the format is set",
			map[string]string{"d/a.go": "package a", "d/b.txt": "words"},
			jobspec.Source{Files: []string{"/d"}, Format: "text"},
			[]string{"/d/a.go", "/d/b.txt"}},
		{"text found by extension takes no other file",
			map[string]string{"d/a.csv": "1,2", "d/b.txt": "words"},
			jobspec.Source{Files: []string{"/d"}},
			[]string{"/d/b.txt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := index(t, c.data, c.src)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range s.Manifest.Files {
				got = append(got, f.URI)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("files %v, want %v", got, c.want)
			}
		})
	}
}

func TestIndexErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		data map[string]string
		src  jobspec.Source
		want []string // all of them in the message
	}{
		{"missing", nil, jobspec.Source{Files: []string{"/nowhere.jsonl"}},
			[]string{`source "s"`, "/nowhere.jsonl", "no such file"}},
		{"no pattern", nil, jobspec.Source{}, []string{`source "s"`, "names no file"}},
		{"empty glob", map[string]string{"a.txt": "x"}, jobspec.Source{Files: []string{"/*.jsonl"}},
			[]string{`source "s"`, "/*.jsonl"}},
		{"empty source", map[string]string{"a.jsonl": ""}, jobspec.Source{Files: []string{"/a.jsonl"}},
			[]string{`source "s" is empty`, "1 files (/a.jsonl)", "name files with data"}},
		{"no extension says a format", map[string]string{"d/a.xyz": "x", "d/b.xyz": "y"}, jobspec.Source{Files: []string{"/d"}},
			[]string{`source "s"`, "/d/a.xyz", "set the source's format"}},
		{"several formats", map[string]string{"d/notes.md": "words", "d/a.jsonl": twoLines}, jobspec.Source{Files: []string{"/d"}},
			[]string{`source "s"`, "several formats", "/d/notes.md is text", "/d/a.jsonl is jsonl", "set `format:`"}},
		{"the filter leaves nothing", map[string]string{"d/a.jsonl": twoLines}, jobspec.Source{Files: []string{"/d"}, Format: "parquet"},
			[]string{`source "s"`, "none of the files", "/d", "parquet", "set `format:`"}},
		{"unknown format", map[string]string{"a.jsonl": twoLines}, jobspec.Source{Files: []string{"/a.jsonl"}, Format: "parket"},
			[]string{`source "s"`, `"parket"`, `did you mean "parquet"?`}},
		{"a name that is not UTF-8", map[string]string{"d/caf\xe9.jsonl": twoLines}, jobspec.Source{Files: []string{"/d"}},
			[]string{`source "s"`, `"/d/caf\xe9.jsonl"`, "not valid UTF-8", "rename it"}},
		{"broken file", map[string]string{"a.parquet": "not parquet"}, jobspec.Source{Files: []string{"/a.parquet"}},
			[]string{`source "s"`, "/a.parquet"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := index(t, c.data, c.src)
			if fault.ClassOf(err) != fault.User {
				t.Fatalf("error %v is of class %v, want user", err, fault.ClassOf(err))
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("message %q lacks %q", err, part)
				}
			}
		})
	}
}

// lostStat is a store whose look-ups fail with lost errors.
type lostStat struct{ *store.Memory }

func (lostStat) Stat(context.Context, string) (store.Object, error) {
	return store.Object{}, fault.Lostf("the network is away")
}

// TestIndexNeverGuesses checks that a temporary failure of a look-up does not
// decide which files belong to the source.
func TestIndexNeverGuesses(t *testing.T) {
	var mem store.Memory
	mem.Put("d/a.jsonl", []byte(twoLines))
	mem.Put("d/b.data", []byte(twoLines))
	src := &jobspec.Source{Name: "s", Format: "jsonl", Files: []string{"/d/a.jsonl", "/d/b.data"}}
	if _, err := order.Index(t.Context(), lostStat{&mem}, src, 1, nil); fault.ClassOf(err) != fault.Lost {
		t.Errorf("error %v is of class %v, want lost", err, fault.ClassOf(err))
	}
}

func TestIndexStopsWithContext(t *testing.T) {
	var mem store.Memory
	mem.Put("a.jsonl", []byte(twoLines))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src := &jobspec.Source{Name: "s", Files: []string{"/a.jsonl"}}
	if _, err := order.Index(ctx, &mem, src, 1, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want one that wraps %v", err, context.Canceled)
	}
}

// TestIndexIgnoresPlaceAndTime indexes the same bytes in two folders, written at
// different times, through absolute and relative paths.
func TestIndexIgnoresPlaceAndTime(t *testing.T) {
	digest := func(patterns ...string) [32]byte {
		t.Helper()
		src := &jobspec.Source{Name: "s", Files: patterns}
		s, err := order.Index(t.Context(), store.Local{}, src, 1, []string{"text"})
		if err != nil {
			t.Fatal(err)
		}
		return s.Manifest.Digest()
	}
	a, b := t.TempDir(), t.TempDir()
	for i, dir := range []string{a, b} {
		for _, name := range []string{"x/1.jsonl", "y/2.jsonl"} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(twoLines), 0o644); err != nil {
				t.Fatal(err)
			}
			when := time.Unix(int64(1_000_000*(i+1)), 0)
			if err := os.Chtimes(path, when, when); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := digest(a)
	if digest(b) != want {
		t.Error("the same files in another folder have another digest")
	}
	t.Chdir(b)
	if digest("y/*.jsonl", "x/1.jsonl") != want {
		t.Error("the same files through relative paths have another digest")
	}
	if err := os.WriteFile("y/2.jsonl", []byte(strings.Replace(twoLines, "b", "c", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if digest(b) == want {
		t.Error("another content has the same digest")
	}
}

func TestIndexOrder(t *testing.T) {
	data := map[string]string{"a.jsonl": strings.Repeat(twoLines, 100)}
	s, err := index(t, data, jobspec.Source{Files: []string{"/a.jsonl"}, ChunkBytes: 260, Shuffle: jobspec.Shuffle{Enabled: true, Block: 3}})
	if err != nil {
		t.Fatal(err)
	}
	chunks := int64(s.Manifest.Files[0].Chunks)
	if chunks < 5 || s.Order.Layout.Chunks() != chunks {
		t.Errorf("%d chunks of %d bytes, the order has %d", chunks, s.Manifest.Bytes(), s.Order.Layout.Chunks())
	}
	if s.Order.Source != "s" || s.Order.Seed != 1 || !s.Order.Shuffle || s.Order.Block != 3 || s.Order.Blocks() != (chunks+2)/3 {
		t.Errorf("order %+v of %d blocks", s.Order, s.Order.Blocks())
	}
	s, err = index(t, data, jobspec.Source{Files: []string{"/a.jsonl"}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Order.Shuffle || s.Order.Block != 1 || s.Order.Blocks() != 1 {
		t.Errorf("without settings: order %+v of %d blocks", s.Order, s.Order.Blocks())
	}
}

// TestCompanions checks that a companion of a listed file is part of the
// manifest, and that a rewrite of it to the same size is refused.
func TestCompanions(t *testing.T) {
	dir := t.TempDir()
	idx := megatronIndex(4)
	writeFile(t, filepath.Join(dir, "a.idx"), idx)
	writeFile(t, filepath.Join(dir, "a.bin"), []byte{1, 0, 2, 0, 3, 0, 4, 0})
	src := jobspec.Source{Name: "s", Files: []string{dir}, Format: "megatron"}
	index := func() *order.Source {
		s, err := order.Index(t.Context(), store.Local{}, &src, 1, []string{"tokens"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := index()
	read := func(s *order.Source) error {
		return s.ReadUnit(t.Context(), store.Local{}, order.Unit{}, func(*format.Record) error { return nil })
	}
	if err := read(before); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "a.bin"), []byte{1, 0, 2, 0, 3, 0, 5, 0})
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "a.bin"), later, later); err != nil {
		t.Fatal(err)
	}
	if err := read(before); !errors.Is(err, store.ErrChanged) || fault.ClassOf(err) != fault.User {
		t.Errorf("reading after the .bin changed: %v", err)
	}
	if len(before.Manifest.Files) != 1 {
		t.Errorf("the pair counts as %d files", len(before.Manifest.Files))
	}
	byBin := jobspec.Source{Name: "s", Files: []string{dir + "/*.bin"}}
	if s, err := order.Index(t.Context(), store.Local{}, &byBin, 1, []string{"tokens"}); err != nil || s.Order.Layout.Chunks() != 1 {
		t.Errorf("a glob of .bin files: %v", err)
	}
	if before.Manifest.Digest() == index().Manifest.Digest() {
		t.Error("the manifest does not depend on the .bin")
	}
}

// TestColumnsBeside: a dataset that is a column of another is part of its manifest, and no
// file of the source, unless the column is not read.
func TestColumnsBeside(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a_text_document", "a_loss_document"} {
		writeFile(t, filepath.Join(dir, name+".idx"), megatronIndex(4))
		writeFile(t, filepath.Join(dir, name+".bin"), []byte{1, 0, 1, 0, 0, 0, 1, 0})
	}
	index := func(files string, columns ...string) *order.Manifest {
		t.Helper()
		s, err := order.Index(t.Context(), store.Local{}, &jobspec.Source{Name: "s", Files: []string{files}, Format: "megatron"}, 1, columns)
		if err != nil {
			t.Fatal(err)
		}
		return &s.Manifest
	}
	for _, files := range []string{dir, dir + "/*.bin", dir + "/*.idx"} {
		if m := index(files, "tokens"); len(m.Files) != 2 {
			t.Errorf("%s without masks: %d files, want 2", files, len(m.Files))
		}
		if m := index(files, "tokens", "loss"); len(m.Files) != 1 || len(m.Files[0].Companions) != 3 || !strings.Contains(m.Files[0].URI, "a_text_document") {
			t.Errorf("%s with masks: %+v", files, m.Files)
		}
	}
	before, without := index(dir+"/a_text_document.idx", "tokens", "loss").Digest(), index(dir+"/a_text_document.idx", "tokens").Digest()
	writeFile(t, filepath.Join(dir, "a_loss_document.bin"), []byte{0, 0, 1, 0, 0, 0, 1, 0})
	if after := index(dir+"/a_text_document.idx", "tokens", "loss").Digest(); after == before || before == without {
		t.Error("the manifest does not depend on the masks")
	}
	if index(dir+"/a_text_document.idx", "tokens").Digest() != without {
		t.Error("the manifest without masks depends on them")
	}
}

// megatronIndex is an index of n documents of one uint16 token each.
func megatronIndex(n int) []byte {
	b := append([]byte("MMIDIDX\x00\x00"), 1, 0, 0, 0, 0, 0, 0, 0, 8)
	b = binary.LittleEndian.AppendUint64(b, uint64(n))
	b = binary.LittleEndian.AppendUint64(b, uint64(n+1))
	for range n {
		b = binary.LittleEndian.AppendUint32(b, 1)
	}
	for i := range n {
		b = binary.LittleEndian.AppendUint64(b, uint64(2*i))
	}
	for i := range n + 1 {
		b = binary.LittleEndian.AppendUint64(b, uint64(i))
	}
	return b
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestOpenUnit: a unit that was left after a record goes on with the next one.
func TestOpenUnit(t *testing.T) {
	var files store.Memory
	files.Put("/a.jsonl", []byte("{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"))
	src, err := order.Index(t.Context(), &files, &jobspec.Source{Name: "s", Files: []string{"/a.jsonl"}}, 1, []string{"n"})
	if err != nil {
		t.Fatal(err)
	}
	var read []int64
	for at := format.Position(0); ; {
		r, err := src.OpenUnit(t.Context(), &files, order.Unit{}, at)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := r.Next()
		if err != nil {
			if err != io.EOF || !slices.Equal(read, []int64{1, 2, 3}) {
				t.Errorf("read %d: %v", read, err)
			}
			return
		}
		read, at = append(read, rec.Values[0].Int), rec.After()
		r.Close()
	}
}
