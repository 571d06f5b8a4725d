// Package formats names the formats of Millrace: those of the files that sources
// are read from, and those of the batches that trainers get.
//
// It owns their names, their file extensions and one line about each, and is the
// one place that has them: the job spec, the decoders and the assembly of batches
// ask here. It never opens a file and knows nothing of what a format means.
package formats

import (
	"path"
	"slices"
	"strings"
)

// Names of the formats of files.
const (
	Parquet    = "parquet"
	JSONL      = "jsonl"
	JSON       = "json"
	WebDataset = "webdataset"
	Megatron   = "megatron"
	Arrow      = "arrow"
	Text       = "text"
	Files      = "files"
)

// Input is a format of files.
type Input struct {
	Name string
	Doc  string // what its files are, in a few words
	// Extensions are those that say the format of a file, in lower case; case does
	// not count. Each may be followed by .gz or .zst if Compressed is set.
	Extensions []string
	Compressed bool
	// Also are extensions of files that belong to the format where a spec sets it.
	Also []string
	// Any says that where a spec sets the format, every file belongs to it.
	Any bool
	// Beside says that such files lie beside those of other formats: they decide the format of a folder only where
	// no other does.
	Beside bool
}

// Inputs returns the formats of files, in the order in which they are listed to users.
func Inputs() []Input {
	return []Input{
		{Name: Parquet, Doc: "Apache Parquet", Extensions: []string{".parquet", ".parq"}},
		{Name: JSONL, Doc: "JSON Lines, one object a line", Extensions: []string{".jsonl", ".ndjson"}, Compressed: true, Also: []string{".json"}},
		{Name: JSON, Doc: "an array of JSON objects, JSON Lines or one object", Extensions: []string{".json"}, Compressed: true},
		{Name: WebDataset, Doc: "tar shards, members of one key a sample", Extensions: []string{".tar", ".tgz"}, Compressed: true},
		{Name: Megatron, Doc: "pairs of .bin and .idx of Megatron-LM", Extensions: []string{".idx", ".bin"}},
		{Name: Arrow, Doc: "Arrow IPC files and streams", Extensions: []string{".arrow", ".arrows", ".ipc", ".feather"}},
		{Name: Text, Doc: "plain text, one file a record", Extensions: []string{".txt", ".text", ".md", ".markdown", ".rst", ".tex"}, Compressed: true, Any: true},
		{Name: Files, Doc: "sounds, pictures and videos, one file a record", Extensions: mediaExtensions, Beside: true},
	}
}

// mediaExtensions are those of files that are records of their own.
var mediaExtensions = []string{
	".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aac", ".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff",
	".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi",
}

// InputNames returns the names of the formats of files.
func InputNames() []string {
	var names []string
	for _, in := range Inputs() {
		names = append(names, in.Name)
	}
	return names
}

// InputOf returns the format that the file's extension stands for, and false if it
// stands for none.
func InputOf(uri string) (Input, bool) {
	all := Inputs()
	i := slices.IndexFunc(all, func(in Input) bool { return in.has(uri, in.Extensions) })
	if i < 0 {
		return Input{}, false
	}
	return all[i], true
}

// Extensions returns those that say a format.
func Extensions() []string {
	var all []string
	for _, in := range Inputs() {
		all = append(all, in.Extensions...)
	}
	return all
}

// Accepts reports whether a listed file is data of the format with this name, by the
// file's name. A format that is not known accepts none.
func Accepts(format, uri string) bool {
	return slices.ContainsFunc(Inputs(), func(in Input) bool {
		return in.Name == format && (in.Any || in.has(uri, in.Extensions) || in.has(uri, in.Also))
	})
}

func (in Input) has(uri string, extensions []string) bool {
	name := strings.ToLower(path.Base(uri))
	if in.Compressed {
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	}
	return slices.ContainsFunc(extensions, func(ext string) bool { return strings.HasSuffix(name, ext) })
}

// Codec names the compression that a file's name declares: gzip, zstd, or "" for
// none. Case does not count.
func Codec(uri string) string {
	uri = strings.ToLower(uri)
	switch {
	case strings.HasSuffix(uri, ".gz"), strings.HasSuffix(uri, ".tgz"):
		return "gzip"
	case strings.HasSuffix(uri, ".zst"):
		return "zstd"
	}
	return ""
}

// Names of the formats of batches: whose key names, types and rules the tensors follow.
const (
	BatchMegatron    = "megatron"     // Megatron-LM: (rows, sequence length), labels already shifted
	BatchMegatronTHD = "megatron-thd" // Megatron-LM's packed sequences: one line, each document padded and cut by itself
	BatchHF          = "hf"           // Hugging Face padding-free: (1, tokens), labels not shifted
	BatchTorchtitan  = "torchtitan"   // torchtitan: one line of rows, labels already shifted
	BatchJAX         = "jax"          // MaxText: (rows, sequence length), int32, segment ids
)

// BatchNames returns the names of the formats of batches, the default first.
func BatchNames() []string {
	return []string{BatchMegatron, BatchMegatronTHD, BatchHF, BatchTorchtitan, BatchJAX}
}
