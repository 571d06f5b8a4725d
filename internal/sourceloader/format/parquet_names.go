package format

import (
	"fmt"
	"strings"

	"github.com/millrace-data/millrace/internal/didyoumean"
	"github.com/millrace-data/millrace/internal/fault"
)

// maxListedColumns keeps an error message on a few lines: files of a thousand
// columns exist.
const maxListedColumns = 24

// noSuchColumn is the error for a column that a file's schema rules out.
func noSuchColumn(name string, have []string) error {
	if len(have) == 0 {
		return fault.Userf("there is no column %q: the file has no columns", name)
	}
	if near := didyoumean.Nearest(name, have); near != "" {
		return fault.Userf("there is no column %q; did you mean %q? The file has %s", name, near, listNames(have))
	}
	return fault.Userf("there is no column %q; the file has %s", name, listNames(have))
}

func listNames(names []string) string {
	if more := len(names) - maxListedColumns; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListedColumns], ", "), more)
	}
	return strings.Join(names, ", ")
}

// under prefixes the fields of the group that name stands for.
func under(name string, list bool, fields []string) []string {
	if list {
		name += "[]"
	}
	full := make([]string, len(fields))
	for i, f := range fields {
		full[i] = name + "." + strings.TrimPrefix(f, ".")
	}
	return full
}

// endsIn reports whether the name of the file ends in one of the extensions,
// in either case.
func endsIn(uri string, extensions ...string) bool {
	uri = strings.ToLower(uri)
	for _, ext := range extensions {
		if strings.HasSuffix(uri, ext) {
			return true
		}
	}
	return false
}
