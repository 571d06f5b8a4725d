package decoders_test

import (
	"strings"
	"testing"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format"
	"github.com/millrace-data/millrace/internal/sourceloader/format/decoders"
)

func TestForeign(t *testing.T) {
	for uri, want := range map[string]string{
		"/d/shard.00000.mds": "MDS", "/d/shard.00000.mds.zstd": "MDS", "/d/S.MDS": "MDS", "s.mds.gz": "MDS",
		"a.tfrecord": "TFRecord", "a.tfrecord-00000-of-00512": "TFRecord", "a.tfrecord-00000-of-00512.gz": "TFRecord", "a-00000-of-00512.tfrecord.gz": "TFRecord",
		"a.array_record-00001-of-00002": "Grain", "a.csv": "Parquet", "a.csv.zst": "Parquet", "a.tsv.bz2": "Parquet",
		"a.HEIC": "JPEG", "a.jsonl.bz2": "gzip or zstd", "a.tar.xz": "gzip or zstd", "a.zip": "unpack",
		"a.npy": "token ids", "a.pdf": ".txt",
	} {
		_, err := decoders.ByPath(uri)
		if fault.ClassOf(err) != fault.User || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), uri+" is ") {
			t.Errorf("ByPath(%q): %v, want words about %s", uri, err, want)
		}
		if shards, _ := format.Foreign(uri); shards != (want == "MDS" || want == "TFRecord" || want == "Grain") {
			t.Errorf("Foreign(%q) says %v of shards", uri, shards)
		}
	}
	for _, uri := range []string{"a", "a.gz", "a.jsonl", "a.jsonl.gz", "a.exe", "csv", "a-00000-of-00512", "a.tar", "mds/a.json", ".zst"} {
		if _, err := format.Foreign(uri); err != nil {
			t.Errorf("Foreign(%q): %v", uri, err)
		}
	}
}
