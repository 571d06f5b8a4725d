package decoders_test

import (
	stdtar "archive/tar"
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/tar"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func TestWebDatasetEdges(t *testing.T) {
	links := func() []byte {
		var b bytes.Buffer
		w := stdtar.NewWriter(&b)
		w.WriteHeader(&stdtar.Header{Name: "1.txt", Typeflag: stdtar.TypeSymlink, Linkname: "0.txt"})
		w.WriteHeader(&stdtar.Header{Name: "2.txt", Typeflag: stdtar.TypeLink, Linkname: "1.txt"})
		w.WriteHeader(&stdtar.Header{Name: "3.txt", Size: 2})
		w.Write([]byte("ok"))
		w.WriteHeader(&stdtar.Header{Name: "dev.txt", Typeflag: stdtar.TypeFifo})
		w.Close()
		return b.Bytes()
	}()
	noEnd := tarOf([]member{{"1.txt", "a"}, {"2.txt", strings.Repeat("\x00", 1024)}})
	noEnd = noEnd[:len(noEnd)-1024]
	large := tarOf([]member{{"1.txt", "a"}, {"1.bin", strings.Repeat("x", 600_000)}, {"2.txt", "b"}})
	legacy := tarOf([]member{{"\xd6\xd0.txt", "a\xff"}, {"\xce\xc4.txt", "b"}})
	for _, c := range []struct {
		name    string
		data    []byte
		columns []string
		want    string
	}{
		{"two of one extension", tarOf([]member{{"1.txt", "a"}, {"1.TXT", "b"}, {"2.txt", "c"}}), []string{"txt"},
			"0: error: /a.tar: sample 0 (1): it has two members .txt: keep one\n1: \"c\""},
		{"two of one extension, not asked for", tarOf([]member{{"1.jpg", "a"}, {"1.jpg", "b"}, {"1.txt", "c"}}), []string{"txt"}, `0: "c"`},
		{"links", links, []string{"txt"},
			"0: error: /a.tar: sample 0 (1): the member 1.txt is a link to 0.txt: write the tar with the file itself (tar --dereference --hard-dereference)\n" +
				"1: error: /a.tar: sample 1 (2): the member 2.txt is a link to 1.txt: write the tar with the file itself (tar --dereference --hard-dereference)\n2: \"ok\""},
		{"compressed members", tarOf([]member{{"1.txt.gz", string(gzipped([]byte("über")))}, {"1.json.gz", string(gzipped([]byte(`{"a":[1]}`)))}, {"2.txt.gz", "nope"}}),
			[]string{"txt.gz", "json.gz.a", "json.gz"},
			"0: \"über\" tokens [1] \"{\\\"a\\\":[1]}\"\n1: error: /a.tar: sample 1 (2): decompressing the member 2.txt.gz: unexpected EOF"},
		{"JSON by path", tarOf([]member{{"1.json", `{"a":{"json":2}}`}, {"1.meta.json", `{"a":3}`}, {"2.json", `{`}, {"3.json", `{"a":1}`}}),
			[]string{"json.a.json", "meta.json.a"},
			"0: 2 3\n1: error: /a.tar: sample 1 (2): the member .json is not valid JSON: it ends too soon: a key in double quotes is expected here\n" +
				"2: error: /a.tar: sample 2 (3): the member .json: field \"a.json\": \"a\" is a number and has no field \"json\": correct the name in the spec, or fix the record"},
		{"no samples", tarOf([]member{{"d/", ""}, {"README", "x"}, {".hidden.txt", "x"}}), []string{"txt"},
			"user: chunk 0: /a.tar: none of its 2 files is named like a sample: key.extension (such as 000017.txt)"},
		{"no members", tarOf(nil), []string{"txt"}, ""},
		{"no end mark after zeros", noEnd, []string{"txt"}, "0: \"a\"\nuser: chunk 0: /a.tar: the tar is cut off at byte 2560, in or after member 2.txt: copy the file again"},
		{"cut in a member that is skipped", large[:500_000], []string{"txt"}, "user: chunk 0: /a.tar: the tar is cut off at byte 500000, in or after member 1.bin: copy the file again"},
		{"names that are not UTF-8", legacy, []string{"txt"}, "0: error: /a.tar: sample 0 (\uFFFD): byte 1 of the member .txt is not valid UTF-8\n1: \"b\""},
		{"concatenated", slices.Concat(tarOf([]member{{"1.txt", "a"}}), tarOf([]member{{"2.txt", "b"}})), []string{"txt"},
			"user: chunk 0: /a.tar: there is data after the end-of-archive mark, from byte 2048 on (after member 1.txt): split concatenated tars, or write them as one"},
		{"not a tar", bytes.Repeat([]byte("no tar "), 200), []string{"txt"},
			"user: chunk 0: /a.tar: the tar is damaged before byte 512, at its start: archive/tar: invalid tar header: check that the file is a tar and copy it again"},
		{"empty column", tarOf(nil), []string{""}, "user: chunk 0: the name of a column is empty (valid: a member's extension such as txt or jpg, json.caption, __key__)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := printAll(t, tar.Format{}, map[string][]byte{"/a.tar": c.data}, "/a.tar", c.columns...); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestWebDatasetSkips: members that are not wanted are neither held nor, in a
// plain tar, read.
func TestWebDatasetSkips(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	memory, obj := stored(t, map[string][]byte{"/a.tar": tarOf([]member{{"1.bin", big}, {"1.txt", "a"}, {"2.bin", big}, {"2.txt", "b"}})}, "/a.tar")
	st := store.NewMetered(memory)
	good, _, err := count(t.Context(), tar.Format{}, st, obj, format.Options{Columns: []string{"txt"}})
	if m := st.Meter(); err != nil || good != 2 || m.Bytes > 2<<20 {
		t.Errorf("%d samples, %v, read %d bytes of %d", good, err, m.Bytes, obj.Size)
	}
}

// TestWebDatasetClaims: a header that claims 900 MB in a small file costs no
// 900 MB.
func TestWebDatasetClaims(t *testing.T) {
	var b bytes.Buffer
	w := stdtar.NewWriter(&b)
	w.WriteHeader(&stdtar.Header{Name: "1.txt", Size: 900 << 20})
	w.Write([]byte("short"))
	st, obj := stored(t, map[string][]byte{"/a.tar": b.Bytes()}, "/a.tar")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := count(t.Context(), tar.Format{}, st, obj, format.Options{Columns: []string{"txt"}})
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; err == nil || !strings.Contains(err.Error(), "cut off") || used > 8<<20 {
		t.Errorf("%d bytes allocated, %v", used, err)
	}
}

func FuzzWebDataset(f *testing.F) {
	f.Add(tarOf(members))
	f.Add(tarOf(members[:3])[:1500])
	f.Fuzz(func(t *testing.T, data []byte) {
		st, obj := stored(t, map[string][]byte{"/a.tar": data}, "/a.tar")
		_, _, err := count(t.Context(), tar.Format{}, st, obj, format.Options{Columns: []string{"txt", "json.caption", "__key__"}})
		if err != nil && class(err).String() != "user" {
			t.Errorf("not a user error: %v", err)
		}
	})
}
