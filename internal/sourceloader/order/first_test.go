package order_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/order"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
	"github.com/millrace-data/millrace/jobspec"
)

// TestFirst reads one record of the first file that has one, and no other.
func TestFirst(t *testing.T) {
	var mem store.Memory
	mem.Put("d/a.jsonl", nil)
	mem.Put("d/b.jsonl", []byte(twoLines))
	mem.Put("d/c.jsonl", []byte("{}\n"))
	mem.Put("d/d.data", nil)
	src := &jobspec.Source{Name: "s", Files: []string{"/d"}}
	var read []string
	s, err := order.First(t.Context(), &mem, src, []string{"text"}, func(_ format.Format, obj store.Object, rec *format.Record) error {
		read = append(read, fmt.Sprintf("%s %d", obj.URI, rec.Row))
		return rec.Err
	})
	if err != nil || fmt.Sprint(read) != "[/d/b.jsonl 0]" {
		t.Errorf("read %v, %v", read, err)
	}
	if s.Format.Name() != "jsonl" || len(s.LeftOut) != 1 || s.LeftOut[0].URI != "/d/d.data" {
		t.Errorf("%s, left out %v", s.Format.Name(), s.LeftOut)
	}
	mine := errors.New("not this record")
	if _, err := order.First(t.Context(), &mem, src, nil, func(format.Format, store.Object, *format.Record) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("the callback's error comes back as %v", err)
	}
	src.Files = []string{"/d/a.jsonl"}
	if _, err := order.First(t.Context(), &mem, src, nil, nil); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), `source "s" is empty`) {
		t.Errorf("nothing but an empty file: %v", err)
	}
}

// TestStreamingIndex: an index of MosaicML Streaming or LitData is refused, and another file of
// that name is read.
func TestStreamingIndex(t *testing.T) {
	const shards = `"shards": [{"format": %q, "raw_data": {"basename": "shard.00000.x", "bytes": 9}}, {"format": "mds"`
	for text, want := range map[string]string{
		fmt.Sprintf(`{"version": 2, `+shards+`}]}`, "mds"):                                               "whose shards (mds) are not read",
		fmt.Sprintf(`{`+shards, "mds"):                                                                   "whose shards (mds) are not read", // no more of it is read
		fmt.Sprintf(`{`+shards+`}], "version": 2}`, "csv"):                                               "whose shards (csv) are not read",
		fmt.Sprintf(`{`+shards+`}], "version": 2}`, "json"):                                              "name only them, with `format: jsonl`",
		`{"shards": [], "text": "a"}`:                                                                    "",
		`{"shards": [1, 2], "text": "a"}`:                                                                "",
		`{"shards": {"format": "mds"}, "text": "a"}`:                                                     "",
		`{"shards": [{"format": "mds"}], "text": "a"}`:                                                   "",
		`[{"shards": [{"raw_data": {"basename": "a"}}]}]`:                                                "",
		`{"chunks": [{"chunk_bytes": 9, "filename": "chunk-0-0.bin"}], "config": {"compression": null}}`: "the index of a LitData dataset, whose chunks (chunk-0-0.bin) are not read: write its samples as Parquet",
		`{"config": {}, "chunks": [{"filename": "a.parquet"}]}`:                                          "its chunks are Parquet: name only them, such as /d/*.parquet",
		`{"chunks": [{"text": "a"}]}`:                                                                    "",
		`{"chunks": ["a", "b"], "shards": 1}`:                                                            "",
		`{"chunks": [], "filename": "a.bin"}`:                                                            "",
		`{"text": {"chunks": [{"filename": "a.bin"}]}}`:                                                  "",
		`{"text": "a"}`: "",
		`{"text": {"shards": [{"raw_data": {"basename": "a"}}]}}`: "",
	} {
		_, err := index(t, map[string]string{"d/index.json": text}, jobspec.Source{Files: []string{"/d"}})
		if want == "" && err != nil || want != "" && (fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestChunkNames: a Megatron pair may have the name of LitData's chunks, which have no other half.
func TestChunkNames(t *testing.T) {
	files := map[string]string{"d/chunk-0-0.bin": "\x01\x00\x01\x00\x00\x00\x01\x00", "d/chunk-0-0.idx": string(megatronIndex(4))}
	for _, named := range []string{"/d", "/d/*.bin", "/d/chunk-0-0.bin"} {
		if _, err := index(t, files, jobspec.Source{Files: []string{named}}); strings.Contains(fmt.Sprint(err), "LitData") {
			t.Errorf("a pair, by %s: %v", named, err)
		}
	}
	delete(files, "d/chunk-0-0.idx")
	for format, refused := range map[string]bool{"": true, "megatron": true, "files": false} {
		_, err := index(t, files, jobspec.Source{Files: []string{"/d"}, Format: format})
		if strings.Contains(fmt.Sprint(err), "is a chunk of a LitData dataset") != refused {
			t.Errorf("half a pair, format %q: %v", format, err)
		}
	}
}
