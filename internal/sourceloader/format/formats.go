package format

import (
	"fmt"
	"path"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/store"
)

// Filter is implemented by formats that read only some of the files of a
// folder. A listing of a directory or a glob is cut to what Accepts takes; a
// file that was named is read whatever its name is.
type Filter interface {
	// Accepts reports whether the file is data of the format, by its name.
	Accepts(uri string) bool
}

// Companion is implemented by formats that keep the data of one listed file in
// other files as well.
type Companion interface {
	// Companions returns the URIs of those files, sorted.
	Companions(uri string) []string
}

// formats is the table of all there are. The extensions are those that ByPath
// goes by; each may be followed by .gz or .zst if compressed is set.
var formats = []struct {
	format     Format
	extensions []string
	compressed bool
}{
	{Parquet{}, []string{".parquet", ".parq"}, false},
	{Arrow{}, []string{".arrow", ".arrows", ".ipc", ".feather"}, false},
	{JSONL{}, []string{".jsonl", ".ndjson"}, true},
	{JSON{}, []string{".json"}, true},
	{WebDataset{}, []string{".tar", ".tgz"}, true},
	{Megatron{}, []string{".idx", ".bin"}, false},
	{Text{}, []string{".txt", ".text", ".md", ".markdown", ".rst", ".tex"}, true},
}

// ByName returns the format that a job spec calls name.
func ByName(name string) (Format, error) {
	var names []string
	for _, row := range formats {
		if row.format.Name() == name {
			return row.format, nil
		}
		names = append(names, row.format.Name())
	}
	hint := ""
	if near := didyoumean.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("; did you mean %q?", near)
	}
	return nil, fault.Userf("format %q is not known (valid: %s)%s", name, strings.Join(names, ", "), hint)
}

// ByPath returns the format that the file's extension stands for. Case does not
// count.
func ByPath(uri string) (Format, error) {
	name := strings.ToLower(path.Base(uri))
	plain := strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	var known []string
	for _, row := range formats {
		for _, ext := range row.extensions {
			if strings.HasSuffix(name, ext) || row.compressed && strings.HasSuffix(plain, ext) {
				return row.format, nil
			}
		}
		known = append(known, row.extensions...)
	}
	if _, err := Foreign(uri); err != nil {
		return nil, err
	}
	return nil, fault.Userf("%s: its extension says no format (known: %s): set the source's format", uri, strings.Join(known, " "))
}

// InBytes says whether a record's Row is the byte at which the record begins.
func InBytes(f Format) bool {
	_, lines := f.(JSONL)
	return lines
}

// RowsBelow returns a number that the rows of all records of a file are below; 0 if only
// reading the file could tell one.
func RowsBelow(f Format, obj store.Object) int64 {
	switch f.(type) {
	case JSONL:
		if codecOf(obj.URI) == "" {
			return obj.Size
		}
	case Text:
		return 1
	}
	return 0
}
