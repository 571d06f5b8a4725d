// Package members says what the columns of samples are that consist of files of one name and several extensions:
// 000017.jpg, 000017.txt, 000017.json. They are members of a tar, or files of a folder.
//
// It owns the meaning of columns, and which extensions are of text. It never
// reads a file.
package members

import (
	"strings"

	"github.com/millrace-data/millrace/internal/fault"
	"github.com/millrace-data/millrace/internal/sourceloader/format/jsonobject"
)

// Key is the column of what the names of a sample's files have in common.
const Key = "__key__"

// Column says how a column comes out of a sample.
type Column struct {
	Ext  string             // of the member, in lower case; "" for the key
	JSON *jsonobject.Reader // reads the field that the column names in a JSON member
}

// Columns are the columns of these names. A list in a JSON member has at most limit elements.
func Columns(names []string, limit int) ([]Column, error) {
	columns := make([]Column, len(names))
	for i, name := range names {
		if name == Key {
			continue
		}
		if name == "" {
			return nil, fault.Userf("the name of a column is empty (valid: a member's extension such as txt or jpg, json.caption, __key__)")
		}
		ext, field := splitColumn(name)
		columns[i].Ext = strings.ToLower(ext)
		if field == "" {
			continue
		}
		reader, err := jsonobject.New([]string{field}, limit)
		if err != nil {
			return nil, err
		}
		columns[i].JSON = reader
	}
	return columns, nil
}

// splitColumn splits a column into an extension that ends in json or json.gz
// and the field below it.
func splitColumn(name string) (ext, field string) {
	for i := 0; i < len(name); i++ {
		if name[i] != '.' {
			continue
		}
		ext, rest := strings.ToLower(name[:i]), name[i+1:]
		if ext != "json" && !strings.HasSuffix(ext, ".json") && !isJSONGz(ext) || rest == "gz" || strings.HasPrefix(rest, "gz.") {
			continue
		}
		return name[:i], rest
	}
	return name, ""
}

func isJSONGz(ext string) bool { return ext == "json.gz" || strings.HasSuffix(ext, ".json.gz") }

// IsText reports whether members of this extension are UTF-8 text.
func IsText(ext string) bool {
	ext = strings.TrimSuffix(ext, ".gz")
	switch ext[strings.LastIndexByte(ext, '.')+1:] {
	case "txt", "text", "cls", "json":
		return true
	}
	return false
}
