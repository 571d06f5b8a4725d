package decoders_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/format/tar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/text"
)

// named is a gzip member with everything that a header may hold but a checksum.
func named(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Name, w.Comment, w.Extra = "a.txt", "written for a test", []byte("ab\x02\x00cd")
	w.Write([]byte(text))
	w.Close()
	return b.Bytes()
}

func zstdFrame(text string) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return w.EncodeAll([]byte(text), nil)
}

// TestCutCompressed cuts compressed files at every byte: a cut is an error that names
// the file and the byte, or falls between two members and leaves the text before it.
func TestCutCompressed(t *testing.T) {
	skipped := []byte("\x50\x2a\x4d\x18\x03\x00\x00\x00abc")
	for name, parts := range map[string][][]byte{
		"/a.txt.gz":  {named("first "), named("second "), named("third")},
		"/A.TXT.GZ":  {named("first "), named("second "), named("third")},
		"/a.txt.zst": {zstdFrame("first "), skipped, zstdFrame("second "), zstdFrame("third")},
	} {
		texts := map[int]string{len(parts[0]): "first "} // by the length of a file that is whole
		whole := bytes.Join(parts, nil)
		if len(parts) == 4 {
			texts[len(parts[0])+len(skipped)] = "first "
		}
		texts[len(whole)-len(parts[len(parts)-1])] = "first second "
		texts[len(whole)] = "first second third"
		for n := range len(whole) + 1 {
			got := printAll(t, text.Format{}, map[string][]byte{name: whole[:n]}, name, "text")
			text, valid := texts[n]
			switch {
			case valid && got != fmt.Sprintf("0: %q", text):
				t.Errorf("%s, %d of %d bytes: %s, want %q", name, n, len(whole), got, text)
			case !valid && got != fmt.Sprintf("user: chunk 0: decompressing %s: the %s data is cut off at byte %d, the end of the file: copy the file again", name, codec(name), n):
				t.Errorf("%s, %d of %d bytes: %s, want that it is cut off", name, n, len(whole), got)
			}
		}
	}
}

func codec(name string) string {
	if strings.HasSuffix(name, ".zst") {
		return "zstd"
	}
	return "gzip"
}

// TestGzipPadding reads gzip files with zeros after the last member, and refuses
// whatever else stands there.
func TestGzipPadding(t *testing.T) {
	whole := append(named("first "), named("second")...)
	for _, c := range []struct{ after, want string }{
		{"", `0: "first second"`},
		{"\x00", `0: "first second"`},
		{strings.Repeat("\x00", 70_000), `0: "first second"`},
		{strings.Repeat("\x00", 5_000) + "x", "invalid header"},
		{"\x00" + string(named("third")), "invalid header"},
		{"x", "cut off"},
		{"something else", "invalid header"},
	} {
		got := printAll(t, text.Format{}, map[string][]byte{"/a.txt.gz": append(bytes.Clone(whole), c.after...)}, "/a.txt.gz", "text")
		if !strings.Contains(got, c.want) || strings.HasPrefix(c.want, "0:") != (got == c.want) {
			t.Errorf("%d bytes after the members, %.20q: %s, want %s", len(c.after), c.after, got, c.want)
		}
	}
	zeros := printAll(t, text.Format{}, map[string][]byte{"/a.txt.gz": make([]byte, 512)}, "/a.txt.gz", "text")
	if !strings.Contains(zeros, "invalid header") {
		t.Errorf("nothing but zeros: %s", zeros)
	}
}

// TestCutGzipEverywhere cuts the header of the second member for each format that reads
// gzip, and for a compressed member of a tar.
func TestCutGzipEverywhere(t *testing.T) {
	cut := func(text string) []byte { return append(named(text), named("x")[:20]...) }
	line := `{"text": "a"}` + "\n"
	archive := tarOf([]member{{"0.txt.gz", string(cut("a"))}})
	for name, c := range map[string]struct {
		f    format.Format
		data []byte
	}{
		"/a.jsonl.gz": {json.Lines{}, cut(line)},
		"/a.json.gz":  {json.Format{}, cut("[" + line + "]")},
		"/a.txt.gz":   {text.Format{}, cut("a")},
		"/a.tar.gz":   {tar.Format{}, cut(string(tarOf([]member{{"0.txt", "a"}})))},
		"/a.tgz":      {tar.Format{}, cut(string(tarOf([]member{{"0.txt", "a"}})))},
	} {
		column := "text"
		if c.f.Name() == "webdataset" {
			column = "txt"
		}
		st, obj := stored(t, map[string][]byte{name: c.data}, name)
		_, _, err := count(t.Context(), c.f, st, obj, format.Options{Columns: []string{column}})
		if fault.ClassOf(err) != fault.User || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("%s: the gzip data is cut off at byte %d", name, len(c.data))) {
			t.Errorf("%s: %v", name, err)
		}
	}
	st, obj := stored(t, map[string][]byte{"/a.tar": archive}, "/a.tar")
	var bad error
	err := format.Read(t.Context(), tar.Format{}, st, obj, 0, format.Options{Columns: []string{"txt.gz"}}, func(r *format.Record) error {
		bad = errors.Join(bad, r.Err)
		return nil
	})
	if err != nil || !strings.Contains(fmt.Sprint(bad), "0.txt.gz: unexpected EOF") {
		t.Errorf("a compressed member that is cut: %v, %v", err, bad)
	}
}
