package decoders_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
	"github.com/millrace-data/millrace/internal/sourceloader/format/formattest"
	"github.com/millrace-data/millrace/internal/sourceloader/format/json"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

func TestJSONLEdges(t *testing.T) {
	for _, c := range []struct{ name, data, want string }{
		{"blank", "\n\n  \r\n\t\n", ""},
		{"mark only", "\xef\xbb\xbf", ""},
		{"no last newline", `{"a":1}`, "0: 1"},
		{"CRLF", "{\"a\":1}\r\n{\"a\":2}\r\n", "0: 1\n9: 2"},
		{"spaces around", "  {\"a\":1} \t\n", "0: 1"},
		{"CR is white space, not a line end", "{\"a\":1}\r{\"a\":2}\n", `0: error: /a.jsonl:1: (byte 0) the line is not valid JSON: at its byte 9, which is "{": only white space may follow the value: fix the line`},
		{"mark later", "{\"a\":1}\n\xef\xbb\xbf{\"a\":2}\n", "0: 1\n" + `8: error: /a.jsonl:2: (byte 8) the line is not valid JSON: at its byte 1, which is "\xef": a value is expected here: fix the line`},
		{"two kinds of wrong type", "3\nnull\n", "0: error: /a.jsonl:1: (byte 0) the line is a JSON number, but a record is an object: {\"text\": ...}: fix the line\n" +
			"2: error: /a.jsonl:2: (byte 2) the line is a JSON null, but a record is an object: {\"text\": ...}: fix the line"},
		{"wrong type on the path", `{"a":{"b":1}}` + "\n" + `{"a":[1]}`, "0: \"{\\\"b\\\":1}\"\n14: tokens [1]"},
		{"gzip without its ending", "\x1f\x8b\x08\x00\n", "user: chunk 0: /a.jsonl: it is compressed: give its name the ending .gz or .zst"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := printAll(t, json.Lines{}, map[string][]byte{"/a.jsonl": []byte(c.data)}, "/a.jsonl", "a"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestJSONLLongLines: lines of many chunks, with the shared buffer growing
// across them, in every alignment.
func TestJSONLLongLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var data []byte
	var want []string
	for i := range 40 {
		text := strings.Repeat(string(rune('a'+i%26)), rng.IntN(1<<(rng.IntN(20))))
		want = append(want, fmt.Sprintf("%d: %q", len(data), text))
		data = fmt.Appendf(data, "{\"text\":%q}\n", text)
		if rng.IntN(3) == 0 {
			data = append(data, "\n\r\n"...)
		}
	}
	for _, chunk := range []int64{1000, 4096, 70_000, 1 << 20} {
		st, obj := stored(t, map[string][]byte{"/a.jsonl": data}, "/a.jsonl")
		records, err := formattest.ReadAll(t.Context(), json.Lines{}, st, obj, format.Options{Columns: []string{"text"}, ChunkBytes: chunk})
		if err != nil || len(records) != len(want) {
			t.Fatalf("chunks of %d: %d records of %d, %v", chunk, len(records), len(want), err)
		}
		for i, r := range records {
			if formattest.Print(r) != want[i] {
				t.Fatalf("chunks of %d: record %d is %.80s, want %.80s", chunk, i, formattest.Print(r), want[i])
			}
		}
	}
}

// TestJSONLReadsLittle: a chunk reads its own bytes, the end of its last
// record, and no more.
func TestJSONLReadsLittle(t *testing.T) {
	memory, obj := stored(t, map[string][]byte{"/a.jsonl": bytes.Repeat([]byte(`{"text":"0123456789abcdef"}`+"\n"), 400_000)}, "/a.jsonl")
	st := store.NewMetered(memory)
	opt := format.Options{Columns: []string{"text"}}
	chunks, err := json.Lines{}.Chunks(t.Context(), st, obj, opt)
	if err != nil || st.Meter() != (store.Meter{}) || chunks != 11 {
		t.Fatalf("%d chunks, %v, %+v", chunks, err, st.Meter())
	}
	if err := format.Read(t.Context(), json.Lines{}, st, obj, 5, opt, func(*format.Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if m := st.Meter(); m.Opens != 1 || m.Bytes > format.DefaultChunkBytes+70_000 || m.Reads > 2 {
		t.Errorf("one chunk took %+v", m)
	}
}

// TestJSONLBigLineInGzip: a small file may hold a long line.
func TestJSONLBigLineInGzip(t *testing.T) {
	bomb := gzipped(append(bytes.Repeat([]byte(" "), 30<<20), "{}"...))
	st, obj := stored(t, map[string][]byte{"/a.jsonl.gz": bomb}, "/a.jsonl.gz")
	good, bad, err := count(t.Context(), json.Lines{}, st, obj, format.Options{})
	if good != 1 || bad != 0 || err != nil {
		t.Errorf("a line of 30 MB: %d good, %d bad, %v", good, bad, err)
	}
}

// FuzzJSONL: chunks partition any bytes into the same records.
func FuzzJSONL(f *testing.F) {
	f.Add([]byte(lines), int64(7))
	f.Add([]byte("\n\n{}\n\r\n[]"), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, chunk int64) {
		chunk = chunk&63 + 1
		read := func(size int64) []string {
			st, obj := stored(t, map[string][]byte{"/a.jsonl": data}, "/a.jsonl")
			records, err := formattest.ReadAll(context.Background(), json.Lines{}, st, obj, format.Options{Columns: []string{"text", "a.b[]"}, ChunkBytes: size})
			var out []string
			for _, r := range records {
				out = append(out, formattest.Print(r))
			}
			if err != nil {
				out = append(out, err.Error()[len("chunk "):])
			}
			return out
		}
		whole, parts := read(1<<20), read(chunk)
		if strings.Contains(strings.Join(whole, ""), "compressed") {
			return // a file-level error carries its chunk number
		}
		if strings.Join(whole, "\n") != strings.Join(parts, "\n") {
			t.Errorf("chunks of %d bytes:\n%q\nwhole:\n%q", chunk, parts, whole)
		}
	})
}

func ExampleByPath() {
	ctx := context.Background()
	st := &store.Memory{}
	uri := st.Put("corpus.jsonl", []byte(`{"text":"mill","meta":{"lang":"en"}}
{"text":"river"}
{"text":`))
	obj, err := st.Stat(ctx, uri)
	if err != nil {
		fmt.Println(err)
		return
	}
	f, err := decoders.ByPath(uri)
	if err != nil {
		fmt.Println(err)
		return
	}
	opt := format.Options{Columns: []string{"text", "meta.lang"}}
	chunks, err := f.Chunks(ctx, st, obj, opt)
	if err != nil {
		fmt.Println(err)
		return
	}
	for chunk := range chunks {
		err := format.Read(ctx, f, st, obj, chunk, opt, func(r *format.Record) error {
			if r.Err != nil {
				fmt.Println("bad:", r.Err)
				return nil
			}
			fmt.Printf("row %d: %s (%s)\n", r.Row, r.Values[0].Bytes, r.Values[1].Bytes)
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// row 0: mill (en)
	// row 37: river ()
	// bad: /corpus.jsonl:3: (byte 54) the line is not valid JSON: it ends too soon: a value is expected here: fix the line
}
