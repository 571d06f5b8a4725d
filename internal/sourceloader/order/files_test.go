package order_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// folder writes files, each with its name as content.
func folder(t testing.TB, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestFiles: which files of a folder are records, and which are beside one.
func TestFiles(t *testing.T) {
	for _, c := range []struct {
		files, pattern, format string
		columns                []string
		want                   string // records, or an error
	}{
		{"a.wav b.wav", "", "", []string{"wav"}, "a.wav b.wav"},
		{"a.wav a.txt b.wav", "", "files", []string{"wav", "txt"}, "a.wav b.wav"},
		{"a.wav a.txt b.wav", "", "", []string{"text"}, "a.txt"}, // as before there were such records
		{"a.wav m.jsonl", "", "", []string{"text"}, "m.jsonl"},
		{"a.wav m.jsonl", "", "files", []string{"wav"}, "a.wav"},
		{"a.jpg a.wav b.wav", "", "", []string{"jpg", "wav"}, "a.jpg b.wav"},
		{"a.jpg a.wav b.wav", "", "", []string{"bytes"}, "a.jpg a.wav b.wav"},
		{"a.jpg a.wav b.wav", "*.wav", "", []string{"jpg", "wav"}, "a.wav b.wav"},
		{"a.exe b.wav", "", "", []string{"wav"}, "b.wav"},
		{"a.exe", "a.exe", "files", []string{"bytes"}, "a.exe"},
		{"a.exe", "", "files", []string{"bytes"}, "none of the files"},
	} {
		dir := folder(t, strings.Fields(c.files)...)
		src := jobspec.Source{Name: "s", Files: []string{filepath.Join(dir, c.pattern)}, Format: c.format}
		s, err := order.Index(t.Context(), store.Local{}, &src, 1, c.columns)
		got := fmt.Sprint(err)
		if err == nil {
			var names []string
			for _, f := range s.Manifest.Files {
				names = append(names, filepath.Base(f.URI))
			}
			got = strings.Join(names, " ")
		}
		if err == nil && got != c.want || err != nil && !strings.Contains(got, c.want) {
			t.Errorf("%s of %s as %q: %s, want %s", c.columns, c.files, c.format, got, c.want)
		}
	}
}

// TestColumnsAreNotLeftOut: a file beside a record is one of its columns, whether a step reads it or not; one beside none,
// or of a format that is read otherwise, is left out.
func TestColumnsAreNotLeftOut(t *testing.T) {
	for files, want := range map[string]string{
		"a.wav a.txt a.json a.txt.gz b.wav": "",
		"a.wav b.txt ab.txt a.b.txt":        "ab.txt b.txt",
		"a.b.wav a.txt a.b.txt":             "a.txt",
	} {
		src := jobspec.Source{Name: "s", Files: []string{folder(t, strings.Fields(files)...)}, Format: "files"}
		s, err := order.Index(t.Context(), store.Local{}, &src, 1, []string{"wav", "txt"})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, o := range s.LeftOut {
			out = append(out, filepath.Base(o.URI))
		}
		if got := strings.Join(out, " "); got != want {
			t.Errorf("of %s are left out: %s, want %s", files, got, want)
		}
	}
}

// TestFilesBeside: what is beside a file is part of the manifest, also that it is not there.
func TestFilesBeside(t *testing.T) {
	dir := folder(t, "a.wav", "a.txt", "b.wav")
	src := jobspec.Source{Name: "s", Files: []string{dir}, Format: "files"}
	index := func() *order.Source {
		s, err := order.Index(t.Context(), store.Local{}, &src, 1, []string{"wav", "txt"})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	read := func(s *order.Source) (values []string, err error) {
		for _, u := range s.Order.Layout.Units(0) {
			err = errors.Join(err, s.ReadUnit(t.Context(), store.Local{}, u, func(rec *format.Record) error {
				for _, v := range rec.Values {
					values = append(values, fmt.Sprintf("%s %v", v.Bytes, v.Absent))
				}
				return nil
			}))
		}
		return values, err
	}
	s := index()
	before := s.Manifest.Digest()
	if values, err := read(s); err != nil || !slices.Equal(values, []string{"a.wav false", "a.txt false", "b.wav false", " true"}) || s.Order.Layout.Chunks() != 1 {
		t.Errorf("%d chunks, %q, %v", s.Order.Layout.Chunks(), values, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.txt"), []byte("new"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := read(s); fault.ClassOf(err) != fault.User || !errors.Is(err, store.ErrChanged) {
		t.Errorf("a file that came: %v", err)
	}
	if index().Manifest.Digest() == before {
		t.Error("a file that came is not part of the digest")
	}
	if err := os.Remove(filepath.Join(dir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	if _, err := read(s); fault.ClassOf(err) != fault.User || err == nil {
		t.Errorf("a file that went: %v", err)
	}
}

// BenchmarkFiles indexes a folder of many small files.
func BenchmarkFiles(b *testing.B) {
	var names []string
	for i := range 20_000 {
		names = append(names, fmt.Sprintf("%06d.wav", i))
	}
	dir := folder(b, names...)
	src := jobspec.Source{Name: "s", Files: []string{dir}}
	b.ReportAllocs()
	for b.Loop() {
		if s, err := order.Index(b.Context(), store.Local{}, &src, 1, []string{"wav", "txt"}); err != nil || len(s.Manifest.Files) != len(names) {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*len(names)), "µs/file")
}
