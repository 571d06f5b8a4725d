package format

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
)

// foreign are kinds of files that are met where data should be and are not read, with
// what to do about them.
var foreign = []struct {
	extensions []string
	kind       string
	remedy     string
	shards     bool // the JSON files beside them are about them, and no data
}{
	{[]string{".mds"}, "a shard of MosaicML Streaming (MDS)", "write its samples as Parquet or JSON Lines" + converting, true},
	{[]string{".tfrecord", ".tfrecords"}, "TFRecord", "write its records as Parquet or JSON Lines" + converting, true},
	{[]string{".array_record", ".arrayrecord", ".riegeli", ".bagz"}, "a file of records for Grain", "write its records as Parquet or JSON Lines" + converting, true},
	{[]string{".csv", ".tsv", ".psv"}, "a table of text", "write it as Parquet" + converting, false},
	{[]string{".orc", ".avro", ".xlsx", ".xls", ".ods", ".db", ".sqlite", ".duckdb", ".lmdb", ".mdb"}, "a table", "write it as Parquet" + converting, false},
	{[]string{".heic", ".avif"}, "an image that is not decoded", "convert it to JPEG, PNG or WebP", false},
	{[]string{".npy", ".npz", ".pt", ".pth", ".pkl", ".pickle", ".h5", ".hdf5", ".safetensors"}, "arrays of a program",
		"write token ids as Parquet, or as Megatron's .bin and .idx", false},
	{[]string{".pdf", ".doc", ".docx", ".epub", ".odt"}, "a document with its layout", "write its text as .txt or JSON Lines", false},
	{[]string{".zip", ".7z", ".rar"}, "an archive", "unpack it, or pack what is in it with tar", false},
	{[]string{".bz2", ".xz", ".lz4", ".br", ".zstd", ".z", ".sz"}, "compressed in another way than by gzip or zstd", "compress it with one of them, and let its name end in .gz or .zst", false},
}

const converting = ` (docs/file-formats.md, "Other formats")`

// shardNumber is the end of a name such as train.tfrecord-00000-of-00512.
var shardNumber = regexp.MustCompile(`-\d+-of-\d+$`)

// compressed are the endings below which a name has the ending that says what it is.
var compressed = []string{".gz", ".zst", ".zstd", ".bz2", ".xz", ".lz4", ".br", ".z", ".sz"}

// Foreign returns an error that says what a file is, by its name, and what to do about
// it; nil if its name says nothing of the kind. shards reports whether it is one of many
// shards, beside which other files only say what is in them.
func Foreign(uri string) (shards bool, err error) {
	name := strings.ToLower(path.Base(uri))
	plain := shardNumber.ReplaceAllString(name, "")
	for slices.Contains(compressed, path.Ext(plain)) {
		plain = shardNumber.ReplaceAllString(strings.TrimSuffix(plain, path.Ext(plain)), "")
	}
	for _, ext := range []string{path.Ext(plain), path.Ext(name)} {
		for _, f := range foreign {
			if slices.Contains(f.extensions, ext) {
				return f.shards, fault.Userf("%s is %s, which is not read: %s", uri, f.kind, f.remedy)
			}
		}
	}
	return false, nil
}
