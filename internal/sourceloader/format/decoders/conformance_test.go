package decoders_test

import (
	stdtar "archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/files"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/format/megatron"
	"github.com/millrace-data/millrace/internal/sourceloader/format/tar"
	"github.com/millrace-data/millrace/internal/sourceloader/format/text"
)

const lines = "\xef\xbb\xbf" + `{"text":"first","n":1,"ids":[1,2,-3],"meta":{"lang":"en"}}` + "\r\n" +
	"\n \t\r\n" +
	`{"text":"zweite \u00fc\ud83d\ude00","n":2.5,"ids":[],"meta":null}` + "\n" +
	`{"text":"broken}` + "\n" +
	`["not an object"]` + "\n" +
	"{\"text\":\"bad \xff utf-8\"}\n" +
	`{"n":true,"ids":[1,"x",[2]],"meta":{"lang":["a"]}}` + "\n" +
	`{"text":"last","n":9223372036854775808}`

func jsonArray() []byte {
	var elements []string
	for line := range strings.Lines(strings.TrimPrefix(lines, "\xef\xbb\xbf")) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(line, "broken") && !strings.Contains(line, "\xff") {
			elements = append(elements, line)
		}
	}
	return []byte("\xef\xbb\xbf [" + strings.Join(elements, " ,\n") + "] \n")
}

func gzipped(data []byte) []byte {
	var b bytes.Buffer
	// Two members: the second half is another gzip stream.
	for _, part := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
		w := gzip.NewWriter(&b)
		w.Write(part)
		w.Close()
	}
	return b.Bytes()
}

func zstandard(data []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(data, nil)
}

type member struct{ name, data string }

var members = []member{
	{"dir/", ""},
	{"dir/0001.txt", "a river"}, {"dir/0001.jpg", "\xff\xd8\xff"}, {"dir/0001.json", `{"caption":"mill","size":[4,5]}`},
	{"README", "no extension"},
	{"dir/0002.seg.png", strings.Repeat("p", 700)}, {"dir/0002.TXT", ""},
	{"dir/0003.txt", "bad \xff"},
	{"dir/0001.txt", "a key that comes back"},
	{strings.Repeat("long/", 40) + "0004.txt", "long name"},
}

func tarOf(members []member) []byte {
	var b bytes.Buffer
	w := stdtar.NewWriter(&b)
	for _, m := range members {
		header := &stdtar.Header{Name: m.name, Mode: 0o644, Size: int64(len(m.data)), Typeflag: stdtar.TypeReg}
		if strings.HasSuffix(m.name, "/") {
			header.Typeflag = stdtar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			panic(err)
		}
		w.Write([]byte(m.data))
	}
	w.Close()
	return b.Bytes()
}

// pair writes a Megatron dataset of documents, each a list of sequences.
func pair(documents [][][]int32) (idx, bin []byte) {
	var sizes, pointers, indices []byte
	sequences := 0
	for _, doc := range documents {
		indices = binary.LittleEndian.AppendUint64(indices, uint64(sequences))
		for _, sequence := range doc {
			sizes = binary.LittleEndian.AppendUint32(sizes, uint32(len(sequence)))
			pointers = binary.LittleEndian.AppendUint64(pointers, uint64(len(bin)))
			for _, token := range sequence {
				bin = binary.LittleEndian.AppendUint16(bin, uint16(token))
			}
			sequences++
		}
	}
	indices = binary.LittleEndian.AppendUint64(indices, uint64(sequences))
	idx = binary.LittleEndian.AppendUint64([]byte("MMIDIDX\x00\x00"), 1)
	idx = append(idx, 8)
	idx = binary.LittleEndian.AppendUint64(idx, uint64(sequences))
	idx = binary.LittleEndian.AppendUint64(idx, uint64(len(documents)+1))
	return append(append(append(idx, sizes...), pointers...), indices...), bin
}

