// Package columnar is what the decoders of columnar files share: the names of
// columns below groups and lists, values that are wider than Go's, and the
// errors about them.
//
// It owns the text that a decimal or a half becomes, so that a value reads the
// same from every format. It never looks into a file itself.
package columnar

import "strings"

// MapNames are the names of a map's fields in field paths, whatever its schema calls them.
var MapNames = [2]string{"key", "value"}

// Under prefixes the fields of the group that name stands for.
func Under(name string, list bool, fields []string) []string {
	if list {
		name += "[]"
	}
	full := make([]string, len(fields))
	for i, f := range fields {
		full[i] = name + "." + strings.TrimPrefix(f, ".")
	}
	return full
}
