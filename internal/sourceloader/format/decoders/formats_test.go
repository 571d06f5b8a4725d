package decoders_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/formats"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
)

func TestByName(t *testing.T) {
	for _, name := range []string{"parquet", "arrow", "jsonl", "json", "webdataset", "megatron", "text"} {
		if f, err := decoders.ByName(name); err != nil || f.Name() != name {
			t.Errorf("ByName(%q) = %v, %v", name, f, err)
		}
	}
	for name, hint := range map[string]string{
		"jsonlines": "valid: ", "parqet": `mean "parquet"`, "JSONL": `mean "jsonl"`, "webdatset": `mean "webdataset"`, "": "valid: ",
	} {
		if f, err := decoders.ByName(name); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), hint) {
			t.Errorf("ByName(%q) = %v, %v; want a hint %s", name, f, err, hint)
		}
	}
}

func TestByPath(t *testing.T) {
	for uri, want := range map[string]string{
		"/a.jsonl": "jsonl", "a.ndjson": "jsonl", "/x/a.jsonl.gz": "jsonl", "a.jsonl.zst": "jsonl", "A.JSONL.GZ": "jsonl",
		"a.json": "json", "a.json.gz": "json", "a.json.zst": "json",
		"a.tar": "webdataset", "a.tar.gz": "webdataset", "a.tgz": "webdataset", "a.tar.zst": "webdataset",
		"a.parquet": "parquet", "a.arrow": "arrow", "a.ipc": "arrow", "a.feather": "arrow",
		"a.idx": "megatron", "a.bin": "megatron", "a.txt": "text", "a.md": "text", "a.txt.gz": "text", "a.b.tex": "text",
	} {
		if f, err := decoders.ByPath(uri); err != nil || f.Name() != want {
			t.Errorf("ByPath(%q) = %v, %v; want %s", uri, f, err, want)
		}
	}
	for _, uri := range []string{"a", "a.gz", "a.exe", "a.parquet.gz", "dir.jsonl/a", "a.idx.gz", "a.jsonl.bz2"} {
		if f, err := decoders.ByPath(uri); fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), uri) {
			t.Errorf("ByPath(%q) = %v, %v; want a user error that names it", uri, f, err)
		}
	}
}

// TestAll: every format that is named has a decoder, and the other way round.
func TestAll(t *testing.T) {
	var names []string
	for _, f := range decoders.All() {
		names = append(names, f.Name())
	}
	want := formats.InputNames()
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("there are decoders for %q, and the formats %q", names, want)
	}
}

func TestFilters(t *testing.T) {
	files := []string{"a.jsonl", "a.json", "a.tar", "a.tgz", "a.idx", "a.bin", "a.parquet", "a.arrow", "state.json", "a.jsonl.zst", "README"}
	for name, want := range map[string]string{
		"jsonl": "a.jsonl a.json state.json a.jsonl.zst", "json": "a.json state.json", "webdataset": "a.tar a.tgz",
		"megatron": "a.idx a.bin", "parquet": "a.parquet", "arrow": "a.arrow", "text": strings.Join(files, " "),
	} {
		var got []string
		for _, uri := range files {
			if formats.Accepts(name, uri) {
				got = append(got, uri)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s accepts %q, want %q", name, got, want)
		}
	}
}