var documents = [][][]int32{
	{}, {{1, 2, 3}}, {{4}, {5, 6}}, {{}}, {{7, 8, 9, 10, 11, 12, 13, 14, 15, 65535}}, {}, {{16}, {}, {17}}, {{}},
}

func TestConformance(t *testing.T) {
	idx, bin := pair(documents)
	jsonColumns := []string{"text", "n", "ids", "meta"}
	for name, c := range map[string]formattest.Case{
		"text": {
			Format: text.Format{}, File: "/d/a.txt", Files: map[string][]byte{"/d/a.txt": []byte("abc\ndef üöä")},
			Columns: []string{"text", "path"}, Records: 1, Missing: "title", MissingIsError: true, Unframed: true, Empty: formattest.EmptyRecord,
		},
		"text.gz": {
			Format: text.Format{}, File: "/a.txt.gz", Files: map[string][]byte{"/a.txt.gz": gzipped([]byte("abc\ndef"))},
			Columns: []string{"text", "path"}, Records: 1, Missing: "title", MissingIsError: true, Unframed: true,
		},
		"files": {
			Format: files.Format{}, File: "/d/a.wav", Files: map[string][]byte{"/d/a.wav": []byte("RIFF...."), "/d/a.txt": []byte("abc üöä"), "/d/a.json": []byte(`{"n":[1,2]}`)},
			Columns: []string{"wav", "txt", "json.n", "__key__", "name", "bytes", "path"}, Records: 1, Missing: "flac", Unframed: true, Empty: formattest.EmptyRecord,
		},
		"jsonl": {
			Format: json.Lines{}, File: "/a.jsonl", Files: map[string][]byte{"/a.jsonl": []byte(lines)},
			Columns: jsonColumns, Records: 7, Missing: "nope", Unframed: true, Empty: formattest.EmptyNothing,
		},
		"jsonl.gz": {
			Format: json.Lines{}, File: "/a.jsonl.gz", Files: map[string][]byte{"/a.jsonl.gz": gzipped([]byte(lines))},
			Columns: jsonColumns, Records: 7, Missing: "nope", Unframed: true, // a cut between members is a shorter file
		},
		"jsonl.zst": {
			Format: json.Lines{}, File: "/a.jsonl.zst", Files: map[string][]byte{"/a.jsonl.zst": zstandard([]byte(lines))},
			Columns: jsonColumns, Records: 7, Missing: "nope",
		},
		"json array": {
			Format: json.Format{}, File: "/a.json", Files: map[string][]byte{"/a.json": jsonArray()},
			Columns: jsonColumns, Records: 5, Missing: "nope", Empty: formattest.EmptyNothing,
		},
		"json array.zst": {
			Format: json.Format{}, File: "/a.json.zst", Files: map[string][]byte{"/a.json.zst": zstandard(jsonArray())},
			Columns: jsonColumns, Records: 5, Missing: "nope",
		},
		"json lines": {
			Format: json.Format{}, File: "/a.json", Files: map[string][]byte{"/a.json": []byte(lines)},
			Columns: jsonColumns, Records: 7, Missing: "nope", Unframed: true, Empty: formattest.EmptyNothing,
		},
		"json object": {
			Format: json.Format{}, File: "/a.json", Files: map[string][]byte{"/a.json": []byte("{\n \"text\": \"one\",\n \"n\": [1]\n}\n")},
			Columns: []string{"text", "n"}, Records: 1, Missing: "nope", Empty: formattest.EmptyNothing,
		},
		"webdataset": {
			Format: tar.Format{}, File: "/a.tar", Files: map[string][]byte{"/a.tar": tarOf(members)},
			Columns: []string{"txt", "jpg", "json.caption", "json.size", "seg.png", "__key__"}, Records: 5, Missing: "flac",
		},
		"webdataset.tgz": {
			Format: tar.Format{}, File: "/a.tgz", Files: map[string][]byte{"/a.tgz": gzipped(tarOf(members))},
			Columns: []string{"txt", "json", "__key__"}, Records: 5, Missing: "flac",
		},
		"megatron": {
			Format: megatron.Format{}, File: "/a.idx", Files: map[string][]byte{"/a.idx": idx, "/a.bin": bin},
			Columns: []string{"tokens"}, Records: len(documents), Missing: "text", MissingIsError: true,
		},
		"megatron with a mask": {
			Format: megatron.Format{}, File: "/a_text_document.idx", Files: maskedFiles(),
			Columns: []string{"tokens", "loss_mask"}, Records: len(documents), Missing: "weight", MissingIsError: true,
		},
	} {
		t.Run(name, func(t *testing.T) { formattest.Run(t, c) })
	}
}

