// Package columnar is what the decoders of columnar files share: values that are
// wider than Go's or have parts, the names of types, and the errors about them.
//
// It owns the text that a decimal or a group of fields becomes, so that a value reads
// the same from every format. It never looks into a file itself.
package columnar

// MapNames are the names of a map's fields in field paths, whatever its schema calls them.
var MapNames = [2]string{"key", "value"}