func TestValues(t *testing.T) {
	idx, bin := pair(documents)
	for _, c := range []struct {
		format  format.Format
		file    string
		data    []byte
		columns []string
		want    string
	}{
		{text.Format{}, "/a.txt", []byte("a\nb"), []string{"path", "text"}, `0: "/a.txt" "a\nb"`},
		{json.Lines{}, "/a.jsonl", []byte(lines), []string{"text", "n", "ids", "meta", "meta.lang"}, `0: "first" 1 tokens [1 2 -3] "{\"lang\":\"en\"}" "en"
68: "zweite ü😀" 0x1.4p+01 [] null null
134: error: /a.jsonl:5: (byte 134) the line is not valid JSON: it ends too soon: a string is open: fix the line
151: error: /a.jsonl:6: (byte 151) the line is a JSON list, but a record is an object: {"text": ...}: fix the line
169: error: /a.jsonl:7: (byte 169) the line is not valid JSON: at its byte 14, which is "\xff": it is not valid UTF-8: fix the line
192: null bool 1 [1 "x" tokens [2]] "{\"lang\":[\"a\"]}" ["a"]
243: "last" 0x1p+63 null null null`},
		{json.Format{}, "/a.json", jsonArray(), []string{"text", "meta.lang"}, `0: "first" "en"
1: "zweite ü😀" null
2: error: /a.json: element 2 (byte 134) is a JSON list, but a record is an object: {"text": ...}: fix it
3: null ["a"]
4: "last" null`},
		{tar.Format{}, "/a.tar", tarOf(members), []string{"__key__", "txt", "jpg", "json.caption", "json.size", "json.none"}, `0: "dir/0001" "a river" bytes ffd8ff "mill" tokens [4 5] null
1: "dir/0002" "" null null null null
2: error: /a.tar: sample 2 (dir/0003): byte 4 of the member .txt is not valid UTF-8
3: "dir/0001" "a key that comes back" null null null null
4: "` + strings.Repeat("long/", 40) + `0004" "long name" null null null null`},
		{megatron.Format{}, "/a.idx", idx, []string{"tokens"}, `0: tokens []
1: tokens [1 2 3]
2: tokens [4 5 6]
3: tokens []
4: tokens [7 8 9 10 11 12 13 14 15 65535]
5: tokens []
6: tokens [16 17]
7: tokens []`},
	} {
		got := printAll(t, c.format, map[string][]byte{c.file: c.data, "/a.bin": bin}, c.file, c.columns...)
		if got != c.want {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", c.file, got, c.want)
		}
	}
}

// printAll reads file of a store of files and prints its records, and the
// error that ended them if there is one.
func printAll(t *testing.T, f format.Format, files map[string][]byte, file string, columns ...string) string {
	t.Helper()
	st, obj := stored(t, files, file)
	records, err := formattest.ReadAll(t.Context(), f, st, obj, format.Options{Columns: columns})
	var out []string
	for _, r := range records {
		out = append(out, formattest.Print(r))
	}
	if err != nil {
		out = append(out, fmt.Sprintf("%v: %v", class(err), err))
	}
	return strings.Join(out, "\n")
}
